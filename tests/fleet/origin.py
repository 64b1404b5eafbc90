"""The origin: how its hosts answer, and the ledger of what arrived there: the only judge."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


class Answer(NamedTuple):
    """What a fetch meets: how long it takes, and how it ends."""

    ms: float
    healthy: bool = True
    refused: bool = False
    retry_after_ms: int = -1


class Arrival(NamedTuple):
    """One fetch as the origin saw it."""

    at: float
    host: str
    node: str
    job: str


Site = Callable[[str, float], Answer]
"""Answers a fetch of a host that arrives at a time."""


def steady(rng: random.Random, low: float, high: float) -> Site:
    """Every page takes between `low` and `high` ms."""
    return lambda host, at: Answer(rng.uniform(low, high))


@dataclass(slots=True)
class Seen:
    """What the ledger remembers of one host."""

    last: float = float("-inf")
    last_blind: bool = False
    fetches: int = 0
    first: float = 0.0
    ends: list[float] = field(default_factory=list)


class Origin:
    """Notes every fetch that arrives. `gap_ms` and `most` are what the fleet has promised."""

    def __init__(
        self, site: Site, *, gap_ms: float = 0, most: int = 1_000_000, keep: bool = False
    ) -> None:
        """`keep`: remember each single arrival."""
        self.site = site
        self.gap_ms = gap_ms
        self.most = most
        self.hosts: dict[str, Seen] = {}
        self.by_node: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.fetches = 0
        self.pages: set[str] = set()
        self.short: list[tuple[str, float, float]] = []
        """Host, time and length of gaps that were too short."""
        self.blind_short = 0
        """Short gaps beside a send of a node that was stopped between its last look and it."""
        self.crowded: list[tuple[str, float, int]] = []
        self.arrivals: list[Arrival] | None = [] if keep else None

    def fetch(self, page: str, host: str, at: float, node: str, job: str, blind: bool) -> Answer:
        """A request arrives. `blind`: its sender was stopped since it looked at its turn."""
        seen = self.hosts.get(host)
        if seen is None:
            seen = self.hosts[host] = Seen(first=at)
        gap = at - seen.last
        if gap < self.gap_ms - 5:
            if blind or seen.last_blind:
                self.blind_short += 1
            else:
                self.short.append((host, at, gap))
        seen.last, seen.last_blind = at, blind
        ends = seen.ends
        while ends and ends[0] <= at:
            heapq.heappop(ends)
        answer = self.site(host, at)
        heapq.heappush(ends, at + answer.ms)
        if len(ends) > self.most:
            self.crowded.append((host, at, len(ends)))
        seen.fetches += 1
        self.fetches += 1
        self.pages.add(page)
        self.by_node[node] += 1
        self.pairs[host, node] += 1
        if self.arrivals is not None:
            self.arrivals.append(Arrival(at, host, node, job))
        return answer

    def times(self, host: str) -> list[float]:
        """When fetches of the host arrived; needs `keep`."""
        assert self.arrivals is not None
        return [each.at for each in self.arrivals if each.host == host]


def rate(times: list[float], begin: float, end: float) -> float:
    """Arrivals a second from `begin` to `end` (ms)."""
    return sum(begin <= at < end for at in times) * 1000 / (end - begin)


def jain(numbers: list[int]) -> float:
    """Jain's index: 1 when all are equal, 1/n when one has everything."""
    return sum(numbers) ** 2 / (len(numbers) * sum(n * n for n in numbers))


class Capacity:
    """A host that serves so many pages a second; what comes beyond waits, or is refused.

    `per_second` may be changed at any time. Pages are served one after the other; who would have to
    wait for longer than `patience_ms` is refused at once with 429.
    """

    def __init__(
        self, rng: random.Random, per_second: float, *, base_ms: float, patience_ms: float
    ) -> None:
        self.per_second = per_second
        self._rng = rng
        self._base_ms = base_ms
        self._patience_ms = patience_ms
        self._free_at = 0.0

    def __call__(self, host: str, at: float) -> Answer:
        waits = max(0.0, self._free_at - at)
        if waits > self._patience_ms:
            return Answer(self._rng.uniform(5, 20), healthy=False, refused=True)
        self._free_at = at + waits + 1000 / self.per_second
        return Answer(waits + self._base_ms * self._rng.uniform(0.8, 1.3))
