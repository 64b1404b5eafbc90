"""Lines of the crawl log on their way to the store: none is left out but for want of room."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.test_crawl_log import line

from orbweb.errors import StoreUnavailable
from orbweb.monitor.crawl_line import decode_line
from orbweb.monitor.log_folder import LogFolder
from orbweb.monitor.log_writer import CrawlLogWriter
from orbweb.spiders import crawl_log


class Book:
    """A store that writes more lines into the log while some are sent, or fails."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.meanwhile: list[int] = []
        self.away = False
        self.feed: crawl_log._StreamFeed | None = None

    async def add_lines(self, lines: Sequence[bytes], most: int) -> None:
        assert self.feed is not None
        numbers, self.meanwhile = self.meanwhile, []
        for number in numbers:
            self.feed.write(line(number))
        if self.away:
            raise StoreUnavailable("away")
        self.got += [decoded.id for each in lines if (decoded := decode_line(each))]


@pytest.fixture
def book(tmp_path: Path) -> Book:
    book = Book()
    writer = CrawlLogWriter(LogFolder(tmp_path), "Shop", "a")  # not started: it writes nothing
    book.feed = crawl_log._StreamFeed(writer, book, most=4)  # type: ignore[arg-type]
    return book


def ids(*numbers: int) -> list[str]:
    return [f"{number:016x}" for number in numbers]


async def test_lines_that_came_while_others_were_sent_are_sent_too(book: Book) -> None:
    assert book.feed is not None
    for number in range(4):
        book.feed.write(line(number))
    book.meanwhile = [4, 5, 6]
    await book.feed.flush()
    assert book.got == ids(*range(7))


async def test_of_a_store_that_is_away_the_latest_lines_wait(book: Book) -> None:
    assert book.feed is not None
    for number in range(4):
        book.feed.write(line(number))
    book.away, book.meanwhile = True, [4, 5]
    await book.feed.flush()
    book.away = False
    await book.feed.flush()
    assert book.got == ids(2, 3, 4, 5)
