"""What people complained of in scrapy-redis, 14 to 23: memory, filters, order, politeness."""

from __future__ import annotations

import asyncio
import bisect
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest
from redis.crc import key_slot
from scrapy import Request, Spider
from tests.scrapy.crawls import Worker, crawl, project
from tests.scrapy.processes import tree
from tests.scrapy.site import Hit, Page, Site, links
from tests.scrapy.test_complaints_fleet import at, until
from tests.servers import Server

from orbweb.adapters.scrapy.spiders import RedisSpider
from orbweb.frontier.admin import Admin
from orbweb.frontier.servers import OneServer

QUEUES = "orbweb.adapters.scrapy.queue"


async def test_14_what_a_finished_run_has_left_is_collected(store: Server) -> None:
    with Site(tree(30)) as site:
        await crawl(at(site), project(store))
    servers = OneServer(store.url)
    try:
        admin = Admin(servers, "orbweb")
        admin.now = int(time.time() * 1000) + 120_000
        for info in await admin.runs():
            await admin.reset(info, seen=True)
        while (await admin.collect())[0]:
            pass
    finally:
        await servers.aclose()
    assert [key for key in store.client().keys("*") if b":run:" in key] == []


async def test_14_a_full_store_slows_the_crawl_down_and_loses_nothing(store: Server) -> None:
    client = store.client()
    with Site(tree(80, delay=0.02)) as site:
        running = asyncio.ensure_future(crawl(at(site), project(store, CONCURRENT_REQUESTS=4)))
        await until(lambda: len(site.hits) >= 20)
        client.config_set("maxmemory", "1mb")
        await asyncio.sleep(1.0)
        hits = len(site.hits)
        client.config_set("maxmemory", "0")
        stats = await running
    assert hits < 80
    assert len(site.counts()) == 80
    assert stats["finish_reason"] == "finished"


@pytest.mark.parametrize("kind", ["exact", "bloom"])
async def test_15_two_workers_that_find_the_same_pages_take_each_once(
    store: Server, kind: str
) -> None:
    everything = links(*(f"/{n}" for n in range(1, 41)))
    changes = {"ORBWEB_DEDUP_FILTER": kind, "ORBWEB_DEDUP_CAPACITY": 10_000}
    settings = project(store, CONCURRENT_REQUESTS=4, **changes)
    with Site(lambda hit: everything) as site:
        workers = [Worker(at(site), settings) for _ in range(2)]
        await asyncio.gather(*(worker.run() for worker in workers))
    again = {path: count for path, count in site.counts().items() if count > 1 and path != "/"}
    assert not again  # the first page itself is not filtered, as Scrapy's are
    assert len(site.counts()) == 41


async def test_16_what_waits_and_what_is_remembered_are_told_apart(store: Server) -> None:
    with Site(tree(200)) as site:
        worker = Worker(at(site), project(store, SCHEDULER_PERSIST=True, ORBWEB_STOP_AFTER=20))
        await worker.run()
    servers = OneServer(store.url)
    try:
        admin = Admin(servers, "orbweb")
        (info,) = await admin.runs("scrapybot.tree")
        place = await admin.seen.find("scrapybot.tree")
        weight = await admin.weigh(place)
    finally:
        await servers.aclose()
    assert info.status.queued >= 20
    assert place.count >= info.status.queued + 19
    assert weight.waiting_bytes >= 100 * info.status.queued
    assert 8 * place.count <= weight.seen_bytes <= 300 * place.count


async def test_17_requests_that_are_not_filtered_are_never_merged(store: Server) -> None:
    class Same(Spider):
        name = "same"

        def parse(self, response: Any) -> Any:
            if response.url.endswith("/"):
                for _ in range(100):
                    yield Request(response.urljoin("/same"), dont_filter=True)

    with Site() as site:
        await crawl(at(site, Same), project(store))
    assert site.counts()["/same"] == 100


