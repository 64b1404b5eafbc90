"""Settings and overrides of RedisMixin, and the spider under Scrapy's own scheduler."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scrapy import Request
from tests.scrapy.crawls import QUIET, crawl, made_crawler, project
from tests.scrapy.site import Page, Site
from tests.servers import Server

from orbweb.adapters.scrapy.spiders import RedisSpider


class Shop(RedisSpider):
    name = "shop"

    def parse(self, response: Any) -> Any:
        yield {"path": response.url}


@pytest.mark.parametrize(
    ("settings", "attribute", "value"),
    [
        ({}, "redis_key", "shop:start_urls"),
        ({"REDIS_START_URLS_KEY": "%(name)s:urls"}, "redis_key", "shop:urls"),
        ({"CONCURRENT_REQUESTS": 7}, "redis_batch_size", 7),
        ({"CONCURRENT_REQUESTS": 7, "REDIS_START_URLS_BATCH_SIZE": "3"}, "redis_batch_size", 3),
        ({"REDIS_ENCODING": "latin-1"}, "redis_encoding", "latin-1"),
        ({"REDIS_START_URLS_ENCODING": "gbk"}, "redis_encoding", "gbk"),
        ({"MAX_IDLE_TIME_BEFORE_CLOSE": "60"}, "max_idle_time", 60),
        ({"REDIS_KEY_CHECK_INTERVAL": "5"}, "redis_key_check_interval", 5),
    ],
)
def test_a_setting_reaches_the_spider(
    settings: dict[str, Any], attribute: str, value: object
) -> None:
    spider = Shop.from_crawler(made_crawler(Shop, **settings))
    assert getattr(spider, attribute) == value


def test_a_source_says_what_the_scheduler_needs() -> None:
    arguments = {"redis_key": ["%(name)s:b", "a", "a"], "redis_batch_size": "4"}
    spider = Shop.from_crawler(made_crawler(Shop, MAX_IDLE_TIME_BEFORE_CLOSE=9), **arguments)
    source = spider.start_source()
    assert source is not None
    assert (source.keys, source.batch, source.max_idle_seconds) == (("shop:b", "a"), 4, 9.0)


@pytest.mark.parametrize(
    ("settings", "arguments", "text"),
    [
        ({}, {"redis_key": ""}, "redis_key must not be empty"),
        ({}, {"redis_key": []}, "redis_key list is empty"),
        ({}, {"redis_batch_size": "x"}, "redis_batch_size must be an integer, not 'x'"),
        ({}, {"max_idle_time": "x"}, "max_idle_time must be an integer"),
        ({"REDIS_KEY_CHECK_INTERVAL": "x"}, {}, "redis_key_check_interval must be an integer"),
        ({"ORBWEB_START_FIELDS": "x"}, {}, "ORBWEB_START_FIELDS is one of auto, meta, form"),
    ],
)
def test_a_wrong_setting_is_named(
    settings: dict[str, Any], arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        Shop.from_crawler(made_crawler(Shop, **settings), **arguments)


def test_allowed_domains_that_could_be_read_once_can_be_read_again() -> None:
    class Once(Shop):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.allowed_domains: Any = filter(None, ["e.com", ""])
            super().__init__(*args, **kwargs)

    spider = Once.from_crawler(made_crawler(Once))
    assert (spider.allowed_domains, list(spider.allowed_domains)) == (["e.com"], ["e.com"])


async def test_a_method_that_is_no_longer_called_is_named(
    store: Server, caplog: pytest.LogCaptureFixture
) -> None:
    class Custom(Shop):
        def next_requests(self) -> Any:
            yield Request("http://e.com/")

    await crawl(Custom, project(store))
    assert "Custom.next_requests() is not called" in caplog.text
    assert "spider_idle() is not called" not in caplog.text


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("kind", ["list", "set", "zset"])
async def test_under_scrapys_scheduler_entries_are_popped_and_bad_ones_kept(
    store: Server, caplog: pytest.LogCaptureFixture, kind: str, writable: bool
) -> None:
    if not writable:
        store.client().set("shop:start_urls:bad", "of somebody else")
    changes = {
        "REDIS_URL": store.url,
        "REDIS_START_URLS_AS_SET": kind == "set",
        "REDIS_START_URLS_AS_ZSET": kind == "zset",
        "CLOSESPIDER_ITEMCOUNT": 5,
    }
    with Site(lambda hit: Page()) as site:
        entries = {f"{site.url}/{n}": n for n in range(5)} | {"no URL": 9}
        if kind == "list":
            store.client().rpush("shop:start_urls", *entries)
        elif kind == "set":
            store.client().sadd("shop:start_urls", *entries)
        else:
            store.client().zadd("shop:start_urls", entries)
        stats = await crawl(Shop, {**QUIET, **changes})
    assert sorted(site.counts().items()) == [(f"/{n}", 1) for n in range(5)]
    assert stats["orbweb/start_entries/refused"] == 1
    if writable:
        (bad,) = store.client().lrange("shop:start_urls:bad", 0, -1)
        assert json.loads(bad)["entry"] == "no URL"
    else:
        assert "could not be kept in 'shop:start_urls:bad'" in caplog.text
