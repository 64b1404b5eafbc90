"""What the engine is told, and the world that it runs in: plain values and injected services."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from orbweb.engine.keeper import Connect
from orbweb.frontier.base import RunConfig
from orbweb.model.request import Request

T = TypeVar("T")


class RunBlocking(Protocol):
    """Runs a function that may block, off the event loop, and gives its result."""

    def __call__(self, func: Callable[..., T], /, *args: Any) -> Awaitable[T]: ...


class Background(Protocol):
    """Where the keeper runs: a thread with a loop of its own, or a task in a simulation."""

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin to run the coroutine."""

    async def stop(self) -> None:
        """Cancel it and wait until it has ended."""


class Codec(Protocol):
    """How a request travels through the frontier."""

    def encode(self, request: Request) -> Any:
        """The payload. Raises `UnserialisableError` when the request cannot travel."""

    def decode(self, payload: Any) -> Request:
        """A request of its own. Raises `UndecodableError` (an `OrbwebError`) for garbage."""


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside the engine that differs between production and simulation.

    `clock` gives monotonic seconds; the engine waits only by its event loop's timers.
    """

    clock: Callable[[], float]
    rng: random.Random
    run_blocking: RunBlocking
    background: Background
    connect: Connect
    revive: Callable[[], Awaitable[None]] | None = None
    """Starts a store of our own again when it does not answer. Raises `StoreUnavailable`."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a node gets tasks."""

    list_key: str = ""
    """The list in the store from which they come; empty: the spider has a source of its own."""
    poll_seconds: float = 2.0
    batch: int = 100
    exhaust_polls: int = 3
    shares_dedup: bool = False
    """What one task has crawled is seen for the others."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of one engine. Times in seconds; 0 means no limit where a limit is named."""

    node: str
    spider: str
    run: RunConfig
    concurrency: int = 16
    max_held: int = 64
    linger_seconds: float = 0.004
    idle_poll_seconds: float = 0.25
    heartbeat_seconds: float = 3.0
    watchdog_seconds: float = 300.0
    max_hold_seconds: float = 3600.0
    graceful_seconds: float = 4.0
    max_runtime_seconds: float = 0.0
    stop_after_pages: int = 0
    retry_interval_seconds: float = 1.0
    retry_backoff: float = 2.0
    retry_longest_seconds: float = 300.0
    depth_limit: int = 0
    url_length_limit: int = 8192
    allowed_domains: frozenset[str] = frozenset()
    drop_query_params: frozenset[str] = frozenset()
    exclude_urls: tuple[str, ...] = ()
    """Regular expressions: what any of them finds something in is left out."""
    include_urls: tuple[str, ...] = ()
    """The same: what none of them finds something in is left out, if there are any."""
    default_table: str = "items"
    filter_items: bool = False
    """Leave out items whose `__unique_key__` is stored already."""
    count_items: bool = True
    """Count fields and repetitions of items."""
    seed_batch: int = 200
    seed_pending_limit: int = 0
    """Seeding pauses while more requests than this are pending."""
    failed_response_bytes: int = 0
    """So much of the last body is kept with a request that is given up; 0 = nothing."""
    tasks: TaskOptions | None = None
    """The spider works through tasks instead of start requests."""

    @property
    def lease_seconds(self) -> float:
        return self.run.lease_ms / 1000

    @property
    def calm_seconds(self) -> float:
        """The longest gap that the settings give a host which nothing is known of."""
        run = self.run
        gaps = [
            run.host_delay_ms,
            run.autothrottle_start_ms if run.autothrottle else 0,
            run.unapproved_delay_ms if run.require_approval else 0,
        ]
        return max(gaps) / 1000

    @property
    def margin_seconds(self) -> float:
        """No fetch starts this close to the end of a lease (frontier protocol, a.5)."""
        return self.lease_seconds / 8

    @property
    def beat_seconds(self) -> float:
        return min(self.heartbeat_seconds, self.lease_seconds / 10)
