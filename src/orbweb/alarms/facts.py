"""What is known of the fleet at one instant: all that the rules look at, as values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def number_of(said: Any) -> float:
    """What a process said as a number, 0 for all else: nobody's words may end the watch."""
    is_number = isinstance(said, int | float) and math.isfinite(said)
    return float(said) if is_number else 0.0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A worker process: how long it has been silent, and what it said last."""

    node: str
    silent_ms: int
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it runs, for people."""
        return f"{self.said.get('host', '?')}:{self.said.get('pid', '?')}"

    @property
    def ended(self) -> bool:
        """It said good-bye."""
        return bool(self.said.get("ended"))

    @property
    def age_ms(self) -> float:
        """How long ago it began."""
        return self.number("elapsed") * 1000 + self.silent_ms

    def number(self, name: str) -> float:
        """A number that it said; 0 when it said none."""
        return number_of(self.said.get(name))


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run, its counts and its nodes."""

    job: str
    run: str
    epoch: str = ""
    done: bool = False
    """It has come to its end."""
    paused: bool = False
    stopping: bool = False
    waiting: int = 0
    """Requests that are queued or wait for another attempt."""
    leased: int = 0
    pages: int = 0
    """Good pages, or tasks, so far."""
    dead: int = 0
    retried: int = 0
    started_at_ms: int = 0
    finished_at_ms: int = 0
    nodes: tuple[NodeFacts, ...] = ()
    fill: float = 0.0
    """How full the filter of seen requests is."""
    duplicates: float = 0.0
    checked: int = 0
    """Items over which that rate was counted."""
    missing: tuple[str, ...] = ()
    """Sentences on fields that lack values unlike in earlier runs."""
    few: str = ""
    """A sentence on a finished run that has far fewer items than earlier ones."""

    @property
    def owner(self) -> str:
        """Whose spider it is (`ALERTS_OWNER`)."""
        return next((str(node.said["owner"]) for node in self.nodes if node.said.get("owner")), "")


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    """A process of `orbweb consume`."""

    id: str
    silent_ms: int
    said: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """When the next batch of a job is due, as its master said last."""

    job: str
    due_ms: int
    told_ms: int
    cause: str = ""
    """Why a batch that is due is not opened."""


@dataclass(frozen=True, slots=True)
class IdleFacts:
    """A process came to a run that was finished already, so it did nothing."""

    job: str
    run: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class LostFacts:
    """A node found that its run is not in the store any more."""

    job: str
    run: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Facts:
    """The fleet at one instant of the store's clock."""

    at_ms: int
    runs: tuple[RunFacts, ...] = ()
    consumers: tuple[ConsumerFacts, ...] = ()
    schedules: tuple[ScheduleFacts, ...] = ()
    idle: tuple[IdleFacts, ...] = ()
    lost: tuple[LostFacts, ...] = ()
    used_memory: int = 0
    max_memory: int = 0
    config_version: int = 0
    """Newest version of the live values; 0 = there are none."""
