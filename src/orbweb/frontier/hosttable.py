"""Finds the hosts of a store that have the most of something, page by page."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from orbweb.frontier.hosts import HOST_FIELDS, RUN_FIELDS, Host, RunRules, decayed_rate, read_look
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
    """A host as `lua/hosts.lua` names it."""

    name: str
    times: int
    queued: int
    rate: float
    bad: int


class Best:
    """The names with the highest scores among all that were offered."""

    def __init__(self, most: int) -> None:
        """`most` 0 keeps all."""
        self._most = most
        self._room = 4 * most + 100
        self._scores: dict[str, float] = {}
        self._floor = float("-inf")

    def offer(self, name: str, score: float) -> None:
        if score < self._floor:
            return
        self._scores[name] = score
        if self._most and len(self._scores) > self._room:
            self._scores = dict(self._first())
            self._floor = min(self._scores.values())

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
        best, queueless, total = Best(most), set[str](), 0
        others = Others(Counter(), Counter())

        def offer(seen: Seen) -> None:
            best.offer(seen.name, _score(seen, sort, others))

        for part, counts in (("delayed", others.delayed), ("owner", others.in_work)):
            for place in range(1, len(bases) + 1):
                async for seen in self._walk(part, place, bases):
                    counts[seen.name] += seen.times
                    if not seen.queued:
                        queueless.add(seen.name)
                        offer(seen)
        for part in ("next", "steered") if everywhere else ():
            async for seen in self._walk(part, 0, bases):
                if not seen.queued:
                    queueless.add(seen.name)
                    offer(seen)
        for place in range(1, len(bases) + 1):
            async for seen in self._walk("ready", place, bases):
                total += 1
                offer(seen)
        return total + len(queueless), await self.rows(runs, best.names(), others)

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

    async def _walk(self, part: str, place: int, bases: Sequence[str]) -> AsyncIterator[Seen]:
        cursor = b"0"
        while True:
            cursor, clock, *words = await self._caller.call(
                "hosts", (self._shard.tag,), (part, cursor, place, *bases)
            )
            for i in range(0, len(words), 6):
                name, times, queued, count, counted_at, bad = words[i : i + 6]
                rate = decayed_rate(float(count), float(counted_at), float(clock))
                yield Seen(name.decode(), times, queued, rate, int(bad))
            if cursor == b"0":
                return


def _score(seen: Seen, sort: Sort, others: Others) -> float:
    if sort is Sort.RATE:
        return seen.rate
    if sort is Sort.ERRORS:
        return seen.bad
    return seen.queued + others.delayed[seen.name]


def _row(host: Host, rules: Sequence[RunRules], others: Others) -> HostRow:
    delayed, in_work = others.delayed[host.name], others.in_work[host.name]
    asking = [run for run, queued in zip(rules, host.queued, strict=True) if queued]
    heard = [run for run in asking if run.alive] or asking or rules
    wait = why_waits(host, rules, delayed=delayed, in_work=in_work)
    return HostRow(host, delayed, in_work, gap_of(host, heard), wait)
