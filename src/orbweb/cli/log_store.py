"""Lines of the crawl log that the store keeps for all machines (`CRAWL_LOG_STREAM`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from orbweb.cli.store import existing_store, question_at
from orbweb.errors import ConfigError
from orbweb.frontier.jobbook import PAGE, JobBook, Placed
from orbweb.monitor.crawl_line import CrawlLine, decode_line
from orbweb.monitor.log_reader import LineFilter
from orbweb.settings import Settings

T = TypeVar("T")

POLL_SECONDS = 0.5


def stored_lines(settings: Settings, wanted: LineFilter, most: int) -> Iterator[CrawlLine]:
    """The latest lines that fit, the last one first; `most` 0 = all. Raises `ConfigError`."""
    job = _job(wanted)

    async def read(book: JobBook) -> list[CrawlLine]:
        found: list[CrawlLine] = []
        before = "+"
        while page := await book.lines(before):
            found += _fitting(page, wanted)
            before = page[-1][0]
            if len(page) < PAGE or (most and len(found) >= most):
                break
        return found

    with existing_store(settings, Path.cwd()) as url:
        yield from asyncio.run(_with_book(settings, url, job, read))


def following(settings: Settings, wanted: LineFilter) -> Iterator[CrawlLine]:
    """Lines that fit, as they come into the store from now on; without end."""
    job = _job(wanted)

    async def last(book: JobBook) -> str:
        page = await book.lines(most=1)
        return page[0][0] if page else "0"

    with existing_store(settings, Path.cwd()) as url:
        place = asyncio.run(_with_book(settings, url, job, last))
        while True:
            since = place

            async def read(book: JobBook, since: str = since) -> list[Placed]:
                return await book.lines_after(since)

            page = asyncio.run(_with_book(settings, url, job, read))
            yield from _fitting(page, wanted)
            place = page[-1][0] if page else place
            if len(page) < PAGE:
                time.sleep(POLL_SECONDS)


async def _with_book(
    settings: Settings, url: str, job: str, question: Callable[[JobBook], Awaitable[T]]
) -> T:
    return await question_at(url, settings, lambda admin: question(admin.book(job)))


def _job(wanted: LineFilter) -> str:
    if wanted.job is None:
        raise ConfigError("--in-store needs the name of the job: orbweb log JOB --in-store")
    return wanted.job


def _fitting(page: list[Placed], wanted: LineFilter) -> list[CrawlLine]:
    lines = (decode_line(text) for _, text in page)
    return [line for line in lines if line is not None and wanted.fits(line)]
