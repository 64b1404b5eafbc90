"""Assembly of the watch over alarms: beside a crawl, on a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from orbweb.alarms.channels.build import channels_of
from orbweb.alarms.desk import ROLE, silence_of
from orbweb.alarms.gather import FleetReader
from orbweb.alarms.heartbeat import Heartbeat
from orbweb.alarms.notices import Silence
from orbweb.alarms.policy import policy_of
from orbweb.alarms.post import Post
from orbweb.alarms.rules import limits_of
from orbweb.alarms.watch import LAST_SECONDS, Watch, WatchTools
from orbweb.config.check import Switches, checked
from orbweb.config.resolve import Identity, StoreDocument, resolve
from orbweb.config.values import LiveValues
from orbweb.engine.report import RunReport
from orbweb.engine.threads import loop_factory
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.configbook import ConfigBook
from orbweb.frontier.deliveries import Deliveries
from orbweb.frontier.notes import NoteBook, NoteKind
from orbweb.frontier.roles import Role
from orbweb.frontier.servers import Servers
from orbweb.log import get_logger
from orbweb.settings import DECLARATIONS, Settings

STANDING_RANK, NODE_RANK, MUTE_RANK = 2, 1, 0

FIRST_SECONDS = 1.0
"""A crawl that is over sooner needs no watch of its own."""

STOP_SECONDS = LAST_SECONDS + 3.0

log = get_logger("orbweb.alarms")


Current = Callable[[], Mapping[str, Any]]
"""The settings as they hold now: thresholds and waits are hot."""


def build_watch(current: Current, servers: Servers) -> Watch:
    """The watch of a node over the fleet of these settings. Raises `ConfigError`."""
    book = ConfigBook(servers.of_shard(0), current()["REDIS_KEY_PREFIX"])
    return _build_watch(current, servers, book.version, standing=False)


def build_standing_watch(settings: Settings, servers: Servers) -> Watch:
    """The watch of a process that does nothing else: it takes the role from nodes.

    Raises `ConfigError`. Live values that hold for all count here too.
    """
    book = ConfigBook(servers.of_shard(0), settings["REDIS_KEY_PREFIX"])
    live = LiveSettings(settings, book)
    return _build_watch(live.current, servers, live.refresh, standing=True)


def _build_watch(
    current: Current,
    servers: Servers,
    config_version: Callable[[], Awaitable[int]],
    *,
    standing: bool,
) -> Watch:
    settings = current()
    channels = channels_of(settings)
    names = [channel.name for channel in channels]
    policy_of(settings, names)
    client, prefix = servers.of_shard(0), settings["REDIS_KEY_PREFIX"]
    notes = NoteBook(client, prefix)
    reader = FleetReader(
        servers,
        prefix,
        shards=settings["FRONTIER_SHARDS"],
        ended_ms=lambda: max(1, round(current()["ALERTS_NOTHING_DONE"] * 1000)),
        baseline_runs=lambda: int(current()["QUALITY_BASELINE_RUNS"]),
        config_version=config_version,
    )
    url = settings["ALERTS_HEARTBEAT_URL"]
    heartbeat = Heartbeat(url, settings["ALERTS_HEARTBEAT_INTERVAL"], time.monotonic)

    async def silences() -> list[Silence]:
        return [silence_of(note) for note in await notes.read(NoteKind.SILENCE)]

    return Watch(
        WatchTools(
            seat=Role(client, prefix, ROLE),
            look=reader.look,
            silences=silences,
            limits=lambda: limits_of(current()),
            policy=lambda: policy_of(current(), names),
            post=Post(
                channels,
                settings["ALERTS_LANGUAGE"],
                count=Deliveries(client, prefix).count,
            ),
            who=uuid.uuid4().hex,
            rank=STANDING_RANK if standing else NODE_RANK if channels else MUTE_RANK,
            interval_seconds=settings["ALERTS_INTERVAL"],
            calm_ms=lambda: round(current()["ALERTS_CALM"] * 1000),
            clock=time.monotonic,
            wall_ms=lambda: int(time.time() * 1000),
            heartbeat=heartbeat if url else None,
        )
    )


class LiveSettings:
    """Settings of a process that is no node: the project's, and live values that hold for all."""

    def __init__(self, settings: Settings, book: ConfigBook) -> None:
        self._base = settings
        self._now = settings
        self._book = book
        self._version = 0

    def current(self) -> Settings:
        """The settings as they held at the last `refresh`."""
        return self._now

    async def refresh(self) -> int:
        """Take what has changed; returns the version of it. May raise `StoreUnavailable`.

        A value that cannot be read leaves the project's in force.
        """
        version = await self._book.version()
        if version == self._version:
            return version
        stored = await self._book.read()
        live = LiveValues.unpack(stored.values)
        document = StoreDocument({}, str(stored.version), "the store", live, stored.at_ms)
        values, origins = {}, {}
        for name, found in resolve([document], Identity(), stored.at_ms).values.items():
            if name not in DECLARATIONS:
                continue
            try:
                value = checked(found.place, found.value, found.origin, Switches(), textual=False)
            except ConfigError as error:
                log.error("live value %s is not taken here: %s", found.place, error)
                continue
            values[name], origins[name] = value, found.origin
        self._now, self._version = self._base.changed(values, origins), version
        return version


class NodeWatch:
    """The watch of one node. It begins a little later, so that a short crawl does without."""

    def __init__(self, current: Current, servers: Servers) -> None:
        """Raises `ConfigError` for channels and routes that are wrong."""
        settings = current()
        policy_of(settings, [channel.name for channel in channels_of(settings)])
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
        await self._thread.stop(hurry=bool(nothing))

    async def _main(self, stopped: asyncio.Event, hurry: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await stopped.wait()
            if not hurry():
                return
        servers = self._servers.again()
        try:
            watch = build_watch(self._current, servers)
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
        """`run(stopped, hurry)`: an event, and whether something is to be told at the end."""
        self._run = run
        self._thread = threading.Thread(target=self._main, name="orbweb-alarms", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._ready = threading.Event()
        self._hurry = False

    def start(self) -> None:
        self._thread.start()

    async def stop(self, *, hurry: bool) -> None:
        """Let it come to its end; gives up after some seconds."""
        if not self._thread.is_alive():
            return
        self._hurry = hurry
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
        await self._run(self._stopped, lambda: self._hurry)


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
