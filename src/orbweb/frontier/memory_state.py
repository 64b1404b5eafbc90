"""What a frontier in memory holds: hosts, runs, pending requests, and the clocks they go by."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from orbweb.frontier.base import NewRequest, RunConfig, RunState, new_epoch

NO_LIMIT = 1_000_000


class Place(Enum):
    """Where a pending request stands."""

    IDLE = "idle"  # pseudo-requests that nobody holds
    QUEUED = "queued"
    LEASED = "leased"
    DELAYED = "delayed"


class Clock:
    """A clock that never goes back and moves at most `step` ms a look (`tick` in `shard.lua`)."""

    def __init__(self) -> None:
        self.wall: int | None = None
        self.log = 0

    def tick(self, wall: int, step: int) -> int:
        passed = wall - (wall if self.wall is None else self.wall)
        self.wall = wall
        self.log += max(0, min(passed, step))
        return self.log


class TimedSet:
    """Names with a time each, read in the order of time, then name (a sorted set)."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __contains__(self, name: str) -> bool:
        return name in self.at

    def __len__(self) -> int:
        return len(self.at)

    def set(self, name: str, at: int) -> None:
        if self.at.get(name) != at:
            self.at[name] = at
            heapq.heappush(self._heap, (at, name))

    def drop(self, name: str) -> bool:
        return self.at.pop(name, None) is not None

    def _settle(self) -> None:
        while self._heap and self.at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    def first(self) -> int | None:
        """The earliest time."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def due(self, now: int, limit: int) -> list[str]:
        """Up to `limit` names whose time has come, the earliest first. They stay in the set."""
        found: list[tuple[int, str]] = []
        seen: set[tuple[int, str]] = set()
        while len(found) < limit:
            self._settle()
            if not self._heap or self._heap[0][0] > now:
                break
            entry = heapq.heappop(self._heap)
            if entry not in seen:
                seen.add(entry)
                found.append(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [name for _, name in found]


@dataclass(slots=True)
class Task:
    """A pending request."""

    host: str
    priority: int
    payload: Any
    retries: int = 0
    place: Place = Place.QUEUED
    order: int = 0
    token: str = ""


@dataclass(slots=True)
class Buried:
    """A dead letter."""

    task: Task
    reason: str
    error: str
    tries: int
    at_ms: int


class Run:
    """One incarnation of a run."""

    def __init__(self, base: str, wall: int) -> None:
        self.base = base
        self.state = RunState.RUNNING
        self.clock = Clock()
        self.config = RunConfig()
        self.tasks: dict[str, Task] = {}
        self.queues: dict[str, list[tuple[int, int, str]]] = {}
        self.ready = TimedSet()
        self.delayed = TimedSet()
        self.deadline = TimedSet()
        self.expired: dict[str, int] = {}
        self.emitted: dict[str, tuple[str, int]] = {}
        self.visited: dict[int, str] = {}
        self.visits: dict[str, list[int]] = {}
        self.parked: dict[int, NewRequest] = {}
        self.hungry: dict[str, int] = {}
        self.claims: dict[str, tuple[int, list[str]]] = {}
        self.nodes = TimedSet()
        self.beats: dict[str, tuple[int, bytes]] = {}
        self.dead: dict[str, Buried] = {}
        self.reasons: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()
        self.own_seen: set[int] = set()
        self.seen = self.own_seen
        self.outbox: dict[NewRequest, int] = {}
        self.shards = 1
        self.laid = True
        self.seq = 0
        self.cursor = 0
        self.stopping = False
        self.started = wall
        self.finished = 0

    @property
    def pending(self) -> int:
        return len(self.tasks) + len(self.outbox)

    @property
    def delay(self) -> int:
        return self.config.host_delay_ms

    @property
    def concurrency(self) -> int:
        return self.config.host_concurrency or NO_LIMIT


@dataclass(slots=True)
class MemoryShard:
    """What all runs of one process share: the hosts' politeness, and which runs there are.

    `now_ms` is the server's clock.
    """

    now_ms: Callable[[], int]
    new_epoch: Callable[[], str] = new_epoch
    clock: Clock = field(default_factory=Clock)
    slots: dict[str, dict[str, int]] = field(default_factory=dict)
    next_allowed: TimedSet = field(default_factory=TimedSet)
    waiting: dict[str, dict[str, int]] = field(default_factory=dict)
    """By host: run base to when it last found the host full."""
    runs: dict[str, Run] = field(default_factory=dict)
    """By base."""
    current: dict[tuple[str, str], str] = field(default_factory=dict)
    """(job, run) to epoch."""
    job_seen: dict[str, set[int]] = field(default_factory=dict)
    job_shards: dict[str, int] = field(default_factory=dict)
    """Over how many shards that is spread."""
