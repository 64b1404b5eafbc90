"""Finds the hosts of a store that have the most of something, page by page."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from orbweb.frontier.hosts import HOST_FIELDS, RUN_FIELDS, Host, RunRules, read_look
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.valkey import ScriptCaller
from orbweb.frontier.waiting import Gap, Wait, gap_of, why_waits

LOOKED_AT = 200
"""Hosts at most that one call tells all about."""


class Sort(StrEnum):
    """What hosts are put in order by, most first."""

    BACKLOG = "backlog"
    RATE = "rate"
    ERRORS = "errors"


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host, what waits for it, and why."""

    host: Host
    delayed: int
    """Requests that wait for another attempt."""
    in_work: int
    gap: Gap
    """The gap that is kept now, and what asks for it."""
    wait: Wait

    @property
    def waiting(self) -> int:
        return self.host.backlog + self.delayed

    def weight(self, sort: Sort) -> float:
        """What it is put in order by, most first."""
        if sort is Sort.RATE:
            return self.host.rate
        return self.host.bad if sort is Sort.ERRORS else self.waiting


@dataclass(slots=True)
class Others:
    """Hosts by what they have besides a queue."""

    delayed: Counter[str]
    in_work: Counter[str]


class Seen(NamedTuple):
    """A host as `lua/hosts.lua` tells it."""

    name: str
    times: int
    queued: bool
    score: float


class Best:
    """The names with the highest scores among all that were offered."""

    def __init__(self, most: int) -> None:
        """`most` 0 keeps all."""
        self._most = most
        self._room = 2 * most + 50
        self._scores: dict[str, float] = {}
        self.floor = -1.0
        """Scores that are not higher need not be offered any more."""

    def offer(self, name: str, score: float) -> None:
        self._scores[name] = score
        if self._most and len(self._scores) > self._room:
            self._scores = dict(self._first())
            self.floor = min(self._scores.values())

    def names(self) -> list[str]:
        """Highest score first; equal ones by name."""
        return [name for name, _ in self._first()]

    def _first(self) -> list[tuple[str, float]]:
        most = self._most or len(self._scores)
        return heapq.nsmallest(most, self._scores.items(), key=lambda item: (-item[1], item[0]))


class HostTable:
    """The hosts of one shard. Each call to the store is bounded, however many hosts there are."""

    def __init__(self, caller: ScriptCaller, shard: ShardKeys) -> None:
        self._caller = caller
        self._shard = shard

    async def top(
        self, runs: Sequence[tuple[str, str, str]], sort: Sort, most: int, *, everywhere: bool
    ) -> tuple[int, list[HostRow]]:
        """How many hosts there are, and the first `most` of them (0 = all).

        `everywhere`: also hosts that only an operator or an earlier request knows.
        """
        bases = [base for _, _, base in runs]
        best, others = Best(most), Others(Counter(), Counter())
        total = await self._without_queue(bases, sort, best, others, everywhere=everywhere)
        for place in range(1, len(bases) + 1):
            async for named, page in self._walk("ready", place, bases, sort, best):
                total += named
                for seen in page:
                    waiting = others.delayed[seen.name] if sort is Sort.BACKLOG else 0
                    best.offer(seen.name, seen.score + waiting)
        return total, await self.rows(runs, best.names(), others)

    async def _without_queue(
        self, bases: list[str], sort: Sort, best: Best, others: Others, *, everywhere: bool
    ) -> int:
        """Offer the hosts that have something besides a queue; how many have no queue at all."""
        found: dict[str, Seen] = {}
        for part, counts in (("delayed", others.delayed), ("owner", others.in_work)):
            for place in range(1, len(bases) + 1):
                async for _, page in self._walk(part, place, bases, sort, best):
                    for seen in page:
                        counts[seen.name] += seen.times
                        found[seen.name] = seen
        for part in ("next", "steered") if everywhere else ():
            async for _, page in self._walk(part, 0, bases, sort, best):
                found.update((seen.name, seen) for seen in page)
        for name, seen in found.items():
            best.offer(name, seen.score + (others.delayed[name] if sort is Sort.BACKLOG else 0))
        return sum(not seen.queued for seen in found.values())

    async def rows(
        self, runs: Sequence[tuple[str, str, str]], names: Sequence[str], others: Others
    ) -> list[HostRow]:
        """All about these hosts, in their order."""
        rows = []
        for start in range(0, len(names), LOOKED_AT):
            rules, hosts = await self.look(runs, names[start : start + LOOKED_AT])
            rows += [_row(host, rules, others) for host in hosts]
        return rows

    async def look(
        self, runs: Sequence[tuple[str, str, str]], names: Sequence[str]
    ) -> tuple[list[RunRules], list[Host]]:
        """The rules of runs (job, run, base) and the state of hosts, at one instant."""
        bases = [base for _, _, base in runs]
        answer = await self._caller.call(
            "look",
            (self._shard.tag,),
            (" ".join(HOST_FIELDS), " ".join(RUN_FIELDS), len(bases), *bases, *names),
        )
        return read_look(answer, runs, names)

    async def page(
        self, part: str, place: int, bases: Sequence[str], sort: Sort, floor: float, cursor: bytes
    ) -> tuple[bytes, int, list[Seen]]:
        """One page: the next cursor, how many hosts it names, those that score above `floor`.

        `part` and `place` as in `lua/hosts.lua`; the cursor of the first and of the end is `b"0"`.
        """
        following, named, *words = await self._caller.call(
            "hosts", (self._shard.tag,), (part, cursor, str(sort), f"{floor:.3f}", place, *bases)
        )
        seen = [
            Seen(name.decode(), times, bool(queued), float(score))
            for name, times, queued, score in zip(*[iter(words)] * 4, strict=True)
        ]
        return following, named, seen

    async def _walk(
        self, part: str, place: int, bases: Sequence[str], sort: Sort, best: Best
    ) -> AsyncIterator[tuple[int, list[Seen]]]:
        """Page by page: how many hosts it names, and those that may be among the best."""
        cursor = b"0"
        while True:
            cursor, named, seen = await self.page(part, place, bases, sort, best.floor, cursor)
            yield named, seen
            if cursor == b"0":
                return


def _row(host: Host, rules: Sequence[RunRules], others: Others) -> HostRow:
    delayed, in_work = others.delayed[host.name], others.in_work[host.name]
    asking = [run for run, queued in zip(rules, host.queued, strict=True) if queued]
    heard = [run for run in asking if run.alive] or asking or rules
    wait = why_waits(host, rules, delayed=delayed, in_work=in_work)
    return HostRow(host, delayed, in_work, gap_of(host, heard), wait)
