"""Follows sources of live values: the last good word of each holds, whatever happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from orbweb.config.last_good import LastGood
from orbweb.config.source import ConfigSource, Document, SourceUnavailable
from orbweb.errors import ConfigError
from orbweb.log import get_logger

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0

log = get_logger("orbweb.config")


class Follower:
    """What each source says, in their order. A source that is away keeps what it said last.

    `on_change` is called on the event loop whenever a document is another, or an error came or
    went.
    """

    def __init__(
        self, sources: Sequence[ConfigSource], kept: LastGood, on_change: Callable[[], None]
    ) -> None:
        self._sources = sources
        self._kept = kept
        self._on_change = on_change
        self._documents: list[Document | None] = [None] * len(sources)
        self._asked = [asyncio.Event() for _ in sources]
        self.errors: dict[str, str] = {}
        """By name the sources that are away, and why."""

    @property
    def documents(self) -> list[Document]:
        """Of each source that has ever said something what it said last; the last one wins."""
        return [document for document in self._documents if document is not None]

    async def run(self) -> None:
        """Follow all of them until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number, source in enumerate(self._sources):
                group.create_task(self._follow(number, source))

    async def asked(self, seconds: float) -> None:
        """Wait until each source has answered or failed once, but no longer than that."""
        waits = [asyncio.ensure_future(event.wait()) for event in self._asked]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=seconds)
        for each in late:
            each.cancel()
        for number, event in enumerate(self._asked):
            if not event.is_set():
                self._fall_back(number, "it does not answer")

    def wake(self) -> None:
        """Let every source look now."""
        for source in self._sources:
            source.wake()

    async def _follow(self, number: int, source: ConfigSource) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                async for document in source.watch():
                    pause = FIRST_PAUSE_SECONDS
                    self._take(number, source, document)
                raise SourceUnavailable(f"{source.name} has ended")
            except (SourceUnavailable, ConfigError) as error:
                self._fall_back(number, str(error))
            except Exception as error:  # one source that answers nonsense must not end the others
                log.exception("live values: %s: unexpected error", source.name)
                self._fall_back(number, f"{type(error).__name__}: {error}")
            self._asked[number].set()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _take(self, number: int, source: ConfigSource, document: Document) -> None:
        before = self._documents[number]
        if self.errors.pop(source.name, None) is not None:
            log.warning("live values: %s is back", source.name)
            self._on_change()
        self._documents[number] = document
        self._asked[number].set()
        if before is None or before.version != document.version:
            self._kept.save(source.name, document)
            self._on_change()

    def _fall_back(self, number: int, error: str) -> None:
        """Go on with what was said last: in this process, or on this machine before."""
        name = self._sources[number].name
        if name not in self.errors:
            if self._documents[number] is None:
                self._documents[number] = self._kept.load(name)
            last = self._documents[number]
            held = f"version {last.version} holds on" if last else "none of its values hold"
            log.warning("live values: %s cannot be asked, %s: %s", name, held, error)
            self.errors[name] = error
            self._on_change()
