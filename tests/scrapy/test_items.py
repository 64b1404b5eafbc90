"""RedisPipeline: reactorless, batched, nothing lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy import Spider
from scrapy.settings import Settings
from tests.scrapy.crawls import QUIET, crawl
from tests.scrapy.site import Site, links
from tests.servers import Server

from orbweb.adapters.scrapy import pipelines
from orbweb.adapters.scrapy.connection import get_impatient_redis
from orbweb.adapters.scrapy.pipelines import RedisPipeline
from orbweb.errors import StoreUnavailable
from orbweb.frontier.embedded import EmbeddedStore

SPIDER = Spider("shop")


class Slow:
    """A client whose calls take their time, and whose first ones may fail."""

    def __init__(self, client: redis.Redis, failures: list[Exception] | None = None) -> None:
        self.calls = 0
        self.failures = failures or []
        self._client = client

    def pipeline(self, **options: Any) -> Any:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return self._client.pipeline(**options)


class Items(Spider):
    name = "items"

    def parse(self, response: Any) -> Any:
        yield from ({"n": n} for n in range(200))


async def test_every_item_of_a_crawl_is_stored_without_a_reactor(store: Server) -> None:
    changes = {
        "REDIS_URL": store.url,
        "ITEM_PIPELINES": {RedisPipeline: 1},
        "REDIS_ITEMS_KEY": "%(spider)s:found",
    }
    with Site(lambda hit: links()) as site:
        Items.start_urls = [site.url]
        stats = await crawl(Items, {**QUIET, **changes})
    found = [json.loads(item)["n"] for item in store.client().lrange("items:found", 0, -1)]
    assert sorted(found) == list(range(200))
    assert stats["item_scraped_count"] == 200
    assert "log_count/WARNING" not in stats or "log_count/ERROR" not in stats


async def test_items_that_come_while_others_are_on_their_way_go_together(store: Server) -> None:
    client = Slow(store.client())
    pipeline = RedisPipeline(client)
    made = [pipeline.process_item({"n": n}, SPIDER) for n in range(1200)]
    assert await asyncio.gather(*made) == [{"n": n} for n in range(1200)]
    found = [json.loads(item)["n"] for item in store.client().lrange("shop:items", 0, -1)]
    assert found == list(range(1200))
    assert client.calls <= 4  # the first alone, the others 500 at a time


async def test_items_wait_while_the_store_is_away(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "LONGEST_PAUSE_SECONDS", 0.05)
    failures: list[Exception] = [redis.ConnectionError("away"), redis.TimeoutError("slow")]
    pipeline = RedisPipeline(Slow(store.client(), failures))
    await asyncio.gather(*(pipeline.process_item({"n": n}, SPIDER) for n in range(3)))
    assert store.client().llen("shop:items") == 3


async def test_a_crawl_that_is_stopped_gives_up_on_a_store_that_stays_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipelines, "LAST_SECONDS", 0.0)
    pipeline = RedisPipeline(get_impatient_redis(Settings({"REDIS_PORT": 1})))
    pipeline.crawler = type("Crawler", (), {"crawling": False, "spider": SPIDER})()
    results = await asyncio.gather(
        *(pipeline.process_item({"n": n}) for n in range(3)), return_exceptions=True
    )
    assert [type(result) for result in results] == [StoreUnavailable] * 3


async def test_an_item_that_is_cancelled_takes_no_other_with_it(store: Server) -> None:
    pipeline = RedisPipeline(store.client())
    made = [asyncio.ensure_future(pipeline.process_item({"n": n}, SPIDER)) for n in range(5)]
    for task in made[:2]:
        await asyncio.sleep(0)
        task.cancel()
    assert await asyncio.gather(*made[2:]) == [{"n": n} for n in range(2, 5)]
    found = {json.loads(item)["n"] for item in store.client().lrange("shop:items", 0, -1)}
    assert {2, 3, 4} <= found


async def test_items_go_to_the_embedded_store_where_the_crawl_uses_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = {"ORBWEB_EMBEDDED_STORE": True, "ITEM_PIPELINES": {RedisPipeline: 1}}
    scheduler = {"SCHEDULER": "orbweb.adapters.scrapy.Scheduler"}
    with Site() as site:
        Items.start_urls = [site.url]
        await crawl(Items, {**QUIET, **scheduler, **changes})
    with EmbeddedStore(tmp_path) as url:
        assert redis.Redis.from_url(url).llen("items:items") == 200


async def test_an_error_of_one_list_does_not_touch_the_items_of_another(store: Server) -> None:
    class ByKind(RedisPipeline):
        def item_key(self, item: Any, spider: Any) -> str:
            return f"{spider.name}:{item['kind']}"

    store.client().set("shop:bad", "no list")
    pipeline = ByKind(store.client())
    kinds = ["first", "good", "bad", "good", "bad"]
    results = await asyncio.gather(
        *(pipeline.process_item({"kind": kind}, SPIDER) for kind in kinds), return_exceptions=True
    )
    assert [isinstance(result, redis.ResponseError) for result in results] == [
        kind == "bad" for kind in kinds
    ]
    assert store.client().llen("shop:good") == 2


async def test_a_class_that_overrides_process_item_in_a_thread_still_works(store: Server) -> None:
    class Old(RedisPipeline):
        def _process_item(self, item: Any, spider: Any) -> Any:
            self.server.sadd("seen", item["n"])
            return {**item, "stored": True}

    assert await Old(store.client()).process_item({"n": 1}, SPIDER) == {"n": 1, "stored": True}
    assert store.client().scard("seen") == 1


async def test_a_serializer_must_give_text_or_bytes(store: Server) -> None:
    with pytest.raises(TypeError, match="REDIS_ITEMS_SERIALIZER gave"):
        await RedisPipeline(store.client(), serialize_func=dict).process_item({"n": 1}, SPIDER)
