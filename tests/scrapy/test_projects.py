"""What existing projects do with Scrapy works unchanged with Orbweb's scheduler."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scrapy import FormRequest, Request, Spider
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider
from tests.scrapy.crawls import crawl, project
from tests.scrapy.site import Hit, Page, Site, links
from tests.servers import Server

from orbweb.adapters.scrapy.spiders import RedisCrawlSpider, RedisMixin, RedisSpider


async def test_the_rules_of_a_crawl_spider_are_followed_to_the_end(store: Server) -> None:
    class Rules(CrawlSpider):
        name = "rules"
        rules = (
            Rule(LinkExtractor(allow="/list"), follow=True),
            Rule(LinkExtractor(allow="/item"), callback="parse_item", cb_kwargs={"kind": "item"}),
        )

        def parse_item(self, response: Any, kind: str) -> Any:
            yield {"path": response.url.rpartition("/")[2], "kind": kind}

    def answer(hit: Hit) -> Page:
        if hit.path == "/list":
            return links("/list/2", "/item1", "/other")
        return links("/item2", "/item3") if hit.path == "/list/2" else links("/list")

    with Site(answer) as site:
        Rules.start_urls = [f"{site.url}/"]
        stats = await crawl(Rules, project(store))
    assert site.counts() == dict.fromkeys(
        ["/", "/list", "/list/2", "/item1", "/item2", "/item3"], 1
    )
    assert stats["item_scraped_count"] == 3


async def test_the_rules_of_a_redis_crawl_spider_apply_to_its_start_pages(store: Server) -> None:
    class Follow(RedisCrawlSpider):
        name = "follow"
        rules = (Rule(LinkExtractor(), callback="parse_page", follow=True),)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            domain = kwargs.pop("domain", "")
            self.allowed_domains: Any = filter(None, domain.split(","))
            super().__init__(*args, **kwargs)

        def parse_page(self, response: Any) -> Any:
            return {"url": response.url}

    pages = {"/": links("/a", "/b"), "/a": links("/c"), "/b": links("/d")}
    with Site(lambda hit: pages.get(hit.path, Page())) as site:
        store.client().rpush("follow:start_urls", f"{site.url}/")
        stats = await crawl(Follow, project(store), domain="127.0.0.1")
    assert site.counts() == dict.fromkeys(["/", "/a", "/b", "/c", "/d"], 1)
    assert stats["item_scraped_count"] == 4


async def test_a_sitemap_spider_reads_the_addresses_of_sitemaps_from_redis(store: Server) -> None:
    class Maps(RedisMixin, SitemapSpider):
        name = "maps"
        sitemap_rules = (("/product/", "parse_product"),)

        def parse_product(self, response: Any) -> Any:
            yield {"path": response.url}

    site_map = "<urlset><url><loc>{0}/product/1</loc></url><url><loc>{0}/x</loc></url></urlset>"

    def answer(hit: Hit) -> Page:
        if hit.path == "/robots.txt":
            return Page(f"Sitemap: {site.url}/sitemap.xml")
        return Page(site_map.format(site.url)) if hit.path == "/sitemap.xml" else Page()

    with Site(answer) as site:
        store.client().rpush("maps:start_urls", f"{site.url}/robots.txt")
        stats = await crawl(Maps, project(store))
    assert site.paths() == ["/robots.txt", "/sitemap.xml", "/product/1"]
    assert stats["item_scraped_count"] == 1


async def test_forms_callbacks_errbacks_and_arguments_travel(store: Server) -> None:
    class Forms(Spider):
        name = "forms"

        def parse(self, response: Any) -> Any:
            yield FormRequest(
                response.urljoin("/form"),
                formdata={"q": "ä", "n": ["1", "2"]},
                callback=self.parse_form,
                errback=self.failed,
                cb_kwargs={"page": {"n": [1, (2, 3)]}},
                meta={"deep": {"set": {1, 2}}},
                headers={"X-Token": "t"},
                cookies={"sid": "7"},
            )
            yield Request(response.urljoin("/missing"), self.parse_form, errback=self.failed)

        def parse_form(self, response: Any, page: Any = None) -> Any:
            yield {"page": page, "meta": response.meta["deep"]}

        def failed(self, failure: Any) -> Any:
            yield {"failed": failure.value.response.status, "url": failure.request.url}

    with Site(lambda hit: Page(status=404 if hit.path == "/missing" else 200)) as site:
        Forms.start_urls = [f"{site.url}/"]
        items: list[Any] = []
        await crawl(Forms, project(store, ITEM_PIPELINES={keeping(items): 1}))
    (form,) = [hit for hit in site.hits if hit.path == "/form"]
    assert (form.method, form.body) == ("POST", b"q=%C3%A4&n=1&n=2")
    assert (form.headers["x-token"], form.headers["cookie"]) == ("t", "sid=7")
    assert {"page": {"n": [1, (2, 3)]}, "meta": {"set": {1, 2}}} in items
    assert {"failed": 404, "url": f"{site.url}/missing"} in items


def keeping(items: list[Any]) -> type:
    """A pipeline that keeps items here."""

    class Keep:
        def process_item(self, item: Any) -> Any:
            items.append(item)
            return item

    return Keep


async def test_retries_and_redirects_are_done_once_each(store: Server) -> None:
    class Moves(Spider):
        name = "moves"

        def parse(self, response: Any) -> Any:
            if response.url.endswith("/"):
                yield from (Request(response.urljoin(path)) for path in ("/old", "/weak", "/new"))
            yield {"path": response.url, "retried": response.meta.get("retry_times", 0)}

    def answer(hit: Hit) -> Page:
        if hit.path == "/old":
            return Page(status=301, headers=(("Location", "/new"),))
        weak = hit.path == "/weak" and site.counts()["/weak"] < 3
        return Page(status=503 if weak else 200)

    with Site(answer) as site:
        Moves.start_urls = [f"{site.url}/"]
        items: list[Any] = []
        changes = {"RETRY_ENABLED": True, "RETRY_TIMES": 4, "ITEM_PIPELINES": {keeping(items): 1}}
        stats = await crawl(Moves, project(store, **changes))
    assert site.counts()["/weak"] == 3
    assert [item["retried"] for item in items if item["path"].endswith("/weak")] == [2]
    assert [item for item in items if item["path"].endswith("/new")]
    assert stats["retry/count"] == 2


async def test_requests_that_are_not_filtered_come_as_often_as_they_are_yielded(
    store: Server,
) -> None:
    class Twice(Spider):
        name = "twice"

        def parse(self, response: Any) -> Any:
            if response.url.endswith("/"):
                for filtered in (True, True, False, False):
                    path = "/filtered" if filtered else "/again"
                    yield Request(response.urljoin(path), dont_filter=not filtered)

    with Site() as site:
        Twice.start_urls = [f"{site.url}/"]
        stats = await crawl(Twice, project(store))
    assert site.counts() == {"/": 1, "/filtered": 1, "/again": 2}
    assert stats["dupefilter/filtered"] == 1


async def test_larger_priorities_go_first(store: Server) -> None:
    class Ranked(Spider):
        name = "ranked"

        def parse(self, response: Any) -> Any:
            if response.url.endswith("/"):
                for rank in (1, 9, 5, -3, 7, 0):
                    yield Request(response.urljoin(f"/{rank}"), priority=rank)

    with Site() as site:
        Ranked.start_urls = [f"{site.url}/"]
        await crawl(Ranked, project(store, CONCURRENT_REQUESTS=1, ORBWEB_PREFETCH=1))
    assert site.paths() == ["/", "/9", "/7", "/5", "/1", "/0", "/-3"]


async def test_what_cannot_travel_is_said_counted_and_crawled_here(
    store: Server, caplog: pytest.LogCaptureFixture
) -> None:
    class Local(Spider):
        name = "local"

        def parse(self, response: Any) -> Any:
            if response.url.endswith("/"):
                yield Request(response.urljoin("/a"), meta={"handle": object()})
                yield Request(response.urljoin("/b"))

    with Site() as site:
        Local.start_urls = [f"{site.url}/"]
        stats = await crawl(Local, project(store))
    assert site.counts() == {"/": 1, "/a": 1, "/b": 1}
    assert stats["scheduler/unserializable"] == 1
    assert "meta['handle']" in caplog.text or "meta" in caplog.text


async def test_an_entry_becomes_what_the_project_makes_of_it(store: Server) -> None:
    class Made(RedisSpider):
        name = "made"

        def make_request_from_data(self, data: bytes) -> Any:
            record = json.loads(data)
            if record["pages"] < 0:
                raise ValueError("pages cannot be negative")
            for page in range(record["pages"]):
                yield Request(f"{record['base']}/p{page}", meta={"id": record["id"]})

        def parse(self, response: Any) -> Any:
            yield {"id": response.meta["id"]}

    with Site() as site:
        for pages in (2, -1, 0, 3):
            entry = {"base": f"{site.url}/{pages}", "pages": pages, "id": pages}
            store.client().rpush("made:start_urls", json.dumps(entry))
        stats = await crawl(Made, project(store))
    assert site.counts() == dict.fromkeys(["/2/p0", "/2/p1", "/3/p0", "/3/p1", "/3/p2"], 1)
    assert stats["orbweb/start_entries/refused"] == 1
    (bad,) = store.client().lrange("made:start_urls:bad", 0, -1)
    assert json.loads(bad)["reason"] == "ValueError: pages cannot be negative"


async def test_a_coroutine_may_make_the_request_of_an_entry(store: Server) -> None:
    class Awaited(RedisSpider):
        name = "awaited"

        async def make_request_from_data(self, data: bytes) -> Any:
            return [Request(data.decode())]

        def parse(self, response: Any) -> Any: ...

    with Site() as site:
        store.client().rpush("awaited:start_urls", f"{site.url}/x")
        await crawl(Awaited, project(store))
    assert site.paths() == ["/x"]


@pytest.mark.parametrize("kind", ["list", "set", "zset"])
async def test_entries_come_from_lists_sets_and_sorted_sets(store: Server, kind: str) -> None:
    class Kinds(RedisSpider):
        name = "kinds"
        redis_batch_size = 1

        def parse(self, response: Any) -> Any: ...

    with Site() as site:
        entries = {f"{site.url}/{n}": n for n in range(4)}
        if kind == "list":
            store.client().rpush("kinds:start_urls", *entries)
        elif kind == "set":
            store.client().sadd("kinds:start_urls", *entries)
        else:
            store.client().zadd("kinds:start_urls", entries)
        changes = {"CONCURRENT_REQUESTS": 1, "ORBWEB_PREFETCH": 1}
        await crawl(Kinds, project(store, **changes))
    expected = {"list": ["/0", "/1", "/2", "/3"], "zset": ["/3", "/2", "/1", "/0"]}
    assert site.paths() == expected.get(kind, site.paths())
    assert sorted(site.paths()) == ["/0", "/1", "/2", "/3"]
    assert not store.client().exists("kinds:start_urls")


async def test_keys_are_read_in_the_order_of_their_rank(store: Server) -> None:
    class Ranks(RedisSpider):
        name = "ranks"
        redis_key = ("%(name)s:high", "%(name)s:low")
        redis_batch_size = 2

        def parse(self, response: Any) -> Any: ...

    with Site() as site:
        store.client().rpush("ranks:low", *(f"{site.url}/low{n}" for n in range(4)))
        store.client().rpush("ranks:high", *(f"{site.url}/high{n}" for n in range(4)))
        await crawl(Ranks, project(store, CONCURRENT_REQUESTS=1, ORBWEB_PREFETCH=1))
    assert [path[:4] for path in site.paths()] == ["/hig"] * 4 + ["/low"] * 4
