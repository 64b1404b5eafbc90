"""What all sources have in common: read, tell what is new, wait for a change, read again."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

from orbweb.config.source import Document

LOOK_SECONDS = 15.0
"""However quiet a source is, it is read again after so long: a connection may be dead unseen."""

CALM_SECONDS = 0.2
"""Least time between two readings of a source that says that it has changed, and has not."""


class Watching(ABC):
    """See `ConfigSource`."""

    name: str

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    async def watch(self) -> AsyncIterator[Document]:
        """See `ConfigSource`."""
        known: Document | None = None
        while True:
            self._woken.clear()
            document = await self.read()
            if known is None or document.values != known.values:
                known = document
                yield document
            else:
                await asyncio.sleep(CALM_SECONDS)
            await self._wait()

    def wake(self) -> None:
        """See `ConfigSource`."""
        self._woken.set()

    @abstractmethod
    async def aclose(self) -> None:
        """See `ConfigSource`."""

    @abstractmethod
    async def read(self) -> Document:
        """The document as it is now. Raises as `ConfigSource.watch` does."""

    @abstractmethod
    async def changed(self) -> None:
        """Return when it may differ from what was read last; what is lost in between is no harm."""

    async def _wait(self) -> None:
        await _first(self.changed(), self._woken.wait(), asyncio.sleep(LOOK_SECONDS))


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one has ended, and cancel the others. What it raised comes out."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError, Exception):
                await task
