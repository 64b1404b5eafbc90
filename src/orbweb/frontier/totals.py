"""What the nodes of a run have counted, in the store: nothing is lost when a node is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from redis.asyncio import Redis

from orbweb.frontier.items import COUNTS_SECONDS
from orbweb.frontier.keys import RunKeys, ShardKeys
from orbweb.frontier.server import answer_of
from orbweb.frontier.valkey import ScriptCaller

FOLD_FROM = 50
"""Nodes that have left, before their counts become one sum."""

FOLD_MOST = 200
"""Nodes whose counts are folded in one step."""


class TotalsBook(Protocol):
    """Where a node puts down what it has counted. Raises `StoreUnavailable`."""

    def attach(self, epoch: str) -> None:
        """Work on this incarnation of the run; comes before all else."""

    async def tell(self, node: str, counts: bytes, *, again: bool) -> bool:
        """Put counts in the place of what the node said before; may be repeated.

        `again`: it has told before. False: that is part of the run's sum by now, as the node was
        taken to have left. Nothing was put down; the node goes on under another name, with what
        it has counted since.
        """


class RunTotals:
    """See `TotalsBook`. The counts are opaque here: who reads them says how they add up."""

    def __init__(self, client: Redis, prefix: str, job: str, run: str) -> None:
        self._caller = ScriptCaller(client)
        self._shard = ShardKeys(prefix)
        self._job = job
        self._run = run
        self._keys: RunKeys | None = None

    def attach(self, epoch: str) -> None:
        """See `TotalsBook`."""
        self._keys = self._shard.run(self._job, self._run, epoch)

    async def tell(self, node: str, counts: bytes, *, again: bool) -> bool:
        """See `TotalsBook`."""
        words = (node, counts, int(again), COUNTS_SECONDS)
        return bool(await self._caller.call("tell", self._places, words))

    async def told(self) -> dict[str, bytes]:
        """What each node has told last; under the empty name the sum of those that left."""
        found = await answer_of(self._caller.client.hgetall(self._attached.counts))
        return {name.decode(): counts for name, counts in found.items()}

    async def fold(self, add_up: Callable[[Sequence[bytes]], bytes]) -> int:
        """Make one sum of the counts of nodes that left, when they are many; returns how many.

        A node has left when it is no longer among those that spoke within the last twenty leases.
        """
        client, keys = self._caller.client, self._attached
        if await answer_of(client.hlen(keys.counts)) <= FOLD_FROM:
            return 0
        told = await self.told()
        living = {name.decode() for name in await answer_of(client.hkeys(keys.beats))}
        gone = [name for name in told if name and name not in living][:FOLD_MOST]
        if len(gone) < FOLD_FROM:
            return 0
        before = told.get("", b"")
        after = add_up([*filter(None, [before]), *(told[name] for name in gone)])
        pairs = [word for name in gone for word in (name, told[name])]
        done = await self._caller.call("fold", self._places, (before, after, *pairs))
        return len(gone) if done else 0

    @property
    def _places(self) -> tuple[str, str]:
        return self._shard.tag, self._attached.base

    @property
    def _attached(self) -> RunKeys:
        assert self._keys is not None, "attach comes first"
        return self._keys