async def test_18_priorities_are_exact_and_first_in_first_out_within(store: Server) -> None:
    dice = random.Random(7)
    ranks = [[(dice.randrange(5), n) for n in range(20 * k, 20 * k + 20)] for k in range(3)]

    class Ranked(Spider):
        name = "ranked"

        def parse(self, response: Any) -> Any:
            for rank, n in ranks[int(response.url[-1])]:
                yield Request(response.urljoin(f"/r{rank}/{n}"), self.parse_item, priority=rank)

        def parse_item(self, response: Any) -> Any: ...

    class Three(Ranked):
        async def start(self) -> Any:
            for k in range(3):
                yield Request(f"{site.url}/list{k}", priority=100 - k)

    with Site() as site:
        # three workers put requests in, then one takes them out
        settings = project(store, SCHEDULER_PERSIST=True, ORBWEB_PREFETCH=1, CONCURRENT_REQUESTS=1)
        for _ in range(3):
            await crawl(Three, {**settings, "ORBWEB_STOP_AFTER": 1})
        lists = [path for path in site.paths() if path.startswith("/list")]
        assert lists == ["/list0", "/list1", "/list2"]
        del site.hits[:]
        await crawl(Three, settings)
    taken = [path for path in site.paths() if path.startswith("/r")]
    found = [(-int(path[2]), int(path.rpartition("/")[2])) for path in taken]
    assert len(found) == 60
    assert [rank for rank, _ in found] == sorted(rank for rank, _ in found)
    assert longest_rise(found) >= 60 - 3  # what a worker that stops gives back comes once more


def longest_rise(values: list[tuple[int, int]]) -> int:
    """How many members of a list stand in order."""
    ends: list[tuple[int, int]] = []
    for value in values:
        place = bisect.bisect_left(ends, value)
        ends[place : place + 1] = [value]
    return len(ends)


@pytest.mark.parametrize("queue", ["FifoQueue", "LifoQueue"])
async def test_19_breadth_or_depth_first_is_a_setting(store: Server, queue: str) -> None:
    def answer(hit: Hit) -> Page:  # eight branches of five pages each
        if hit.path == "/":
            return links(*(f"/{branch}1" for branch in "abcdefgh"))
        depth = int(hit.path[2])
        return links(f"{hit.path[:2]}{depth + 1}") if depth < 5 else Page()

    changes = {"CONCURRENT_REQUESTS": 1, "ORBWEB_PREFETCH": 1}
    with Site(answer) as site:
        await crawl(at(site), project(store, SCHEDULER_QUEUE_CLASS=f"{QUEUES}.{queue}", **changes))
    depths = [int(path[2:] or 0) for path in site.paths()]
    if queue == "FifoQueue":
        assert depths == sorted(depths)
    else:  # a page or two are fetched ahead; still a branch ends before most others begin
        assert depths[: depths.index(5)].count(1) <= 4


