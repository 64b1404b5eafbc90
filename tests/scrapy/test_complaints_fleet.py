"""What people complained of in scrapy-redis, 1 to 13: several workers, their end, the store."""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scrapy import Spider
from tests.scrapy.crawls import Worker, crawl, project
from tests.scrapy.processes import start_worker, tree
from tests.scrapy.site import Hit, Page, Site, links
from tests.scrapy.worker import RedisTree, Tree
from tests.servers import Server

from orbweb.adapters.scrapy.pipelines import RedisPipeline
from orbweb.adapters.scrapy.spiders import RedisSpider
from orbweb.cli.dedup import forget


def at(site: Site, spider: type[Spider] = Tree) -> type[Spider]:
    """The spider, made for this site."""
    return type(spider.__name__, (spider,), {"start_urls": [f"{site.url}/"]})


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait for a condition; fails when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        await asyncio.sleep(0.005)


async def test_01_what_a_killed_worker_held_is_done_by_another(store: Server) -> None:
    settings = project(store, ORBWEB_LEASE=1.5, SCHEDULER_PERSIST=True)
    with Site(tree(200, delay=0.02)) as site:
        killed = start_worker("tree", f"{site.url}/", settings)
        await until(lambda: len(site.hits) >= 30, seconds=30)
        killed.kill()
        killed.communicate()
        before = len(site.hits)
        await crawl(at(site), settings)
    assert before < 150
    assert len(site.counts()) == 200
    assert len(site.hits) <= 200 + 2 * 16  # what it held is fetched again, nothing else


async def test_02_a_page_can_be_forgotten_and_is_then_crawled_again(store: Server) -> None:
    class Seeded(RedisSpider):
        name = "seeded"

        def parse(self, response: Any) -> Any: ...

    settings = project(store, SCHEDULER_PERSIST=True)
    with Site() as site:
        entry = f'{{"url": "{site.url}/page", "dont_filter": false}}'
        for expected in (1, 1, 2):
            if expected == 2:
                await asyncio.to_thread(forget_page, store, f"{site.url}/page")
            store.client().rpush("seeded:start_urls", entry)
            await crawl(Seeded, settings)
            assert len(site.hits) == expected


def forget_page(store: Server, url: str) -> None:
    from orbweb.settings import load_settings

    settings = load_settings(
        overrides={"REDIS_URL": store.url}, directory=Path(store.directory), environ={}
    )
    what = {"host": None, "older_than": None, "yes": True, "made_by": "scrapy"}
    forget(settings, "scrapybot.seeded", None, [url], **what)


async def test_03_a_stopped_crawl_goes_on_and_a_finished_one_says_so(
    store: Server, caplog: pytest.LogCaptureFixture
) -> None:
    settings = project(store, SCHEDULER_PERSIST=True, CONCURRENT_REQUESTS=4)
    with Site(tree(60, delay=0.01)) as site:
        worker = Worker(at(site), settings)
        running = asyncio.ensure_future(worker.run())
        await until(lambda: len(site.hits) >= 30)
        await worker.stop()
        await running
        assert len(site.counts()) < 60
        await crawl(at(site), settings)
        assert len(site.counts()) == 60
        assert len(site.hits) <= 60 + 4
        caplog.clear()
        await crawl(at(site), settings)
        assert len(site.counts()) == 60
    (said,) = [r for r in caplog.records if "nothing to do" in r.getMessage()]
    assert said.levelno == logging.WARNING
    assert "60 pages done" in said.getMessage()


async def test_04_a_worker_that_stops_deletes_nothing_of_the_others(store: Server) -> None:
    settings = project(store, SCHEDULER_PERSIST=False, CONCURRENT_REQUESTS=4)
    with Site(tree(120, delay=0.01)) as site:
        one, two = Worker(at(site), settings), Worker(at(site), settings)
        both = [asyncio.ensure_future(worker.run()) for worker in (one, two)]
        await until(lambda: len(site.hits) >= 40)
        await one.stop()
        await asyncio.gather(*both)
    assert len(site.counts()) == 120
    assert len(site.hits) <= 121
    assert two.stats["finish_reason"] == "finished"


