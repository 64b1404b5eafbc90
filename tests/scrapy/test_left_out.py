"""Requests that are not taken: the store counts them by reason, as it does for other spiders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import IgnoreRequest
from scrapy.signals import request_scheduled
from tests.scrapy.crawls import Worker, crawl, project
from tests.scrapy.site import Site, links
from tests.scrapy.test_engine_room import run_of
from tests.servers import Server

from orbweb.adapters.scrapy.spiders import RedisSpider

FORBIDDEN = "/forbidden"


def forbid(request: Request, spider: Spider) -> None:
    """A handler of the project's."""
    if request.url.endswith(FORBIDDEN):
        raise IgnoreRequest("the project does not want it")


class Seeds(Spider):
    """Gives two requests that are taken, and six that are not."""

    name = "seeds"
    allowed_domains = ("127.0.0.1",)
    site = ""
    raises = False

    async def start(self) -> Any:
        self.crawler.signals.connect(forbid, signal=request_scheduled)
        for url in (f"{self.site}/0", f"{self.site}/0", "http://a.example/", "http://b.example/"):
            yield Request(url)
        yield Request(f"{self.site}/{'x' * 3000}")
        yield Request(f"{self.site}{FORBIDDEN}")
        yield Request("http://c.example/")
        if self.raises:
            raise RuntimeError("the source of the seeds is away")
        yield Request(f"{self.site}/1")

    def parse(self, response: Any) -> None:
        """Nothing is found."""


LEFT_OUT = {"duplicate_request": 1, "offsite": 3, "url_length": 1, "cancelled": 1}


async def reasons(store: Server, job: str) -> Mapping[str, int]:
    return (await run_of(store, f"scrapybot.{job}")).status.reasons


async def test_seeds_that_are_left_out_are_counted_by_reason(store: Server) -> None:
    with Site() as site:
        await crawl(Seeds, project(store, SCHEDULER_PERSIST=True), site=site.url)
    assert await reasons(store, "seeds") == {"done": 2, **LEFT_OUT}


async def test_a_start_that_runs_again_counts_no_seed_twice(store: Server) -> None:
    with Site() as site:
        settings = project(store, SCHEDULER_PERSIST=True)
        await Worker(Seeds, settings, site=site.url, raises=True).run()
        assert await reasons(store, "seeds") == {"done": 1, **LEFT_OUT}
        await Worker(Seeds, settings, site=site.url).run()
    again = {**LEFT_OUT, "duplicate_request": 3}  # both requests for the page are there already
    assert await reasons(store, "seeds") == {"done": 2, **again}


class Entries(RedisSpider):
    """Makes an offsite request of each entry, and one that is taken."""

    name = "entries"
    redis_key = "entries:start_urls"
    allowed_domains: ClassVar = ["127.0.0.1"]

    def make_request_from_data(self, data: bytes) -> Any:
        yield Request("http://a.example/")
        yield Request(data.decode())

    def parse(self, response: Any) -> None:
        """Nothing is found."""


async def test_what_start_entries_ask_for_is_counted_too(store: Server) -> None:
    with Site() as site:
        store.client().rpush("entries:start_urls", f"{site.url}/0", f"{site.url}/1")
        await crawl(Entries, project(store, SCHEDULER_PERSIST=True, MAX_IDLE_TIME_BEFORE_CLOSE=1))
    counted = await reasons(store, "entries")
    assert (counted["offsite"], counted["done"]) == (2, 2)


class Tree(Spider):
    name = "tree"

    def parse(self, response: Any) -> Any:
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


@pytest.mark.parametrize("concurrency", [1, 16])
async def test_links_that_this_worker_knows_are_counted_as_those_that_the_store_does(
    store: Server, concurrency: int
) -> None:
    pages = {"/0": links("/1", "/1", "/2"), "/1": links("/2", "/0"), "/2": links("/1")}
    with Site(lambda hit: pages[hit.path]) as site:
        kind = type("Tree", (Tree,), {"start_urls": [f"{site.url}/0"]})
        settings = project(store, SCHEDULER_PERSIST=True, CONCURRENT_REQUESTS=concurrency)
        await crawl(kind, settings)
    # The start request is not to be filtered, so the store does not know it: the link to it enters.
    assert await reasons(store, "tree") == {"done": 4, "duplicate_request": 6}
