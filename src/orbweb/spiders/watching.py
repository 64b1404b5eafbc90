"""The watch over alarms beside a crawl, on a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from orbweb.alarms.watch import LAST_SECONDS, Watch
from orbweb.engine.report import RunReport
from orbweb.engine.threads import loop_factory
from orbweb.errors import StoreUnavailable
from orbweb.frontier.admin import Admin
from orbweb.frontier.lost import tell_lost
from orbweb.frontier.notes import NoteBook, NoteKind
from orbweb.frontier.servers import Servers
from orbweb.log import get_logger
from orbweb.spiders.build_watch import Current, build_watch, wanted_channels

FIRST_SECONDS = 1.0
"""A crawl that is over sooner needs no watch of its own."""

STOP_SECONDS = LAST_SECONDS + 3.0

log = get_logger("orbweb.alarms")


class NodeWatch:
    """The watch of one node. It begins a little later, so that a short crawl does without."""

    def __init__(self, current: Current, servers: Servers) -> None:
        """Raises `ConfigError` for channels and routes that are wrong."""
        settings = current()
        self._channels = wanted_channels(settings)
        self._current = current
        self._servers = servers
        self._notes = NoteBook(servers.of_shard(0), settings["REDIS_KEY_PREFIX"])
        self._thread = WatchThread(self._main)

    def start(self) -> None:
        """Begin to watch, beside what the caller does."""
        self._thread.start()

    async def end(self, report: RunReport | None = None) -> None:
        """Have a last look, tell what is due, and end; takes seconds only if channels are slow."""
        nothing = report is not None and report.exit_code and not report.pages
        if report is not None and report.state == "joined_finished":
            with suppress(StoreUnavailable):
                identity = report.identity
                said = {"run": identity.get("run_id", "")}
                await self._notes.leave(NoteKind.IDLE, identity.get("redis_key", ""), said)
            nothing = True
        lost = report is not None and report.run_lost
        await self._thread.stop(has_news=bool(nothing or lost))

    async def _main(self, stopped: asyncio.Event, has_news: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await stopped.wait()
            if not has_news():
                return
        servers = self._servers.again()
        try:
            watch = build_watch(self._current, servers, self._channels)
            passing = asyncio.create_task(_pass_on(stopped, watch))
            try:
                await watch.run()
            finally:
                passing.cancel()
        finally:
            await servers.aclose()


async def _pass_on(stopped: asyncio.Event, watch: Watch) -> None:
    await stopped.wait()
    watch.stop()


class WatchThread:
    """Runs a coroutine on a thread with a loop of its own, until it is told to stop."""

    def __init__(
        self, run: Callable[[asyncio.Event, Callable[[], bool]], Coroutine[Any, Any, None]]
    ) -> None:
        """`run(stopped, has_news)`: an event, and whether something is to be told at the end."""
        self._run = run
        self._thread = threading.Thread(target=self._main, name="orbweb-alarms", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._ready = threading.Event()
        self._has_news = False

    def start(self) -> None:
        self._thread.start()

    async def stop(self, *, has_news: bool) -> None:
        """Let it come to its end; gives up after some seconds."""
        if not self._thread.is_alive():
            return
        self._has_news = has_news
        self._ready.wait(1.0)
        if self._loop is not None and self._stopped is not None:
            with suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._stopped.set)
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            try:
                runner.run(self._body())
            except Exception:
                log.exception("the watch over alarms failed: this node no longer takes part")

    async def _body(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._run(self._stopped, lambda: self._has_news)


async def note_lost(
    current: Current, servers: Servers | None, report: RunReport, epoch: str
) -> None:
    """Tell whoever judges that the node's run is gone, if it is. See `tell_lost`."""
    settings, identity = current(), report.identity
    if servers is None or not report.run_lost or not settings["WARNING_ENABLE"]:
        return
    prefix = settings["REDIS_KEY_PREFIX"]
    admin, notes = Admin(servers, prefix), NoteBook(servers.of_shard(0), prefix)
    job, run = identity.get("redis_key", ""), identity.get("run_id", "")
    await tell_lost(admin, notes, job, run, epoch)


CHANNELS = (
    *("WARNING_FEISHU_WEBHOOK", "WARNING_DINGTALK_WEBHOOK", "WARNING_WECHAT_WEBHOOK"),
    *("WARNING_EMAIL", "ALERTS_CHANNELS", "ALERTS_HEARTBEAT_URL"),
)
"""Settings that name somebody who is to be told."""


def say_without_store(settings: Mapping[str, Any]) -> None:
    """Say that nobody will be told, where somebody is to be: a crawl in memory has no judge."""
    if named := [name for name in CHANNELS if settings[name]]:
        log.warning(
            "%s: an AirSpider has no store, so there are no alarms; a Spider has them. Its exit "
            "code and --gate say how it went",
            ", ".join(named),
        )


@asynccontextmanager
async def watching(current: Current, servers: Servers | None) -> AsyncIterator[NodeWatch | None]:
    """A watch for as long as the block lasts; None without a store or with WARNING_ENABLE off."""
    if servers is None or not current()["WARNING_ENABLE"]:
        yield None
        return
    watch = NodeWatch(current, servers)
    watch.start()
    try:
        yield watch
    finally:
        await watch.end()
