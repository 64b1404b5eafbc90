"""The store as a source of live values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from orbweb.config.resolve import StoreDocument
from orbweb.config.source import Document, SourceUnavailable
from orbweb.config.values import LiveValues
from orbweb.errors import StoreUnavailable
from orbweb.frontier.configbook import ConfigBook

POLL_SECONDS = 5.0
"""The net below the push: what was told while nobody listened is found by then."""


class StoreSource:
    """See `ConfigSource`. A new version is pushed; it is looked for every few seconds besides."""

    name = "store"

    def __init__(self, book: ConfigBook) -> None:
        self._book = book
        self._woken = asyncio.Event()

    async def watch(self) -> AsyncIterator[Document]:
        """See `ConfigSource`."""
        known = -1
        try:
            async with self._book.told() as told:
                while True:
                    if known < 0 or await self._book.version() != known:
                        document = await self._read()
                        known = int(document.version)
                        yield document
                    await self._wait(told)
        except StoreUnavailable as error:
            raise SourceUnavailable(str(error)) from error

    def wake(self) -> None:
        """See `ConfigSource`."""
        self._woken.set()

    async def aclose(self) -> None:
        """The connections belong to the book."""

    async def _read(self) -> StoreDocument:
        stored = await self._book.read()
        live = LiveValues.unpack(stored.values)
        return StoreDocument({}, str(stored.version), "the store", live, stored.at_ms)

    async def _wait(self, told: object) -> None:
        push = asyncio.ensure_future(told(POLL_SECONDS))  # type: ignore[operator]
        wake = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({push, wake}, return_when=asyncio.FIRST_COMPLETED)
            if push.done():
                push.result()
        finally:
            self._woken.clear()
            for task in (push, wake):
                task.cancel()
            with suppress(asyncio.CancelledError, StoreUnavailable):
                await push
