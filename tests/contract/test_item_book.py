"""What the store knows of items, in memory and on each server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.servers import BINARIES, Server

from orbweb.errors import StoreUnavailable
from orbweb.frontier.base import RunConfig
from orbweb.frontier.items import FailedItem, Mark, MemoryItemBook, ValkeyItemBook
from orbweb.frontier.server import connect
from orbweb.frontier.valkey import ValkeyFrontier


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Any:
    if BINARIES[request.param]() is None:
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    running = Server(request.param)
    yield running
    running.stop()


Book = Callable[..., ValkeyItemBook]


@pytest.fixture
async def book(server: Server) -> AsyncIterator[Book]:
    client = connect(server.url, 5.0)
    await client.flushall()

    def make(
        epoch: str = "e1", job: str = "job", run: str = "r", *, shared: bool = False
    ) -> ValkeyItemBook:
        made = ValkeyItemBook(client, "p", job, run, shared=shared)
        made.attach(epoch)
        return made

    yield make
    await client.aclose()


FAILED = FailedItem("k1", "items", "pkg.Sql", "too long", 7, "http://a/", "r1", 0, ("sku",), b"x")
MARKS = [Mark(b"item-one", b"aaaa"), Mark(b"item-two", b"bbbb"), Mark(b"item-one", b"cccc")]


async def test_only_what_was_remembered_is_known(book: Book) -> None:
    for each in (book(), MemoryItemBook()):
        await each.remember([b"a" * 8])
        assert await each.known([b"a" * 8, b"b" * 8]) == [True, False]


async def test_jobs_share_nothing_and_runs_only_when_asked(book: Book) -> None:
    await book(shared=True).remember([b"a" * 8])
    assert await book("e2", run="other", shared=True).known([b"a" * 8]) == [True]
    assert await book(job="job2", shared=True).known([b"a" * 8]) == [False]
    await book().remember([b"c" * 8])
    assert await book("e2").known([b"c" * 8]) == [False]


async def test_an_item_at_another_place_is_a_repetition_and_a_repeated_call_is_not(
    book: Book,
) -> None:
    for each in (book(), MemoryItemBook()):
        for _ in range(2):
            assert await each.repeated(MARKS) == ([False, False, True], 2)


async def test_failed_items_are_kept_once_until_they_are_dropped(book: Book) -> None:
    kept = book()
    await kept.keep_failed([FAILED])
    await kept.keep_failed([FAILED])
    assert await book().failed() == [FAILED]
    await kept.drop_failed([FAILED.id])
    assert await kept.failed() == []


async def test_what_a_node_says_takes_the_place_of_what_it_said_before(book: Book) -> None:
    for each in (book(), MemoryItemBook()):
        await each.tell("n1", b"1")
        await each.tell("n2", b"2")
        await each.tell("n1", b"3")
        assert await each.told() == {"n1": b"3", "n2": b"2"}


async def test_the_history_has_the_other_runs_of_the_job(book: Book) -> None:
    await book("e1").enter_history(10, b"1")
    await book("e1").enter_history(1000, b"2")
    await book("e2").enter_history(999, b"3")
    assert await book("e3").history() == [b"3", b"2"]
    assert await book("e1").history() == [b"3"]
    assert await book("e1", job="other").history() == []


async def test_a_long_history_loses_its_oldest_runs(book: Book) -> None:
    for number in range(55):
        await book(f"e{number}").enter_history(number, b"%03d" % number)
    assert await book("now").history() == [b"%03d" % number for number in range(5, 55)]


async def test_reset_forgets_what_the_store_knows_of_items(book: Book, server: Server) -> None:
    client = connect(server.url, 5.0)
    frontier = ValkeyFrontier(client, prefix="p", job="job", run="r")
    epoch = (await frontier.open(RunConfig(dedup_scope="spider"))).epoch
    mine = book(epoch)
    shared = book(epoch, shared=True)
    await mine.remember([b"a" * 8])
    await shared.remember([b"b" * 8])
    await mine.repeated(MARKS)
    await mine.keep_failed([FAILED])
    await mine.tell("n", b"1")
    await frontier.caller.call("reset", (frontier.shard.tag,), ("job", "r", 1))
    for _ in range(3):
        await frontier.caller.call("collect", (frontier.shard.tag,), (1000,))
    left = {key.decode().rpartition(":")[2] for key in await client.keys("*")}
    assert not left & {"items", "marks", "failed_items", "quality"}
    await client.aclose()


async def test_a_claim_says_when_it_was_by_the_clock_of_the_store(server: Server) -> None:
    client = connect(server.url, 5.0)
    await client.flushall()
    frontier = ValkeyFrontier(client, prefix="p", job="job")
    await frontier.open(RunConfig())
    seconds, micros = await client.time()
    before = seconds * 1000 + micros // 1000
    first = await frontier.claim("a", 1, 1, 1000)
    second = await frontier.claim("b", 1, 1, 1000)
    seconds, micros = await client.time()
    assert before <= first.at_ms <= second.at_ms <= seconds * 1000 + micros // 1000
    await client.aclose()


async def test_a_store_that_is_away_is_said_to_be() -> None:
    client = connect("redis://127.0.0.1:1", 0.2)
    away = ValkeyItemBook(client, "p", "job", "r", shared=False)
    away.attach("e")
    with pytest.raises(StoreUnavailable):
        await away.known([b"a" * 8])
    await client.aclose()
