"""Puts the crawl log of a node together: lines on disk, and in the store where that is wanted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path

from orbweb.errors import StoreUnavailable
from orbweb.frontier.jobbook import JobBook
from orbweb.log import get_logger
from orbweb.monitor.crawl_line import CrawlLine, CrawlLog, encode_line
from orbweb.monitor.log_writer import CrawlLogWriter
from orbweb.settings import Settings
from orbweb.spiders.log_place import log_folder

STREAM_SECONDS = 0.5
STREAM_BATCH = 1000
STREAM_WAITING = 20_000
"""Lines that wait for a store that is away; older ones are left out of it, not of the disk."""

LAST_SECONDS = 0.5

log = get_logger("orbweb.log")


@asynccontextmanager
async def crawl_log(
    settings: Settings, directory: Path, job: str, node: str, book: JobBook | None
) -> AsyncIterator[CrawlLog | None]:
    """The log of a node, open as long as the context; None when none is wanted."""
    if not settings["CRAWL_LOG_ENABLE"]:
        yield None
        return
    writer = CrawlLogWriter(log_folder(settings, directory), job, node)
    writer.start()
    try:
        most = settings["CRAWL_LOG_STREAM"]
        if most and book is not None:
            async with _streaming(writer, book, most) as both:
                yield both
        else:
            yield writer
    finally:
        await asyncio.to_thread(writer.close)


class _StreamFeed:
    """See `CrawlLog`: to the disk, and a copy to the store as soon as it answers."""

    def __init__(self, writer: CrawlLogWriter, book: JobBook, most: int) -> None:
        self._writer = writer
        self._book = book
        self._most = most
        self._waiting: deque[CrawlLine] = deque(maxlen=min(most, STREAM_WAITING))
        self._written = 0

    def write(self, line: CrawlLine) -> None:
        self._writer.write(line)
        self._waiting.append(line)
        self._written += 1

    @property
    def _left(self) -> int:
        """How many lines no longer wait: they were sent, or left out."""
        return self._written - len(self._waiting)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(STREAM_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        while self._waiting:
            some = list(islice(self._waiting, STREAM_BATCH))
            sent = self._left + len(some)
            try:
                await self._book.add_lines([encode_line(line) for line in some], self._most)
            except StoreUnavailable as error:
                log.debug("lines for the store wait: %s", error)
                return
            while self._left < sent:  # while they were sent, some may have been left out
                self._waiting.popleft()


@asynccontextmanager
async def _streaming(writer: CrawlLogWriter, book: JobBook, most: int) -> AsyncIterator[CrawlLog]:
    feed = _StreamFeed(writer, book, most)
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.wait([task])
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await feed.flush()
