"""MongoDB and Elasticsearch, against stand-ins that speak their protocols (see `standins`)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from bson.decimal128 import Decimal128
from tests.standins import ElasticsearchStandIn, MongoStandIn

from orbweb.errors import ConfigError, PipelineError
from orbweb.model.item import Item, Origin, UpdateItem, item_record
from orbweb.pipelines.base import Page, PagePipeline
from orbweb.pipelines.elasticsearch import ElasticsearchPipeline
from orbweb.pipelines.mongo import MongoPipeline

# A monitor of pymongo that is closed while it connects forgets its socket.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Product(Item):
    __unique_key__ = "sku"


class Price(UpdateItem):
    __table_name__ = "product"
    __update_key__ = "sku"


def page(*items: Any, id: str = "r1", attempt: str = "a:1", at: int = 0) -> Page:
    records = tuple(
        item_record(item, run="e1", request_id=id, position=number, default_table="items")
        for number, item in enumerate(items)
    )
    return Page(Origin("e1", id, attempt, at), records)


class Mongo:
    def __init__(self, server: MongoStandIn) -> None:
        self.server = server
        self.pipeline: PagePipeline = MongoPipeline(server.uri, "shop")

    def documents(self, table: str) -> list[dict[str, Any]]:
        return list(self.server.collections.get(table, {}).values())


class Elastic:
    def __init__(self, server: ElasticsearchStandIn) -> None:
        self.server = server
        hosts = [f"http://user:secret@127.0.0.1:{server.port}"]
        self.pipeline: PagePipeline = ElasticsearchPipeline(hosts)

    def documents(self, table: str) -> list[dict[str, Any]]:
        return list(self.server.indexes.get(table, {}).values())


async def let_go() -> None:
    """Collect what pymongo left, here, where its warnings are expected (see `pytestmark`)."""
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()


@pytest.fixture(params=["mongo", "elasticsearch"])
async def sink(request: pytest.FixtureRequest) -> AsyncIterator[Mongo | Elastic]:
    if request.param == "mongo":
        async with MongoStandIn() as server:
            made: Mongo | Elastic = Mongo(server)
            yield made
            await made.pipeline.close()  # type: ignore[misc]
        await let_go()
    else:
        async with ElasticsearchStandIn() as server:
            made = Elastic(server)
            yield made
            await made.pipeline.close()  # type: ignore[misc]


async def save(sink: Mongo | Elastic, *pages: Page) -> list[Any]:
    return list(await sink.pipeline.save_pages(pages))  # type: ignore[misc]


@pytest.mark.parametrize("bad", ["\ud800", {"\ud800": 1}, Decimal("1" * 60), {"a\0b": 1}])
async def test_a_document_that_cannot_be_is_left_out_and_those_beside_it_are_stored(
    bad: Any,
) -> None:
    async with MongoStandIn() as server:
        sink = Mongo(server)
        (refused,) = await save(sink, page({"n": 1}, {"n": 2, "bad": bad}, {"n": 3}))
        assert refused.record.row["n"] == 2
        assert refused.record.key in str(refused.error)
        assert sorted(each["n"] for each in sink.documents("items")) == [1, 3]
        await sink.pipeline.close()  # type: ignore[misc]
    await let_go()


async def test_a_page_that_comes_again_adds_nothing(sink: Mongo | Elastic) -> None:
    assert await save(sink, page({"n": 1}, {"n": 2})) == []
    assert await save(sink, page({"n": 1}, {"n": 2}, attempt="b:1"), page({"n": 3}, id="r2")) == []
    assert sorted(each["n"] for each in sink.documents("items")) == [1, 2, 3]


async def test_an_update_changes_the_item_unless_it_was_fetched_earlier(
    sink: Mongo | Elastic,
) -> None:
    await save(sink, page(Product(sku="a", price=1.0, name="x")))
    await save(sink, page(Price(sku="a", price=3.0), id="r3", at=2000))
    await save(sink, page(Price(sku="a", price=2.0), id="r2", at=1000))
    (document,) = sink.documents("product")
    assert (document["sku"], document["price"], document["name"]) == ("a", 3.0, "x")
    await save(sink, page(Price(sku="a", price=4.0), id="r4", at=2000))
    assert sink.documents("product")[0]["price"] == 4.0


async def test_an_update_makes_the_document_once(sink: Mongo | Elastic) -> None:
    await save(sink, page(Price(sku="z", price=3.0), at=20), page(Price(sku="z", price=2.0), at=10))
    (document,) = sink.documents("product")
    assert (document["sku"], document["price"]) == ("z", 3.0)


async def test_a_refused_document_is_named_and_those_beside_it_are_stored(
    sink: Mongo | Elastic,
) -> None:
    sink.server.refuse = lambda document: (
        (121 if isinstance(sink, Mongo) else 400) * (document["n"] == 2)
    )
    pages = [page({"n": 1}, {"n": 2}), page({"n": 3}, id="r2")]
    (refusal,) = await save(sink, *pages)
    assert refusal.record is pages[0].records[1]
    assert refusal.record.key in str(refusal.error)
    assert sorted(each["n"] for each in sink.documents("items")) == [1, 3]


async def test_a_busy_server_is_tried_again(sink: Mongo | Elastic) -> None:
    sink.server.refuse = lambda document: 91 if isinstance(sink, Mongo) else 429
    with pytest.raises(PipelineError):
        await save(sink, page({"n": 1}))
    sink.server.refuse = lambda document: 0
    assert await save(sink, page({"n": 1})) == []


async def test_values_of_all_kinds(sink: Mongo | Elastic) -> None:
    value = {
        "moment": datetime(2026, 12, 1, tzinfo=UTC),
        "day": date(2026, 12, 1),
        "price": Decimal("1.50"),
        "id": UUID(int=7),
        "tags": {"b", "a"},
        "deep": {"x": ({"y": None},)},
        "text": "$price.x",
    }
    assert await save(sink, page(value)) == []
    (document,) = sink.documents("items")
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
