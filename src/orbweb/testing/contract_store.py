"""What the contract of a frontier needs: a store whose clock a test turns, and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Protocol

from orbweb.frontier.base import (
    Ack,
    Claim,
    DeadLetter,
    Frontier,
    Lease,
    NewRequest,
    Opened,
    RunConfig,
    RunControl,
    SeedCode,
    Tunable,
)
from orbweb.frontier.tasks import TaskList

LEASE_MS = 60_000


class FullFrontier(Frontier, RunControl, Tunable, Protocol):
    """All that a frontier offers to one run."""

    async def redrive(self, ids: Sequence[str], *, drop: bool = False) -> int:
        """Let dead letters return to their queues, or drop them; returns how many were found."""


class Store(Protocol):
    """One empty shard and the wall clock that it looks at."""

    def frontier(self, job: str = "job", run: str = "") -> Any:
        """A `FullFrontier` that was not opened yet; those of one job and run share it."""

    def turn(self, ms: int) -> None:
        """Move the wall clock on, or back when `ms` is negative."""

    async def lose(self) -> None:
        """Lose everything, as a flushed server does."""

    def task_list(self, key: str) -> TaskList:
        """Where tasks wait, whatever runs there are."""

    async def dead_letters(self, job: str = "job", run: str = "") -> list[DeadLetter]:
        """The dead letters of the living run."""

    async def responses(self, job: str = "job", run: str = "") -> dict[str, bytes]:
        """What is kept of what was answered to them, by id."""


class Node:
    """A worker process: its name, its frontier, its claims."""

    def __init__(self, frontier: FullFrontier, name: str = "A") -> None:
        self.frontier = frontier
        self.name = name
        self.seq = 0

    def peer(self, name: str) -> Node:
        return Node(self.frontier, name)

    async def claim(self, want: int = 100) -> Claim:
        self.seq += 1
        return await self.frontier.claim(self.name, self.seq, want, LEASE_MS)

    async def take(self, want: int = 100) -> list[Lease]:
        return list((await self.claim(want)).leases)

    async def ids(self, want: int = 100) -> list[str]:
        return [lease.id for lease in await self.take(want)]

    async def finish(self, *leases: Lease) -> list[bool]:
        return await self.frontier.ack([done(lease) for lease in leases])

    async def push(self, *requests: NewRequest, final: bool = True) -> None:
        """Seed the run with these requests, as its only seeder."""
        claimed = await self.frontier.seed_claim(self.name, 1_000_000, LEASE_MS)
        assert claimed.code is SeedCode.OK
        batch = claimed.cursor + 1
        pushed = await self.frontier.seed_push(claimed.token, batch, final, requests)
        assert pushed.code is SeedCode.OK


def done(lease: Lease, *children: NewRequest, items: int = 0) -> Ack:
    return Ack(lease.id, lease.token, "done", items, children)


def page(
    name: str, host: str = "h", priority: int = 0, *, filtered: bool = True, payload: bytes = b""
) -> NewRequest:
    """A request whose fingerprint follows from its name."""
    digest = blake2b(name.encode(), digest_size=8).digest()
    fingerprint = int.from_bytes(digest, "big", signed=True) if filtered else None
    return NewRequest(name, host, priority, fingerprint, payload or name.encode())


def pages(names: str, **kwargs: Any) -> list[NewRequest]:
    return [page(name, **kwargs) for name in names]


async def opened(
    store: Store, job: str = "job", run: str = "", **config: Any
) -> tuple[Node, Opened]:
    frontier = store.frontier(job, run)
    answer = await frontier.open(RunConfig(**{"host_concurrency": 0, **config}))
    return Node(frontier), answer


async def seeded(store: Store, *requests: NewRequest, **config: Any) -> Node:
    """A node of a new run whose seeding has ended."""
    node, _ = await opened(store, **config)
    await node.push(*requests)
    return node


async def elapse(store: Store, node: Node, ms: int) -> None:
    """Let time pass while somebody looks at the store once a second."""
    while ms > 0:
        store.turn(min(ms, 1_000))
        await node.frontier.renew("onlooker", LEASE_MS, [])
        ms -= 1_000
