"""Items through a stream: nothing lost by a dead consumer, nothing kept for ever; and a list."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from tests.servers import Server, redis_binary

from orbweb.consume import streams
from orbweb.consume.base import Message
from orbweb.consume.streams import StreamSource
from orbweb.errors import ConfigError, PipelineError, StoreUnavailable
from orbweb.kafka.envelope import decode
from orbweb.model.item import Origin, UpdateItem, item_record
from orbweb.pipelines.base import Page
from orbweb.pipelines.valkey import ListPipeline, StreamPipeline

KINDS = [
    "valkey",
    pytest.param(
        "redis",
        marks=pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed"),
    ),
]


@pytest.fixture(scope="module", params=KINDS)
def running(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(request.param, aof="everysec")
    yield server
    server.stop()


@pytest.fixture
def server(running: Server) -> Server:
    running.client().flushall()
    return running


class Price(UpdateItem):
    __table_name__ = "items"
    __update_key__ = "n"


def page(*numbers: int, id: str = "r1") -> Page:
    records = tuple(
        item_record({"n": n}, run="e1", request_id=id, position=at, default_table="items")
        for at, n in enumerate(numbers)
    )
    return Page(Origin("e1", id, "a:1", 170), records)


def numbers(messages: Sequence[Message]) -> list[int]:
    return [decode(message.value).row["n"] for message in messages]


def test_a_page_travels_with_all_that_a_consumer_needs(server: Server) -> None:
    pipeline = StreamPipeline(server.url, stream="s")
    update = item_record(
        Price(n=1, price=2), run="e1", request_id="r1", position=1, default_table="items"
    )
    whole = page(1)
    assert pipeline.save_pages([Page(whole.origin, (*whole.records, update))]) == []
    first, second = StreamSource(server.url, "s", "g").take(10, 0.1)
    assert decode(first.value).key == whole.records[0].key
    assert decode(first.value).run == "e1"
    assert decode(second.value).update_keys == ("n",)
    assert decode(second.value).version == 170


def test_members_of_a_group_share_the_entries_and_groups_do_not(server: Server) -> None:
    StreamPipeline(server.url, stream="s").save_pages([page(*range(10))])
    one, two = StreamSource(server.url, "s", "g"), StreamSource(server.url, "s", "g")
    shared = numbers(one.take(6, 0.1)) + numbers(two.take(6, 0.1))
    assert shared == list(range(10))
    assert numbers(StreamSource(server.url, "s", "other").take(20, 0.1)) == list(range(10))


def test_the_entries_of_a_dead_member_are_taken_over(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "ORPHANED_SECONDS", 0.0)
    StreamPipeline(server.url, stream="s").save_pages([page(*range(10))])
    dead = StreamSource(server.url, "s", "g")
    dead.settle(dead.take(10, 0.1)[:4])
    heir = StreamSource(server.url, "s", "g")
    assert heir.lag() == 6
    taken = heir.take(10, 0.1)
    assert numbers(taken) == [4, 5, 6, 7, 8, 9]
    heir.settle(taken)
    assert heir.lag() == 0


def test_entries_stay_until_every_group_has_settled_them(server: Server) -> None:
    StreamPipeline(server.url, stream="s").save_pages([page(*range(10))])
    fast, slow = StreamSource(server.url, "s", "fast"), StreamSource(server.url, "s", "slow")
    fast.settle(fast.take(10, 0.1))
    taken = slow.take(10, 0.1)
    slow.settle(taken[:3])
    fast.close()
    assert server.client().xlen("s") == 7
    slow.settle(taken[3:])
    slow.close()
    assert server.client().xlen("s") == 0
    assert server.client().xinfo_groups("s")[0]["consumers"] == 0


def test_the_group_can_begin_again(server: Server) -> None:
    StreamPipeline(server.url, stream="s").save_pages([page(*range(5))])
    first = StreamSource(server.url, "s", "g")
    first.settle(first.take(10, 0.1))
    again = StreamSource(server.url, "s", "g", from_beginning=True)
    assert numbers(again.take(10, 0.1)) == list(range(5))
    assert again.take(10, 0.1) == []
    assert again.lag() == 5, "not settled yet"


def test_a_server_that_lost_its_data_is_joined_anew(server: Server) -> None:
    source = StreamSource(server.url, "s", "g")
    assert source.take(10, 0.01) == []
    server.client().flushall()
    with pytest.raises(StoreUnavailable):
        source.take(10, 0.01)
    StreamPipeline(server.url, stream="s").save_pages([page(1)])
    assert numbers(source.take(10, 0.1)) == [1]


def test_a_server_that_is_away_is_a_matter_of_waiting() -> None:
    server = Server("valkey", aof="always")
    revived = []
    try:
        pipeline = StreamPipeline(server.url, stream="s", timeout=0.5)
        source = StreamSource(
            server.url, "s", "g", timeout_seconds=0.5, revive=lambda: revived.append(1)
        )
        assert source.take(10, 0.01) == []
        server.kill()
        with pytest.raises(PipelineError):
            pipeline.save_pages([page(1)])
        with pytest.raises(StoreUnavailable):
            source.take(10, 0.01)
        assert revived == [1]
        server.start()
        assert pipeline.save_pages([page(1)]) == []
        assert numbers(source.take(10, 0.1)) == [1]
    finally:
        server.stop()


def test_foreign_entries_come_as_messages_that_are_no_items(server: Server) -> None:
    server.client().xadd("s", {"other": "thing"})
    (message,) = StreamSource(server.url, "s", "g").take(10, 0.1)
    assert message.value == b""


def test_a_list_has_one_json_object_an_item(server: Server) -> None:
    pipeline = ListPipeline(server.url)
    assert pipeline.save_items("news", [{"n": 1, "_key": "a"}, {"n": 2, "_key": "b"}])
    assert pipeline.targets == ("list:news:items",)
    rows = [json.loads(row) for row in server.client().lrange("news:items", 0, -1)]
    assert rows == [{"n": 1, "_key": "a"}, {"n": 2, "_key": "b"}]


def test_without_a_server_the_missing_setting_is_named() -> None:
    with pytest.raises(ConfigError, match="ITEM_REDIS_URL"):
        StreamPipeline("")
