"""What becomes of a request under a lease, and how workers begin, end and hand over."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import CloseSpider
from tests.scrapy.crawls import Worker, crawl, project, until
from tests.scrapy.processes import start_worker, tree
from tests.scrapy.site import Hit, Page, Site, links
from tests.servers import Server

from orbweb.errors import StoreUnavailable
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.base import DeadLetter
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.operator import Author
from orbweb.frontier.servers import OneServer


class Tree(Spider):
    name = "tree"

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


def at(site: Site, spider: type[Spider] = Tree) -> type[Spider]:
    return type(spider.__name__, (spider,), {"start_urls": [f"{site.url}/0"]})


async def run_of(store: Server, job: str = "scrapybot.tree") -> RunInfo:
    servers = OneServer(store.url)
    try:
        (info,) = await Admin(servers, "orbweb").runs(job)
    finally:
        await servers.aclose()
    return info


async def dead_letters(store: Server, job: str = "scrapybot.tree") -> dict[str, DeadLetter]:
    """By reason."""
    servers = OneServer(store.url)
    try:
        admin = Admin(servers, "orbweb")
        (info,) = await admin.runs(job)
        return {letter.reason: letter async for letter in admin.dead_letters(info)}
    finally:
        await servers.aclose()


# -- what becomes of a request


async def test_a_page_whose_callback_raises_is_kept_and_its_links_enter(store: Server) -> None:
    class Half(Tree):
        def parse(self, response: Any) -> Any:
            yield from super().parse(response)
            if response.url.endswith("/0"):
                raise ValueError("half way")

    with Site(tree(13)) as site:
        await crawl(at(site, Half), project(store))
    assert len(site.hits) == 13
    dead = await dead_letters(store)
    assert set(dead) == {"callback_error"}
    assert "ValueError: half way" in dead["callback_error"].error


@pytest.mark.parametrize("handled", [False, True])
async def test_what_no_errback_takes_is_a_dead_letter(store: Server, handled: bool) -> None:
    class Fails(Tree):
        async def start(self) -> Any:
            for path in ("/gone", "/hang"):
                errback = self.failed if handled else None
                yield Request(f"{site.url}{path}", errback=errback)

        def failed(self, failure: Any) -> Any:
            yield Request(f"{site.url}/instead{failure.request.url[-5:]}")

    def answer(hit: Hit) -> Page:
        return Page(status=404 if hit.path == "/gone" else 200, delay=1.5 * (hit.path == "/hang"))

    with Site(answer) as site:
        await crawl(Fails, project(store, DOWNLOAD_TIMEOUT=0.5))
    dead = await dead_letters(store)
    if handled:
        assert not dead
        assert {"/instead/gone", "/instead/hang"} <= set(site.paths())
    else:
        assert set(dead) == {"status_rejected", "timeout"}
        assert dead["status_rejected"].error == f"HTTP status 404 for {site.url}/gone"


async def test_a_retry_takes_the_place_of_its_request_under_the_same_ack(store: Server) -> None:
    def answer(hit: Hit) -> Page:
        again = hit.path == "/0" and site.paths().count("/0") < 3
        return Page(status=503) if again else links("/1")

    with Site(answer) as site:
        settings = project(store, RETRY_ENABLED=True, RETRY_TIMES=2)
        stats = await crawl(at(site), settings)
    assert site.counts() == {"/0": 3, "/1": 1}
    assert stats["finish_reason"] == "finished"
    status = (await run_of(store)).status
    assert status.reasons["retry_wait"] == 2
    assert status.reasons["done"] == 2


async def test_a_page_that_is_reached_by_links_and_redirects_is_fetched_once(
    store: Server,
) -> None:
    def answer(hit: Hit) -> Page:
        if hit.path.startswith("/old"):
            return Page(status=302, headers=(("Location", "/new"),))
        return links("/old1", "/old2", "/new") if hit.path == "/0" else Page()

    with Site(answer) as site:
        await crawl(at(site), project(store))
    assert site.counts() == {"/0": 1, "/old1": 1, "/old2": 1, "/new": 1}
    reasons = (await run_of(store)).status.reasons
    assert reasons["redirected"] == 2


async def test_thousands_of_links_enter_before_their_page_has_ended(store: Server) -> None:
    class Long(Tree):
        async def parse(self, response: Any) -> Any:
            if not response.url.endswith("/0"):
                return
            for n in range(1, 1301):
                yield Request(f"{site.url}/{n}")
            await until(lambda: len(site.hits) > 50)

    with Site() as site:
        await crawl(at(site, Long), project(store, CONCURRENT_REQUESTS_PER_DOMAIN=16))
    assert len(site.counts()) == len(site.hits) == 1301


async def test_items_that_a_pipeline_refuses_are_told_with_their_page(store: Server) -> None:
    class Refuses:
        def process_item(self, item: Any) -> Any:
            raise KeyError("price")

    with Site(tree(2)) as site:
        await crawl(at(site), project(store, ITEM_PIPELINES={Refuses: 1}))
    assert len(site.hits) == 2
    assert (await dead_letters(store))["item_rejected"].error == "KeyError: 'price'"


async def test_a_page_whose_items_found_no_store_comes_again(store: Server) -> None:
    class AwayOnce:
        away = True

        def process_item(self, item: Any) -> Any:
            if AwayOnce.away:
                AwayOnce.away = False
                raise StoreUnavailable("the items have no place")
            return item

    with Site(tree(4)) as site:
        await crawl(at(site), project(store, ITEM_PIPELINES={AwayOnce: 1}))
    assert site.counts()["/0"] == 2
    assert len(site.counts()) == 4
    assert not await dead_letters(store)


async def test_a_page_that_closes_the_spider_is_not_done(store: Server) -> None:
    class Closes(Tree):
        def parse(self, response: Any) -> Any:
            yield from super().parse(response)
            raise CloseSpider("enough")

    with Site(tree(4)) as site:
        stats = await crawl(at(site, Closes), project(store))
        assert stats["finish_reason"] == "enough"
        assert (await run_of(store)).status.queued == 1
        await crawl(at(site), project(store))
    assert site.counts() == {"/0": 2, "/1": 1, "/2": 1, "/3": 1}


async def test_a_page_is_not_done_before_what_only_this_worker_can_do(store: Server) -> None:
    seen: list[int] = []

    class Local(Tree):
        def parse(self, response: Any) -> Any:
            yield Request(f"{site.url}/local", callback=lambda answer: self.local(answer))

        async def local(self, response: Any) -> Any:
            seen.append((await run_of(store)).status.leased)
            yield Request(f"{site.url}/below", callback=self.below)

        def below(self, response: Any) -> Any: ...

    with Site() as site:
        stats = await crawl(at(site, Local), project(store))
    assert seen == [1]  # its page's lease
    assert site.counts() == {"/0": 1, "/local": 1, "/below": 1}
    assert stats["scheduler/unserializable"] == 1


# -- how workers begin


async def test_start_is_run_by_one_worker_of_the_fleet(store: Server) -> None:
    begun: list[str] = []

    class Seeds(Tree):
        async def start(self) -> Any:
            begun.append("start")
            for n in range(50):
                yield Request(f"{site.url}/{n}", dont_filter=True)
                await asyncio.sleep(0.005)

    with Site() as site:
        workers = [Worker(Seeds, project(store)) for _ in range(3)]
        await asyncio.gather(*(worker.run() for worker in workers))
    assert begun == ["start"]
    assert len(site.counts()) == len(site.hits) == 50


async def test_a_worker_that_stops_while_it_seeds_leaves_the_rest_to_another(
    store: Server,
) -> None:
    class Seeds(Tree):
        async def start(self) -> Any:
            for n in range(40):
                yield Request(f"{site.url}/{n}", dont_filter=True)
                await asyncio.sleep(0.02)

    with Site() as site:
        first, second = (Worker(Seeds, project(store)) for _ in range(2))
        running = asyncio.ensure_future(first.run())
        await until(lambda: len(site.hits) > 10)
        then = asyncio.ensure_future(second.run())
        await first.stop()
        await running
        await then
    assert len(site.counts()) == len(site.hits) == 40
    assert second.stats["finish_reason"] == "finished"


async def test_a_start_that_raises_ends_the_worker_and_the_next_one_runs_it_again(
    store: Server,
) -> None:
    class Seeds(Tree):
        broken = True

        async def start(self) -> Any:
            for n in range(3):
                yield Request(f"{site.url}/{n}", dont_filter=True)
            if Seeds.broken:
                raise ValueError("no more")
            yield Request(f"{site.url}/3", dont_filter=True)

    with Site() as site:
        stats = await crawl(Seeds, project(store))
        assert stats["finish_reason"] == "start_error"
        assert (await run_of(store)).status.seeding
        Seeds.broken = False
        await crawl(Seeds, project(store))
    assert site.counts() == {f"/{n}": 1 for n in range(4)}


async def test_a_finished_crawl_begins_anew_unless_it_is_kept(store: Server) -> None:
    with Site(tree(4)) as site:
        for _ in range(2):
            await crawl(at(site), project(store))
        assert len(site.hits) == 8
        for _ in range(2):
            await crawl(at(site), project(store, SCHEDULER_PERSIST=True, ORBWEB_JOB="kept"))
    assert len(site.hits) == 12


async def test_a_late_worker_of_a_fleet_does_not_begin_a_finished_crawl_anew(
    store: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with Site(tree(40, delay=0.02)) as site:
        workers = [Worker(at(site), project(store, CONCURRENT_REQUESTS=2)) for _ in range(2)]
        await asyncio.gather(*(worker.run() for worker in workers))
        stats = await crawl(at(site), project(store))
    assert stats["finish_reason"] == "finished"
    assert len(site.hits) == 40
    assert "nothing to do: scrapybot.tree was finished at" in caplog.text


async def test_flushing_at_the_start_spares_a_crawl_that_is_at_work(store: Server) -> None:
    with Site(tree(60, delay=0.02)) as site:
        settings = project(store, SCHEDULER_FLUSH_ON_START=True, CONCURRENT_REQUESTS=2)
        first, second = (Worker(at(site), settings) for _ in range(2))
        running = asyncio.ensure_future(first.run())
        await until(lambda: len(site.hits) > 5)
        await second.run()
        await running
        assert len(site.hits) == len(site.counts()) == 60
        stopped = Worker(at(site), {**settings, "ORBWEB_STOP_AFTER": 5})
        await stopped.run()
        assert len(site.hits) == 65
        await crawl(at(site), settings)
    assert len(site.hits) == 125  # what the stopped one had left was flushed


# -- how they end


async def test_a_worker_that_stops_gives_back_at_once_what_has_not_begun(store: Server) -> None:
    with Site(tree(200, fan=20, delay=0.5)) as site:
        worker = Worker(at(site), project(store, CONCURRENT_REQUESTS=2, ORBWEB_PREFETCH=16))
        running = asyncio.ensure_future(worker.run())
        await until(lambda: len(site.hits) >= 2)
        await asyncio.sleep(0.1)
        stopping = asyncio.ensure_future(worker.stop())
        await asyncio.sleep(0.2)  # the two that are under way still are
        assert (await run_of(store)).status.leased <= 2
        await stopping
        await running
    status = (await run_of(store)).status
    assert status.leased == 0
    assert status.pending == status.queued > 0


async def test_sigusr1_lets_a_worker_finish_what_is_in_work(store: Server) -> None:
    with Site(tree(500, delay=0.02)) as site:
        worker = Worker(at(site), project(store, CONCURRENT_REQUESTS=4))
        running = asyncio.ensure_future(worker.run())
        await until(lambda: len(site.hits) >= 20)
        os.kill(os.getpid(), signal.SIGUSR1)
        stats = await running
    assert stats["finish_reason"] == "drained"
    assert stats["item_scraped_count"] == len(site.hits) < 500
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


async def test_an_operator_can_stop_all_workers(store: Server) -> None:
    with Site(tree(5000, delay=0.01)) as site:
        settings = project(store, ORBWEB_LEASE=5)
        workers = [Worker(at(site), settings) for _ in range(2)]
        running = [asyncio.ensure_future(worker.run()) for worker in workers]
        await until(lambda: len(site.hits) >= 50)
        servers = OneServer(store.url)
        admin = Admin(servers, "orbweb")
        await admin.stop((await admin.runs("scrapybot.tree"))[0])
        await servers.aclose()
        stats = await asyncio.gather(*running)
    assert [one["finish_reason"] for one in stats] == ["stopped", "stopped"]


async def test_a_worker_whose_run_is_gone_says_so(store: Server) -> None:
    with Site(tree(5000, delay=0.01)) as site:
        running = asyncio.ensure_future(crawl(at(site), project(store)))
        await until(lambda: len(site.hits) >= 20)
        store.client().flushall()
        stats = await running
    assert stats["finish_reason"] == "run_lost"
    assert store.client().hkeys(ShardKeys("orbweb").alerts("lost")) == [b"scrapybot.tree/"]


@pytest.mark.parametrize("author", [Author("li", "too old"), None])
async def test_a_reset_run_is_an_alarm_only_if_nobody_answers_for_it(
    store: Server, author: Author | None, caplog: pytest.LogCaptureFixture
) -> None:
    with Site(tree(5000, delay=0.01)) as site:
        running = asyncio.ensure_future(crawl(at(site), project(store)))
        await until(lambda: len(site.hits) >= 20)
        servers = OneServer(store.url)
        admin = Admin(servers, "orbweb")
        await admin.reset((await admin.runs("scrapybot.tree"))[0], seen=True, author=author)
        await servers.aclose()
        stats = await running
    assert stats["finish_reason"] == "run_lost"
    noted = store.client().hkeys(ShardKeys("orbweb").alerts("lost"))
    assert noted == ([] if author else [b"scrapybot.tree/"])
    assert ("was reset by li (too old)" in caplog.text) == (author is not None)


def test_a_worker_without_a_store_does_not_begin(store: Server) -> None:
    with Site() as site:
        settings = project(store, REDIS_URL="redis://:secret@127.0.0.1:1/0")
        worker = start_worker("tree", f"{site.url}/0", settings)
        _, log = worker.communicate(timeout=60)
    assert not site.hits
    assert "no Redis or Valkey answers at redis://:***@127.0.0.1:1/0" in log


# -- among the project's middlewares


async def test_what_a_middleware_makes_of_an_error_passes_the_middlewares_that_follow(
    store: Server,
) -> None:
    depths: dict[str, int] = {}

    class Rescues:
        def process_spider_exception(self, response: Any, exception: Exception) -> Any:
            return [Request(f"{site.url}/rescued")]

    class Raises(Tree):
        def parse(self, response: Any) -> Any:
            depths[response.url.rpartition("/")[2]] = response.meta.get("depth", 0)
            if response.url.endswith("/0"):
                raise ValueError("help")

    with Site() as site:
        await crawl(at(site, Raises), project(store, SPIDER_MIDDLEWARES={Rescues: 950}))
    assert depths == {"0": 0, "rescued": 1}  # DepthMiddleware, 900, has seen it
    assert not await dead_letters(store)