async def test_05_no_worker_closes_while_another_may_give_it_work(store: Server) -> None:
    def answer(hit: Hit) -> Page:
        if hit.path == "/":
            return links(*(f"/{n}" for n in range(1, 41)))._replace(delay=1.0)
        return Page(delay=0.1)

    settings = project(store, CONCURRENT_REQUESTS=4)
    with Site(answer) as site:
        workers = [Worker(at(site), settings) for _ in range(2)]
        await asyncio.gather(*(worker.run() for worker in workers))
        ended = time.monotonic()
    shares = [worker.stats.get("response_received_count", 0) for worker in workers]
    assert sum(shares) == 41
    assert min(shares) >= 5
    assert ended - site.hits[-1].at < 2


async def test_06_the_idle_time_counts_from_the_last_event_of_the_crawl(store: Server) -> None:
    settings = project(store, MAX_IDLE_TIME_BEFORE_CLOSE=1)
    del settings["ORBWEB_KEEP_ALIVE"]

    class Once(RedisSpider):
        name = "once"
        spider_idle_start_time = 0  # as if it had been imported long ago

        def parse(self, response: Any) -> Any: ...

    with Site(lambda hit: Page(delay=1.3)) as site:
        store.client().rpush("once:start_urls", f"{site.url}/")
        await crawl(Once, settings)
        idle = time.monotonic() - (site.hits[-1].at + 1.3)
    assert 0.9 < idle < 2.0


async def test_07_waiting_before_closing_does_not_block_the_crawl(store: Server) -> None:
    fifo = "orbweb.adapters.scrapy.queue.FifoQueue"
    spans, slips = {}, {}
    for wait in (0, 1):
        store.client().flushall()
        settings = project(store, SCHEDULER_QUEUE_CLASS=fifo, SCHEDULER_IDLE_BEFORE_CLOSE=wait)
        with Site(tree(100)) as site:
            ticking = asyncio.ensure_future(tick(slips.setdefault(wait, [])))
            await crawl(at(site), settings)
            closed = time.monotonic()
            ticking.cancel()
        spans[wait] = site.hits[-1].at - site.hits[0].at
        assert closed - site.hits[-1].at >= wait
    assert spans[1] < 3 * spans[0] + 0.5  # scrapy-redis: ten times
    assert len(slips[1]) > 10  # the loop goes round while the worker waits
    assert statistics.median(slips[1]) < 0.1


