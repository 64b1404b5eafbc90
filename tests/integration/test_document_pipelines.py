"""MongoDB and Elasticsearch: stand-ins that speak their protocols, or servers of yours.

`ORBWEB_TEST_MONGO=mongodb://…` and `ORBWEB_TEST_ELASTICSEARCH=http://…` name real servers: the same
tests then run there, in the database `orbweb_test` or in indexes of their own.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from bson.decimal128 import Decimal128
from pymongo import MongoClient
from tests.standins import ElasticsearchStandIn, MongoStandIn
from yarl import URL

from orbweb.errors import ConfigError, PipelineError
from orbweb.model.item import Item, Origin, UpdateItem, item_record
from orbweb.pipelines.base import Page, PagePipeline
from orbweb.pipelines.elasticsearch import ElasticsearchPipeline
from orbweb.pipelines.mongo import MongoPipeline

# A monitor of pymongo that is closed while it connects forgets its socket.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


GIVEN_MONGO = os.environ.get("ORBWEB_TEST_MONGO", "")
GIVEN_ELASTICSEARCH = os.environ.get("ORBWEB_TEST_ELASTICSEARCH", "")


class Product(Item):
    __unique_key__ = "sku"


class Price(UpdateItem):
    __update_key__ = "sku"


def page(
    *items: Any, id: str = "r1", attempt: str = "a:1", at: int = 0, table: str = "items"
) -> Page:
    records = []
    for number, item in enumerate(items):
        if isinstance(item, Item):
            item.table_name = table
        records.append(
            item_record(item, run="e1", request_id=id, position=number, default_table=table)
        )
    return Page(Origin("e1", id, attempt, at), tuple(records))


class Sink:
    """A pipeline on a server, and what the server holds of one table that no other test has."""

    pipeline: PagePipeline

    def __init__(self, server: MongoStandIn | ElasticsearchStandIn | None) -> None:
        """`server`: the stand-in, or None for a real one."""
        self.server = server
        self.table = f"orbweb_test_{uuid.uuid4().hex[:12]}"

    def page(self, *items: Any, **more: Any) -> Page:
        return page(*items, table=self.table, **more)

    async def save(self, *pages: Page) -> list[Any]:
        return list(await self.pipeline.save_pages(pages))  # type: ignore[misc]

    def refuse(self, which: Callable[[dict[str, Any]], int]) -> None:
        """Let the server refuse documents, each with the code that `which` gives."""
        if self.server is None:
            pytest.skip("a real server refuses nothing on demand")
        self.server.refuse = which

    def documents(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def remove(self) -> None:
        """Take the table off a real server."""


class Mongo(Sink):
    refused, busy = 121, 91

    def __init__(self, server: MongoStandIn | None) -> None:
        super().__init__(server)
        self.uri = server.uri if server else GIVEN_MONGO
        self.pipeline = MongoPipeline(self.uri, "orbweb_test")

    def documents(self) -> list[dict[str, Any]]:
        if isinstance(self.server, MongoStandIn):
            return list(self.server.collections.get(self.table, {}).values())
        with MongoClient[dict[str, Any]](self.uri) as client:
            return list(client["orbweb_test"][self.table].find())

    def remove(self) -> None:
        if self.server is None:
            with MongoClient[dict[str, Any]](self.uri) as client:
                client["orbweb_test"].drop_collection(self.table)


class Elastic(Sink):
    refused, busy = 400, 429

    def __init__(self, server: ElasticsearchStandIn | None) -> None:
        super().__init__(server)
        own = f"http://user:secret@127.0.0.1:{server.port}" if server else ""
        self.address = URL(own or GIVEN_ELASTICSEARCH)
        self.pipeline = ElasticsearchPipeline([str(self.address)])

    def documents(self) -> list[dict[str, Any]]:
        if isinstance(self.server, ElasticsearchStandIn):
            return list(self.server.indexes.get(self.table, {}).values())
        self._ask("POST", "_refresh")
        found = self._ask("GET", "_search?size=100")
        return [hit["_source"] for hit in found["hits"]["hits"]]

    def remove(self) -> None:
        if self.server is None:
            self._ask("DELETE", "?ignore_unavailable=true")

    def _ask(self, method: str, what: str) -> Any:
        url = str(self.address.with_user(None) / self.table) + f"/{what}"
        request = urllib.request.Request(url, method=method)
        if self.address.user:
            pair = f"{self.address.user}:{self.address.password}".encode()
            request.add_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


async def let_go() -> None:
    """Collect what pymongo left, here, where its warnings are expected (see `pytestmark`)."""
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()


@asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    yield None


@pytest.fixture(params=["mongo", "elasticsearch"])
async def sink(request: pytest.FixtureRequest) -> AsyncIterator[Sink]:
    sink: Sink
    if request.param == "mongo":
        async with nothing() if GIVEN_MONGO else MongoStandIn() as mongo:
            sink = Mongo(mongo)
            yield sink
            await sink.pipeline.close()  # type: ignore[misc]
    else:
        async with nothing() if GIVEN_ELASTICSEARCH else ElasticsearchStandIn() as elastic:
            sink = Elastic(elastic)
            yield sink
            await sink.pipeline.close()  # type: ignore[misc]
    sink.remove()
    await let_go()


async def test_a_page_that_comes_again_adds_nothing(sink: Sink) -> None:
    assert await sink.save(sink.page({"n": 1}, {"n": 2})) == []
    again = sink.page({"n": 1}, {"n": 2}, attempt="b:1")
    assert await sink.save(again, sink.page({"n": 3}, id="r2")) == []
    assert sorted(each["n"] for each in sink.documents()) == [1, 2, 3]


@pytest.mark.parametrize("bad", ["\ud800", {"\ud800": 1}, Decimal("1" * 60), {"a\0b": 1}])
async def test_a_document_that_cannot_be_is_left_out_and_those_beside_it_are_stored(
    bad: Any,
) -> None:
    async with MongoStandIn() as server:
        sink = Mongo(server)
        (refused,) = await sink.save(sink.page({"n": 1}, {"n": 2, "bad": bad}, {"n": 3}))
        assert refused.record.row["n"] == 2
        assert refused.record.key in str(refused.error)
        assert sorted(each["n"] for each in sink.documents()) == [1, 3]
        await sink.pipeline.close()  # type: ignore[misc]
    await let_go()


async def test_an_update_changes_the_item_unless_it_was_fetched_earlier(sink: Sink) -> None:
    await sink.save(sink.page(Product(sku="a", price=1.0, name="x")))
    await sink.save(sink.page(Price(sku="a", price=3.0), id="r3", at=2000))
    await sink.save(sink.page(Price(sku="a", price=2.0), id="r2", at=1000))
    (document,) = sink.documents()
    assert (document["sku"], document["price"], document["name"]) == ("a", 3.0, "x")
    await sink.save(sink.page(Price(sku="a", price=4.0), id="r4", at=2000))
    assert sink.documents()[0]["price"] == 4.0


async def test_an_update_makes_the_document_once(sink: Sink) -> None:
    newer, older = Price(sku="z", price=3.0), Price(sku="z", price=2.0)
    await sink.save(sink.page(newer, at=20), sink.page(older, at=10))
    (document,) = sink.documents()
    assert (document["sku"], document["price"]) == ("z", 3.0)


async def test_a_refused_document_is_named_and_those_beside_it_are_stored(
    sink: Mongo | Elastic,
) -> None:
    sink.refuse(lambda document: sink.refused * (document["n"] == 2))
    pages = [sink.page({"n": 1}, {"n": 2}), sink.page({"n": 3}, id="r2")]
    (refusal,) = await sink.save(*pages)
    assert refusal.record is pages[0].records[1]
    assert refusal.record.key in str(refusal.error)
    assert sorted(each["n"] for each in sink.documents()) == [1, 3]


async def test_a_busy_server_is_tried_again(sink: Mongo | Elastic) -> None:
    sink.refuse(lambda document: sink.busy)
    with pytest.raises(PipelineError):
        await sink.save(sink.page({"n": 1}))
    sink.refuse(lambda document: 0)
    assert await sink.save(sink.page({"n": 1})) == []


async def test_values_of_all_kinds(sink: Sink) -> None:
    value = {
        "moment": datetime(2026, 12, 1, tzinfo=UTC),
        "day": date(2026, 12, 1),
        "price": Decimal("1.50"),
        "id": UUID(int=7),
        "tags": {"b", "a"},
        "deep": {"x": ({"y": None},)},
        "text": "$price.x",
    }
    assert await sink.save(sink.page(value)) == []
    (document,) = sink.documents()
    assert document["text"] == "$price.x"
    assert sorted(document["tags"]) == ["a", "b"]
    assert document["deep"] == {"x": [{"y": None}]}
    if isinstance(sink, Mongo):
        assert document["price"] == Decimal128("1.50")


async def test_a_server_that_is_away_is_waited_for_and_its_password_not_shown() -> None:
    mongo = MongoPipeline("mongodb://user:secret@127.0.0.1:1/?serverSelectionTimeoutMS=100", "shop")
    elastic = ElasticsearchPipeline(["http://user:secret@127.0.0.1:1"])
    for pipeline in (mongo, elastic):
        with pytest.raises(PipelineError) as raised:
            await pipeline.save_pages([page({"n": 1})])
        assert "secret" not in str(raised.value)
        await pipeline.close()


async def test_the_next_node_is_asked_when_one_does_not_answer() -> None:
    async with ElasticsearchStandIn() as server:
        hosts = ["http://127.0.0.1:1", f"http://user:secret@127.0.0.1:{server.port}"]
        pipeline = ElasticsearchPipeline(hosts)
        with pytest.raises(PipelineError):
            await pipeline.save_pages([page({"n": 1})])
        assert await pipeline.save_pages([page({"n": 1})]) == []
        assert server.authorization.startswith("Basic ")
        assert "secret" not in "".join(pipeline.targets)
        server.status = 503
        with pytest.raises(PipelineError, match="503"):
            await pipeline.save_pages([page({"n": 1})])
        await pipeline.close()


async def test_an_integer_that_mongodb_lacks_is_refused_with_its_field() -> None:
    async with MongoStandIn() as server:
        pipeline = MongoPipeline(server.uri, "shop")
        (refusal,) = await pipeline.save_pages([page({"n": 2**70}, {"n": 1})])
        assert "field 'n'" in str(refusal.error)
        await pipeline.close()


def test_addresses_that_are_none_are_named() -> None:
    with pytest.raises(ConfigError, match="http://localhost:9200"):
        ElasticsearchPipeline(["localhost:9200"])
    with pytest.raises(ConfigError, match="MONGO_URI"):
        MongoPipeline("postgres://localhost", "shop")
