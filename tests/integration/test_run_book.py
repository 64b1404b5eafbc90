"""What the store keeps of a job's runs: bounded, and for longer than the runs."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.servers import Server

import orbweb as mw
from orbweb.frontier.runbook import HISTORY, KeptRun, RunBook
from orbweb.frontier.server import connect
from orbweb.monitor.run_record import PageTally, RunMade
from orbweb.spiders.account import Account, run_made
from orbweb.spiders.start import Start, settings_of


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture
async def book(server: Server) -> AsyncIterator[RunBook]:
    client = connect(server.url, 5.0)
    await client.flushall()
    yield RunBook(client, "p", "job")
    await client.aclose()


async def test_the_first_word_on_how_a_run_was_made_counts_and_the_last_on_its_end(
    book: RunBook,
) -> None:
    assert await book.keep_made("e1", 1000, b"first") == b"first"
    assert await book.keep_made("e1", 2000, b"second") == b"first"
    await book.keep_figures("e1", b"halfway")
    await book.keep_figures("e1", b"done")
    await book.keep_made("e2", 1500, b"later")
    assert await book.runs() == [
        KeptRun("e2", 1500, b"later", b""),
        KeptRun("e1", 1000, b"first", b"done"),
    ]


async def test_counts_of_nodes_stand_beside_each_other(book: RunBook) -> None:
    await book.keep_pages("e1", "n1", b"1")
    await book.keep_pages("e1", "n2", b"2")
    await book.keep_pages("e1", "n1", b"3")
    assert sorted(await book.pages("e1")) == [b"2", b"3"]
    assert await book.pages("e2") == []


async def test_the_oldest_runs_are_forgotten_with_all_that_was_kept(
    book: RunBook, server: Server
) -> None:
    for number in range(HISTORY + 2):
        await book.keep_made(f"e{number}", 1000 + number, b"made")
        await book.keep_figures(f"e{number}", b"figures")
        await book.keep_pages(f"e{number}", "n", b"pages")
    kept = await book.runs()
    assert [kept[0].epoch, kept[-1].epoch, len(kept)] == [f"e{HISTORY + 1}", "e2", HISTORY]
    assert await book.pages("e1") == []
    assert await book.pages("e2") == [b"pages"]
    assert server.client().hlen("{p:0}:job:job:runs") == 2 * HISTORY


@dataclass
class Started:
    started_at_ms: int = 1000


async def started() -> Started:
    return Started()


class Shop(mw.Spider):
    def parse(self, response: Any) -> Any: ...


async def test_a_node_that_goes_on_with_other_settings_says_what_differs(
    book: RunBook, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "orbweb")
    monkeypatch.setattr(logging.getLogger("orbweb"), "propagate", True)  # a run may have ended that

    async def join(**changes: str) -> list[str]:
        caplog.clear()
        spider = Shop()
        settings = settings_of(spider, Start(changes))
        made = run_made(spider, settings, settings)
        for _ in range(2):
            await Account(book, made, PageTally()).tell("e1", "n1", started)
        return [each.message for each in caplog.records if each.levelname == "WARNING"]

    assert await join(DEPTH_LIMIT="3", ALLOWED_DOMAINS="shop.test") == []
    assert await join(DEPTH_LIMIT="3", ALLOWED_DOMAINS="shop.test", LOG_LEVEL="DEBUG") == []
    first, again = await join(ALLOWED_DOMAINS="shop.test,b.test")
    assert first == again
    assert 'ALLOWED_DOMAINS was ["shop.test"], is ["shop.test", "b.test"]' in first
    assert "DEPTH_LIMIT was 3, is not set" in first


async def test_live_values_are_no_difference_between_nodes_and_are_kept_beside_the_settings(
    book: RunBook, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "orbweb")
    monkeypatch.setattr(logging.getLogger("orbweb"), "propagate", True)

    async def join(agent: str, **live: str) -> RunMade:
        spider = Shop()
        own = settings_of(spider, Start({"USER_AGENT": agent}))
        made = run_made(spider, own, own.changed(live, dict.fromkeys(live, "live v1 (global)")))
        await Account(book, made, PageTally()).tell("e1", "n1", started)
        return made

    await join("mine/1")
    made = await join("mine/1", USER_AGENT="live/1")
    assert not caplog.records
    assert (made.settings["USER_AGENT"], made.held["USER_AGENT"]) == ('"mine/1"', '"live/1"')
    await join("other/1", USER_AGENT="live/1")
    (record,) = caplog.records
    assert 'USER_AGENT was "mine/1", is "other/1"' in record.message