async def tick(slips: list[float], every: float = 0.05) -> None:
    """Note how late the loop is."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(every)
        slips.append(time.monotonic() - began - every)


async def test_08_a_page_costs_at_most_two_calls_of_the_store(store: Server) -> None:
    def answer(hit: Hit) -> Page:
        return links(*(f"/{n}" for n in range(1, 61)))

    with Site(answer) as site:
        before = calls(store)
        await crawl(at(site), project(store))
    assert len(site.counts()) == 61
    assert calls(store) - before <= 2 * 61  # scrapy-redis: 62 a page, one for each link


def calls(store: Server) -> int:
    """Commands that clients have sent, without those of scripts."""
    stats = store.client().info("commandstats")
    return sum(
        stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval", "blmove")
    )


async def test_09_start_entries_are_taken_whenever_there_is_room(store: Server) -> None:
    class Many(RedisSpider):
        name = "many"

        def parse(self, response: Any) -> Any: ...

    with Site(lambda hit: Page(delay=1.0 if "slow" in hit.path else 0.0)) as site:
        urls = [f"{site.url}/{'slow' if n % 20 == 0 else 'fast'}{n}" for n in range(100)]
        store.client().rpush("many:start_urls", *urls)
        changes = {"CONCURRENT_REQUESTS": 8, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
        await crawl(Many, project(store, **changes))
        fast = [hit.at for hit in site.hits if "fast" in hit.path]
    assert len(site.counts()) == 100
    assert max(fast) - min(fast) < 2.5  # five slow ones never hold up the others


async def test_09_an_idle_worker_begins_at_once_with_a_new_entry(store: Server) -> None:
    settings = project(store, ORBWEB_KEEP_ALIVE=True)
    with Site(lambda hit: Page()) as site:
        worker = Worker(RedisTree, settings)
        running = asyncio.ensure_future(worker.run())
        waits = []
        for n in range(7):
            await asyncio.sleep(0.1)
            pushed = time.monotonic()
            store.client().rpush("redis_tree:start_urls", f"{site.url}/{n}")
            await until(lambda wanted=n: len(site.hits) > wanted)
            waits.append(site.hits[-1].at - pushed)
        await worker.stop()
        await running
    assert statistics.median(waits) < 0.2  # 50 ms on a quiet machine; scrapy-redis: 1.8 s


async def test_10_a_worker_whose_connections_break_goes_on(store: Server) -> None:
    with Site(tree(120, delay=0.02)) as site:
        running = asyncio.ensure_future(crawl(at(site), project(store, CONCURRENT_REQUESTS=4)))
        for pages in (20, 50, 80):
            await until(lambda wanted=pages: len(site.hits) >= wanted)
            store.client().client_kill_filter(_type="normal", skipme=True)
        stats = await running
    assert len(site.counts()) == 120
    assert stats["finish_reason"] == "finished"


async def test_11_one_seed_is_enough_for_two_workers(store: Server) -> None:
    settings = project(store, CONCURRENT_REQUESTS=4, ORBWEB_KEEP_ALIVE=True)
    with Site(tree(150, delay=0.02)) as site:
        workers = [Worker(RedisTree, settings) for _ in range(2)]
        running = [asyncio.ensure_future(worker.run()) for worker in workers]
        store.client().rpush("redis_tree:start_urls", f"{site.url}/0")
        await until(lambda: len(site.hits) >= 150)
        await asyncio.sleep(0.1)
        for worker in workers:
            await worker.stop()
        await asyncio.gather(*running)
    shares = [worker.stats.get("response_received_count", 0) for worker in workers]
    assert sum(shares) == 150
    assert min(shares) >= 0.3 * 150


async def test_12_an_outage_of_the_store_is_a_pause() -> None:
    server = Server("valkey", aof="always")
    changes = {"ITEM_PIPELINES": {RedisPipeline: 1}, "CONCURRENT_REQUESTS": 4}
    try:
        with Site(tree(100, delay=0.02)) as site:
            running = asyncio.ensure_future(crawl(at(site), project(server, **changes)))
            await until(lambda: len(site.hits) >= 40)
            server.kill()
            await asyncio.sleep(1.5)
            server.start()
            stats = await running
        assert len(site.counts()) == 100
        assert server.client().llen("tree:items") >= 100
        assert stats.get("log_count/ERROR", 0) == 0
    finally:
        server.stop()


async def test_12_a_worker_whose_store_is_gone_can_be_stopped() -> None:
    server = Server("valkey")
    try:
        with Site(tree(500, delay=0.02)) as site:
            worker = Worker(at(site), project(server, ORBWEB_GIVE_UP=1))
            running = asyncio.ensure_future(worker.run())
            await until(lambda: len(site.hits) >= 20)
            server.kill()
            await asyncio.sleep(0.3)
            began = time.monotonic()
            await worker.stop()
            await running
            assert time.monotonic() - began < 8
    finally:
        server.stop()


async def test_13_an_idle_worker_is_quiet(store: Server) -> None:
    class Quiet(RedisSpider):
        name = "quiet"

        def parse(self, response: Any) -> Any: ...

    client = store.client()
    connected = {each["id"] for each in client.client_list()}
    worker = Worker(Quiet, project(store, ORBWEB_KEEP_ALIVE=True))
    running = asyncio.ensure_future(worker.run())
    await until(lambda: any(each["cmd"] == "blmove" for each in client.client_list()))
    await asyncio.sleep(0.5)
    before = calls(store)
    await asyncio.sleep(2.5)
    assert calls(store) - before <= 1  # ten a minute; scrapy-redis: 120
    assert len({each["id"] for each in client.client_list()} - connected) <= 2
    await worker.stop()
    await running
