"""The end of a run of several shards, looked for by many while requests wander between the shards.

Nothing but the order of calls is random here: no time, no network, no faults. So every order can
come up in which one look at the shards sees nothing although something is under way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any
from unittest import mock

import pytest

from orbweb.frontier import sharded as sharded_module
from orbweb.frontier.base import Ack, NewRequest, RunConfig, RunState, Status
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.memory_state import MemoryShard
from orbweb.frontier.routes import shard_of
from orbweb.frontier.sharded import ShardedFrontier

SHARDS = 4
HOSTS = {shard_of(f"h{n}", SHARDS): f"h{n}" for n in range(40)}
MOST_STEPS = 3_000


class Turn:
    """Ends the turn of whoever awaits it."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Part:
    """A shard of which each call takes a turn to get there and one to come back."""

    def __init__(self, frontier: MemoryFrontier) -> None:
        self.frontier = frontier

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.frontier, name)

        async def call(*args: Any) -> Any:
            await Turn()
            answer = await method(*args)
            await Turn()
            return answer

        return call if name != "attach" else method


class World:
    """Workers that crawl a random tree of pages, and others that look whether it has ended."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.time = 0
        self.made = 0
        self.shards = [MemoryShard(lambda: 1_000, lambda: "e") for _ in range(SHARDS)]
        self.false_ends = 0
        self.ended = False

    def frontier(self) -> ShardedFrontier:
        parts = [Part(MemoryFrontier(shard, "j", shards=SHARDS)) for shard in self.shards]
        frontier = ShardedFrontier(parts, clock=lambda: self.time / 1000)  # type: ignore[arg-type]
        frontier.attach("e")
        return frontier

    def page(self) -> NewRequest:
        self.made += 1
        host = HOSTS[self.rng.randrange(SHARDS)]
        return NewRequest(f"p{self.made}", host, 0, self.made, b"")

    def pending(self) -> int:
        return sum(run.pending for shard in self.shards for run in shard.runs.values())

    async def work(self, name: str) -> None:
        frontier, seq = self.frontier(), 0
        while True:
            seq += 1
            claim = await frontier.claim(name, seq, 2, 10**9)
            for lease in claim.leases:
                room = self.made < 12
                links = [self.page() for _ in range(self.rng.choice([0, 1, 1, 2]) * room)]
                await frontier.ack([Ack(*lease.held, "done", 0, links)])
            await Turn()

    async def look(self) -> None:
        frontier = self.frontier()
        while True:
            await frontier.status()
            await Turn()

    def note_end(self) -> None:
        run = next(iter(self.shards[0].runs.values()))
        if run.state is RunState.DONE and not self.ended:
            self.ended = True
            self.false_ends += self.pending() > 0

    def play(self) -> int:
        """Run to the end; 1 when the run was called done too early."""
        run_now(self._begin())
        doing: list[Coroutine[Any, Any, None]] = [self.work("A"), self.work("B")]
        doing += [self.look(), self.look()]
        for _ in range(MOST_STEPS):
            self.time += 1
            self.rng.choice(doing).send(None)
            self.note_end()
            if self.ended:
                break
        for each in doing:
            each.close()
        assert self.ended, "the end is found"
        return self.false_ends

    async def _begin(self) -> None:
        frontier = self.frontier()
        await frontier.open(RunConfig(host_concurrency=0))
        token = (await frontier.seed_claim("A", 1, 10**9)).token
        await frontier.seed_push(token, 1, True, [self.page()])


def run_now(call: Coroutine[Any, Any, Any]) -> None:
    try:
        while True:
            call.send(None)
    except StopIteration:
        return


def false_ends(runs: int, ending: Callable[..., bool] | None = None) -> int:
    """How many of so many runs were called done too early."""
    with mock.patch.object(sharded_module, "ending", ending or sharded_module.ending):
        return sum(World(seed).play() for seed in range(runs))


def is_empty(looked: Sequence[Status], state: RunState) -> bool:
    return looked[0].state is state and not any(each.pending for each in looked)


def one_look(looked: Any, again: Any = None, *, state: RunState = RunState.RUNNING) -> bool:
    return is_empty(looked, state)


def without_versions(looked: Any, again: Any = None, *, state: RunState = RunState.RUNNING) -> bool:
    return is_empty(looked, state) and (again is None or is_empty(again, state))


@pytest.mark.parametrize("runs", [300, pytest.param(40_000, marks=pytest.mark.long)])
def test_a_run_is_never_called_done_while_something_is_under_way(runs: int) -> None:
    assert false_ends(runs) == 0


def test_who_looks_only_once_ends_too_early() -> None:
    assert false_ends(200, one_look) > 0


class HuntedPage:
    """One page that goes from shard to shard, always to where nobody looks just then."""

    def __init__(self) -> None:
        self.shards = [MemoryShard(lambda: 1_000, lambda: "e") for _ in range(SHARDS)]
        self.frontier = ShardedFrontier(
            [MemoryFrontier(shard, "j", shards=SHARDS) for shard in self.shards], clock=lambda: 0.0
        )
        self.hops = 0

    async def begin(self) -> None:
        await self.frontier.open(RunConfig(host_concurrency=0))
        token = (await self.frontier.seed_claim("A", 1, 10**9)).token
        await self.frontier.seed_push(token, 1, True, [self.page(2)])

    def page(self, shard: int) -> NewRequest:
        self.hops += 1
        return NewRequest(f"p{self.hops}", HOSTS[shard], 0, self.hops, b"")

    async def hop(self, to: int) -> None:
        """Its page is fetched, and links to one in that shard."""
        (lease,) = (await self.frontier.claim("A", self.hops, 1, 10**9)).leases
        await self.frontier.ack([Ack(*lease.held, "done", 0, [self.page(to)])])

    async def look(self) -> None:
        """Look whether the run has ended, while the page slips by twice."""
        real = MemoryFrontier.status
        reads: list[MemoryFrontier] = []

        async def status(part: MemoryFrontier) -> Status:
            reads.append(part)
            number, last = self.shards.index(part.shard), len(reads) > SHARDS
            if number == 1 and last and len(reads) < 2 * SHARDS:
                await self.hop(2)
            seen = await real(part)
            if number == 1 and len(reads) < 2 * SHARDS:
                await self.hop(1)
            return seen

        with mock.patch.object(MemoryFrontier, "status", status):
            await self.frontier.status()

    def pending(self) -> int:
        return sum(run.pending for shard in self.shards for run in shard.runs.values())

    @property
    def is_done(self) -> bool:
        return next(iter(self.shards[0].runs.values())).state is RunState.DONE


async def test_a_page_that_slips_by_twice_is_noticed_by_what_it_left_behind() -> None:
    page = HuntedPage()
    await page.begin()
    await page.look()
    assert page.pending() == 1
    assert not page.is_done


async def test_who_only_counts_twice_does_not_notice_it() -> None:
    page = HuntedPage()
    await page.begin()
    with mock.patch.object(sharded_module, "ending", without_versions):
        await page.look()
    assert page.pending() == 1
    assert page.is_done
