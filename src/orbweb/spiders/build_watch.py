"""A watch over alarms, put together: of a node, and of a process that does nothing else."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from orbweb.alarms.channels.base import Channel
from orbweb.alarms.channels.build import channels_of
from orbweb.alarms.desk import ROLE, silence_of
from orbweb.alarms.gather import FleetReader
from orbweb.alarms.heartbeat import Heartbeat
from orbweb.alarms.notices import Silence
from orbweb.alarms.policy import policy_of
from orbweb.alarms.post import Post
from orbweb.alarms.rules import limits_of
from orbweb.alarms.watch import Watch, WatchTools
from orbweb.config.resolve import Identity, StoreDocument, resolve
from orbweb.config.values import LiveValues
from orbweb.frontier.configbook import ConfigBook
from orbweb.frontier.deliveries import Deliveries
from orbweb.frontier.notes import NoteBook, NoteKind
from orbweb.frontier.roles import Role
from orbweb.frontier.servers import Servers
from orbweb.log import get_logger
from orbweb.settings import DECLARATIONS, Settings
from orbweb.spiders.live_judge import LiveJudge
from orbweb.spiders.live_now import Now

STANDING_RANK, NODE_RANK, MUTE_RANK = 2, 1, 0

log = get_logger("orbweb.alarms")

Current = Callable[[], Mapping[str, Any]]
"""The settings as they hold now: thresholds and waits are hot."""


def wanted_channels(settings: Mapping[str, Any]) -> list[Channel]:
    """The channels of these settings, whose routes are right too. Raises `ConfigError`."""
    channels = channels_of(settings)
    policy_of(settings, [channel.name for channel in channels])
    return channels


def build_watch(current: Current, servers: Servers, channels: Sequence[Channel]) -> Watch:
    """The watch of a node over the fleet of these settings; `channels`: `wanted_channels`."""
    book = ConfigBook(servers.of_shard(0), current()["REDIS_KEY_PREFIX"])
    return _build_watch(current, servers, channels, book.version, standing=False)


def build_standing_watch(
    settings: Settings, servers: Servers, channels: Sequence[Channel]
) -> Watch:
    """The watch of a process that does nothing else: it takes the role from nodes.

    Live values that hold for all count here too.
    """
    book = ConfigBook(servers.of_shard(0), settings["REDIS_KEY_PREFIX"])
    live = LiveSettings(settings, book)
    return _build_watch(live.current, servers, channels, live.refresh, standing=True)


def _build_watch(
    current: Current,
    servers: Servers,
    channels: Sequence[Channel],
    config_version: Callable[[], Awaitable[int]],
    *,
    standing: bool,
) -> Watch:
    settings = current()
    names = [channel.name for channel in channels]
    client, prefix = servers.of_shard(0), settings["REDIS_KEY_PREFIX"]
    notes = NoteBook(client, prefix)
    reader = FleetReader(
        servers,
        prefix,
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
        self._ends_ms = 0
        """When the first of the values that hold ends, by the store's clock; 0 = none does."""
        self._ahead_ms = 0.0

    def current(self) -> Settings:
        """The settings as they held at the last `refresh`."""
        return self._now

    async def refresh(self) -> int:
        """Take what has changed; returns the version of it. May raise `StoreUnavailable`.

        A value that cannot be read leaves the project's in force.
        """
        version = await self._book.version()
        now_ms = time.monotonic() * 1000 + self._ahead_ms
        if version == self._version and not 0 < self._ends_ms <= now_ms:
            return version
        stored = await self._book.read()
        live = LiveValues.unpack(stored.values)
        self._ahead_ms = stored.at_ms - time.monotonic() * 1000
        self._ends_ms = live.ends_ms(stored.at_ms)
        document = StoreDocument({}, str(stored.version), "the store", live, stored.at_ms)
        found = resolve([document], Identity(), stored.at_ms)
        before = Now(self._base, {}, {}, {}, 0)
        now, said = LiveJudge("", {}, self._base, before, frozenset()).judge(found, version)
        for place, text in said.items():
            if text and place.rpartition("/")[2] in DECLARATIONS:
                log.error("live value %s is not taken here: %s", place, text)
        self._now, self._version = now.settings, version
        return version