async def test_20_a_slow_host_does_not_hold_up_a_fast_one(store: Server) -> None:
    class Two(Spider):
        name = "two"

        async def start(self) -> Any:
            for n in range(40):
                yield Request(f"{slow.url}/{n}")
            for n in range(40):
                yield Request(f"{fast.url.replace('127.0.0.1', 'localhost')}/{n}")

        def parse(self, response: Any) -> Any: ...

    changes = {"CONCURRENT_REQUESTS": 8, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    with Site(lambda hit: Page(delay=0.4)) as slow, Site(lambda hit: Page(delay=0.01)) as fast:
        await crawl(Two, project(store, **changes))
        began = min(slow.hits[0].at, fast.hits[0].at)
    assert len(slow.hits) == len(fast.hits) == 40
    assert fast.hits[-1].at - began < 0.6 * (slow.hits[-1].at - began)


async def test_21_the_rate_of_a_host_holds_for_all_workers_together(store: Server) -> None:
    settings = project(store, ORBWEB_FLEET_POLITENESS=True, DOWNLOAD_DELAY=0.1)
    with Site(tree(30)) as site:
        workers = [Worker(at(site), settings) for _ in range(3)]
        await asyncio.gather(*(worker.run() for worker in workers))
    gaps = sorted(later.at - earlier.at for earlier, later in pairwise(site.hits))
    assert len(site.counts()) == 30
    assert gaps[len(gaps) // 5] >= 0.09  # the site's own threads are late now and then
    assert 0.1 <= (site.hits[-1].at - site.hits[0].at) / len(gaps) < 0.3


@pytest.mark.parametrize("workers", [1, 2])
async def test_21_concurrency_on_a_host_holds_although_scrapys_own_does_not(
    store: Server, workers: int
) -> None:
    fleet = workers > 1  # else it is left to Scrapy
    settings = project(store, ORBWEB_FLEET_POLITENESS=fleet, CONCURRENT_REQUESTS_PER_DOMAIN=2)
    with Site(tree(24, delay=0.05)) as site:
        crawls = [crawl(at(site), settings) for _ in range(workers)]
        await asyncio.gather(*crawls)
    assert len(site.counts()) == 24
    assert site.most_open == 2


def in_seconds(seconds: int) -> str:
    return str(seconds)


def at_a_time(seconds: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize("written", [in_seconds, at_a_time])
async def test_22_a_host_that_asks_for_a_pause_gets_it_from_all(
    store: Server, written: Callable[[int], str]
) -> None:
    def answer(hit: Hit) -> Page:
        if hit.path == "/" or site.counts()[hit.path] > 1:
            return links("/busy") if hit.path == "/" else Page()
        return Page(status=429, headers=(("Retry-After", written(2)),))

    changes = {"RETRY_ENABLED": True, "ORBWEB_FLEET_POLITENESS": True}
    with Site(answer) as site:
        await crawl(at(site), project(store, **changes))
    first, second = (hit.at for hit in site.hits if hit.path == "/busy")
    assert second - first >= 1.0  # a time has no fractions of a second


async def test_22_a_request_may_wait_without_taking_anybodys_place(store: Server) -> None:
    class Later(Spider):
        name = "later"

        def parse(self, response: Any) -> Any:
            if response.url.endswith("/"):
                yield Request(response.urljoin("/later"), meta={"orbweb_delay": 0.7, "n": 1})
                yield Request(response.urljoin("/wrong"), meta={"orbweb_delay": "soon"})
                for n in range(5):
                    yield Request(response.urljoin(f"/{n}"))
            elif response.url.endswith("/later"):
                assert response.meta["n"] == 1

    changes = {"CONCURRENT_REQUESTS": 1, "SCHEDULER_PERSIST": True}
    with Site() as site:
        stats = await crawl(at(site, Later), project(store, **changes))
    arrived = {hit.path: hit.at for hit in site.hits}
    assert site.paths()[-1] == "/later"
    assert arrived["/later"] - arrived["/"] >= 0.7
    assert "/wrong" not in arrived
    assert stats["finish_reason"] == "finished"
    (why,) = store.client().keys("*:why")
    (reason,) = store.client().hvals(why)
    assert b"not a number of seconds" in reason


async def test_15_what_must_not_be_dropped_is_kept_apart_exactly(store: Server) -> None:
    class Orders(Spider):
        name = "orders"

        def parse(self, response: Any) -> Any:
            for n in range(300):
                meta = {"orbweb_exact": n % 2 == 0}
                yield Request(response.urljoin(f"/{n}"), self.parse_item, meta=meta)

        def parse_item(self, response: Any) -> Any: ...

    changes = {"ORBWEB_DEDUP_CAPACITY": 64, "ORBWEB_DEDUP_ERROR_RATE": 0.5}
    with Site() as site:
        await crawl(at(site, Orders), project(store, ORBWEB_DEDUP_FILTER="bloom", **changes))
    found = {int(path[1:]) for path in site.counts() if path != "/"}
    assert set(range(0, 300, 2)) <= found
    assert len(found) < 300  # the filter, made too small on purpose, has dropped some others


async def test_23_all_keys_of_a_crawl_lie_in_one_slot_of_a_cluster(store: Server) -> None:
    class Slots(RedisSpider):
        name = "slots"
        redis_key = "{orbweb:0}:%(name)s:start_urls"

        def parse(self, response: Any) -> Any:
            yield Request(response.urljoin("/next"))

    with Site() as site:
        store.client().rpush("{orbweb:0}:slots:start_urls", f"{site.url}/", "bad entry")
        await crawl(Slots, project(store))
    slots = {key_slot(key) for key in store.client().keys("*")}
    assert len(slots) == 1
