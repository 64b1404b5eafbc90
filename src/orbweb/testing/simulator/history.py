"""What happened in a simulated run: the only thing that the checker sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orbweb.testing.simulator.plan import Plan
from orbweb.testing.simulator.site import SiteMap

POISON = "poison"
SILENT = frozenset({POISON, "connection", "timeout"})
"""A page that died for one of these never gave an answer that was taken."""


class Event(NamedTuple):
    """One fact. `subject` is a page for fetches and items, else what the kind says."""

    at_ms: int
    kind: str
    node: str = ""
    subject: str = ""
    detail: Any = None


class Start(NamedTuple):
    """Detail of a `start` event: a request reached the site."""

    token: str
    current: bool
    """The store gave the lease to this token at that instant."""
    overlap: int
    """Fetches of this host that go on with a current token, this one included."""


class Stored(NamedTuple):
    """Detail of a `stored` event: a row that was not there before."""

    key: str
    number: int


class Told(NamedTuple):
    """Detail of a `told` event: the end of a task was handed out to be told."""

    reason: str
    left: int
    """Requests of the task that were pending at that instant."""
    dead: int
    """Dead letters of it that there were."""


class Exit(NamedTuple):
    """Detail of an `exit` event."""

    code: int
    state: str
    pending: int
    """Requests that were pending in the store at that instant."""
    joined_done: bool
    """The run was done when the node came."""


@dataclass(slots=True)
class DeadPage:
    """A dead letter of the store at the end."""

    reason: str
    error: str
    tries: int


@dataclass(slots=True)
class Record:
    """The history of one run, and what is left at its end."""

    plan: Plan
    site: SiteMap
    events: list[Event] = field(default_factory=list)
    dead: dict[str, DeadPage] = field(default_factory=dict)
    """By page."""
    ended: bool = False
    """All nodes came to their end."""
    state: str = ""
    pending: int = 0
    reaped: int = 0
    dead_errands: set[str] = field(default_factory=set)
    """Ids of tasks, and of ends of tasks, that are dead letters of the store at the end."""
    rows: list[str] = field(default_factory=list)
    """How the table says that each task has ended."""
    items: int = 0
    """The store's count of stored items."""
    end_ms: int = 0

    def of_kind(self, kind: str) -> Iterator[Event]:
        return (event for event in self.events if event.kind == kind)

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)
