"""What a frontier in memory holds: hosts, runs, pending requests, and the clocks they go by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from orbweb.frontier.base import NewRequest, RunConfig, RunState, new_epoch
from orbweb.frontier.memory_hosts import NO_LIMIT, Hosts
from orbweb.frontier.memory_seen import Seen
from orbweb.frontier.memory_tasks import TaskBook
from orbweb.frontier.memory_timed import Clock, TimedSet


class Place(Enum):
    """Where a pending request stands."""

    IDLE = "idle"  # pseudo-requests that nobody holds
    QUEUED = "queued"
    LEASED = "leased"
    DELAYED = "delayed"


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
    node: str = ""


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
        self.loads: dict[str, int] = {}
        self.dealt_to: list[str] = []
        self.deal: list[int] = []
        self.heavy: list[str] = []
        self.claims: dict[str, tuple[int, list[str]]] = {}
        self.nodes = TimedSet()
        self.beats: dict[str, tuple[int, bytes]] = {}
        self.dead: dict[str, Buried] = {}
        self.responses: dict[str, bytes] = {}
        self.reasons: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()
        self.own_seen: Seen | None = None
        self.seen = Seen(self.config.seen)
        self.outbox: dict[NewRequest, int] = {}
        self.of_tasks = TaskBook()
        self.shards = 1
        self.laid: bool | None = None
        """Whether every shard has its part; None where there are no others."""
        self.seq = 0
        self.cursor = 0
        self.refused: Counter[str] = Counter()
        """Seeds that were not taken, by reason."""
        self.stopping = False
        self.paused = False
        self.tuned = 0
        """Version of the live values that hold."""
        self.started = wall
        self.finished = 0

    @property
    def pending(self) -> int:
        return len(self.tasks) + len(self.outbox)

    @property
    def version(self) -> int | None:
        """What tells that something entered; None for a run of one shard, which need not ask."""
        return self.seq if self.shards > 1 else None

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
    hosts: Hosts = field(default_factory=Hosts)
    runs: dict[str, Run] = field(default_factory=dict)
    """By base."""
    current: dict[tuple[str, str], str] = field(default_factory=dict)
    """(job, run) to epoch."""
    job_seen: dict[str, Seen] = field(default_factory=dict)
    task_lists: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    """Names and JSON of tasks that wait, by the key of their list."""
    job_shards: dict[str, int] = field(default_factory=dict)
    """Over how many shards that is spread."""

    def forget(self, base: str) -> None:
        """Take a run out of use."""
        self.runs.pop(base, None)
        self.hosts.pace.pop(base, None)
