"""What the sources of live values say of one node, by the store's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from orbweb.config.follower import Follower
from orbweb.config.last_good import LastGood
from orbweb.config.resolve import Identity, Resolution, StoreDocument, resolve
from orbweb.config.source import ConfigSource
from orbweb.errors import StoreUnavailable
from orbweb.frontier.configbook import ConfigBook
from orbweb.log import get_logger

FIRST_SECONDS = 3.0
"""How long a node waits at its start for sources that do not answer."""

AGAIN_SECONDS = 1.0
"""Pause before the store, which did not answer, is asked again."""

log = get_logger("orbweb.config")


class LiveSources:
    """Follows the sources of a node, and what ends in them. `on_change`: see `Follower`."""

    def __init__(
        self,
        sources: Sequence[ConfigSource],
        kept: LastGood,
        identity: Identity,
        book: ConfigBook | None,
        on_change: Callable[[], None],
    ) -> None:
        self._sources = sources
        self._follower = Follower(sources, kept, on_change)
        self._identity = identity
        self._book = book
        self._following: asyncio.Task[None] | None = None
        self._offset_ms = 0.0
        self._read_at = ""

    async def begin(self) -> None:
        """Follow them; returns when each has answered, or has had the time to."""
        self._following = asyncio.create_task(self._follower.run())
        await self._follower.asked(FIRST_SECONDS)

    async def aclose(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        for source in self._sources:
            await source.aclose()

    @property
    def errors(self) -> Mapping[str, str]:
        """By name the sources that are away, and why."""
        return self._follower.errors

    @property
    def version(self) -> int:
        """Of the store's values; 0 when it has said none."""
        stored = self._stored()
        return stored[-1].live.version if stored else 0

    def wake(self) -> None:
        """Let every source look now."""
        self._follower.wake()

    def resolve(self) -> Resolution:
        """What all of them say for this node now."""
        for document in self._stored():
            if document.version != self._read_at:
                self._read_at = document.version
                self._offset_ms = document.at_ms - time.monotonic() * 1000
        return resolve(self._follower.documents, self._identity, self._now_ms())

    def pause(self, longest_seconds: float) -> float:
        """How long nothing ends by itself, in seconds."""
        ends = self._ends_ms()
        if not ends:
            return longest_seconds
        return min(longest_seconds, max(0.05, (ends - self._now_ms()) / 1000 + 0.01))

    async def clear_ended(self) -> None:
        """Make the version without the values that have ended: one node does, all see it."""
        ends = self._ends_ms()
        if self._book is None or not ends or ends > self._now_ms():
            return
        for document in self._stored():
            expired = document.live.expire(self._now_ms())
            if expired is None:
                continue
            values, line = expired
            try:
                await self._book.write(document.live.version, values.pack(), line.pack(), ends)
            except StoreUnavailable as error:
                log.debug("what has ended is not removed yet: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
            self._follower.wake()
            await asyncio.sleep(0.2)

    def _now_ms(self) -> int:
        return int(time.monotonic() * 1000 + self._offset_ms)

    def _stored(self) -> list[StoreDocument]:
        return [each for each in self._follower.documents if isinstance(each, StoreDocument)]

    def _ends_ms(self) -> int:
        return min((each.live.ends_ms(self._now_ms()) for each in self._stored()), default=0)
