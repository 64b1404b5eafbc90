"""What a person sees while a crawl runs: a live line on a terminal, log lines elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from orbweb.errors import OrbwebError
from orbweb.frontier.base import Status
from orbweb.log import ROOT, event, get_logger
from orbweb.model.reasons import Reason

if TYPE_CHECKING:
    from rich.live import Live

    from orbweb.engine.engine import Engine

LIVE_SECONDS = 0.5
SHOWN_REASONS = 3

LIMITS = {
    "store": "the store does not answer",
    "sink": "pipelines",
    "concurrency": "CONCURRENT_REQUESTS",
    "proxies": "no free proxy",
    "hosts": "host limits",
    "retries": "waiting retries",
    "seeding": "start_requests",
}
SKIPPED = frozenset(
    str(reason)
    for reason in Reason
    if reason.phase == "not taken" or reason in (Reason.CONTENT_TYPE, Reason.CANCELLED)
)
"""Reasons of links and pages that were left out on purpose."""

logger = get_logger("progress")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one instant. All counts are of the whole run; the rate may be of one node."""

    elapsed_seconds: float
    pages: int
    pages_per_second: float
    items: int
    waiting: int
    failed: int
    skipped: dict[str, int] = field(default_factory=dict)
    limited_by: str = ""
    """One of the keys of `LIMITS`, or nothing worth to say."""
    seeding_waits: bool = False
    """start_requests pauses until the queue is shorter."""


Look = Callable[[], Awaitable[Snapshot]]


def on_terminal() -> bool:
    """Whether a line that moves makes sense on stderr."""
    return (
        sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


@asynccontextmanager
async def showing(look: Look, *, live: bool, interval_seconds: float) -> AsyncIterator[None]:
    """Show a run for as long as the block lasts.

    `interval_seconds` is the time between two log lines when it is not live; 0 = none.
    """
    if not live and not interval_seconds:
        yield
        return
    task = asyncio.create_task(_show_live(look) if live else _show_lines(look, interval_seconds))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def engine_look(engine: Engine, status: Callable[[], Awaitable[Status]]) -> Look:
    """A look at a run through one of its nodes; counts of the run come from the store."""
    known: Status | None = None

    async def look() -> Snapshot:
        nonlocal known
        progress = engine.progress()
        if progress.limited_by != "store":
            try:
                known = await status()
            except OrbwebError:
                logger.debug("the store does not say how far the run is")
        pages, items, failed, reasons = progress.pages, progress.items, progress.failed, {}
        limited_by = progress.limited_by
        if known is not None:
            limited_by = limit_of(limited_by, known)
            pages, items, failed = known.reasons.get(Reason.DONE, 0), known.items, known.dead
            reasons = known.reasons
        return Snapshot(
            elapsed_seconds=progress.elapsed_seconds,
            pages=pages,
            pages_per_second=progress.pages_per_second,
            items=items,
            waiting=max(0, progress.pending - progress.held),
            failed=failed,
            skipped=left_out({**progress.skipped, **reasons}),
            limited_by=limited_by,
            seeding_waits=progress.seeding_waits,
        )

    return look


def limit_of(said: str, counts: Status) -> str:
    """What holds a run back: a node cannot tell the limit of a host from retries that wait."""
    return "retries" if said == "hosts" and counts.delayed and not counts.queued else said


def left_out(reasons: dict[str, int]) -> dict[str, int]:
    """Of counts by reason, those that say that something was left out on purpose."""
    return {str(name): count for name, count in reasons.items() if count and name in SKIPPED}


def reasons_text(reasons: dict[str, int], most: int = SHOWN_REASONS) -> str:
    """`31 (duplicate_request 28, robots_disallowed 3)`, the most frequent first."""
    if not reasons:
        return "0"
    ordered = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    named = ", ".join(f"{name} {count}" for name, count in ordered[:most])
    more = ", …" if len(ordered) > most else ""
    return f"{sum(reasons.values())} ({named}{more})"


def line(now: Snapshot) -> str:
    """The progress line."""
    minutes, seconds = divmod(int(now.elapsed_seconds), 60)
    parts = [
        f"{minutes:02}:{seconds:02}",
        f"pages {now.pages}",
        f"{now.pages_per_second:.1f}/s",
        f"items {now.items}",
        f"queue {now.waiting}",
        f"failed {now.failed}",
    ]
    if now.limited_by in LIMITS:
        parts.append(f"limited by: {LIMITS[now.limited_by]}")
    if now.seeding_waits:
        parts.append("start_requests waits: MAX_PENDING")
    parts.append(f"skipped {reasons_text(now.skipped)}")
    return "  ".join(parts)


class LiveLine:
    """One line at the bottom of the terminal; log lines go above it."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live

        class Unfolding(Console):
            """Leaves it to the terminal to fold long log lines, so that URLs stay whole."""

            def print(self, *args: Any, **kwargs: Any) -> None:
                super().print(*args, **{"soft_wrap": True, **kwargs})

        before = sys.stderr
        self._live = Live(console=Unfolding(stderr=True), auto_refresh=False, transient=True)
        self._live.start()
        _move_logs(before)
        return self

    def show(self, now: Snapshot) -> None:
        """Put a snapshot into the line."""
        self.say(line(now))

    def say(self, words: str) -> None:
        """Put words into the line."""
        from rich.text import Text

        if self._live is not None:
            self._live.update(Text(words, overflow="ellipsis", no_wrap=True), refresh=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            during = sys.stderr
            self._live.stop()
            _move_logs(during)


def _move_logs(before: object) -> None:
    """Let log lines that went to `before` go to what stderr is now."""
    for handler in logging.getLogger(ROOT).handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is before:
            handler.setStream(sys.stderr)


async def _show_live(look: Look) -> None:
    with LiveLine() as shown:
        while True:
            shown.show(await look())
            await asyncio.sleep(LIVE_SECONDS)


async def _show_lines(look: Look, interval_seconds: float) -> None:
    while True:
        await asyncio.sleep(interval_seconds)
        now = await look()
        event(
            logger,
            "progress",
            pages=now.pages,
            rate=round(now.pages_per_second, 1),
            items=now.items,
            queue=now.waiting,
            failed=now.failed,
            skipped=reasons_text(now.skipped),
            limited_by=now.limited_by,
            seeding="waits" if now.seeding_waits else "",
        )
