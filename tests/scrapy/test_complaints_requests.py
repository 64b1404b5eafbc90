"""What people complained of in scrapy-redis, 24 to 34: requests, start entries, settings."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from scrapy import FormRequest, Request, Spider
from tests.scrapy.crawls import Worker, crawl, made_crawler, project
from tests.scrapy.processes import tree
from tests.scrapy.site import Page, Site, links
from tests.scrapy.test_complaints_fleet import at, until
from tests.scrapy.test_migrate import push
from tests.servers import Server

from orbweb.adapters.scrapy.dupefilter import RFPDupeFilter
from orbweb.adapters.scrapy.scheduler import Scheduler
from orbweb.adapters.scrapy.spiders import RedisSpider
from orbweb.adapters.scrapy.stats import RedisStatsCollector
from orbweb.cli.migrate import MigratePlan, migrate
from orbweb.errors import ConfigError
from orbweb.frontier.base import NewRequest
from orbweb.frontier.server import connect
from orbweb.frontier.valkey import ValkeyFrontier

OURS = "orbweb.adapters.scrapy"


class Entries(RedisSpider):
    """Reads its start entries, and does nothing else."""

    name = "entries"

    def parse(self, response: Any, **kwargs: Any) -> Any:
        yield {"path": response.url, "meta": dict(response.meta), "kwargs": kwargs}

    def parse_item(self, response: Any) -> Any:
        yield {"item": response.url}

    def failed(self, failure: Any) -> Any:
        yield {"failed": failure.request.url}


async def test_24_a_request_that_cannot_travel_costs_no_other(
    store: Server, caplog: pytest.LogCaptureFixture
) -> None:
    class Closures(Spider):
        name = "closures"

        def parse(self, response: Any) -> Any:
            yield Request(response.urljoin("/ok"), self.parse_item)
            for path in ("/lambda", "/lambda2"):
                yield Request(response.urljoin(path), lambda answer: self.parse_item(answer))
            yield Request(response.urljoin("/ok2"), self.parse_item)

        def parse_item(self, response: Any) -> Any:
            yield {"path": response.url}

    with Site() as site:
        stats = await crawl(at(site, Closures), project(store))
    assert site.counts() == dict.fromkeys(["/", "/ok", "/lambda", "/lambda2", "/ok2"], 1)
    assert (stats["item_scraped_count"], stats["scheduler/unserializable"]) == (4, 2)
    warned = [r for r in caplog.records if "cannot travel to other workers" in r.getMessage()]
    assert len(warned) == 1


class Planted:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["ORBWEB_PLANTED"],)


async def test_25_a_planted_pickle_is_not_executed_and_the_worker_lives(
    store: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORBWEB_PLANTED", str(tmp_path / "executed"))
    worker = Worker(Entries, project(store, SCHEDULER_PERSIST=True, ORBWEB_KEEP_ALIVE=True))
    with Site() as site:
        running = asyncio.ensure_future(worker.run())
        store.client().rpush("entries:start_urls", f"{site.url}/before")
        await until(lambda: site.hits)
        client = connect(store.url, 5.0)
        frontier = ValkeyFrontier(client, prefix="orbweb", job="scrapybot.entries")
        current = await client.hgetall("{orbweb:0}:current")
        (epoch,) = current.values()
        frontier.attach(epoch.decode())
        host = site.url.removeprefix("http://")
        await frontier.add([NewRequest("planted", host, 0, None, pickle.dumps(Planted()))])
        store.client().rpush("entries:start_urls", f"{site.url}/after")
        await until(lambda: len(site.hits) == 2)
        dead = frontier.run.dead
        await until(lambda: store.client().hlen(dead))
        await worker.stop()
        await running
        status = await frontier.status()
        await client.aclose()
    assert not (tmp_path / "executed").exists()
    assert (status.dead, status.reasons["undecodable"]) == (1, 1)


async def test_26_every_field_of_an_entry_arrives(store: Server) -> None:
    items: list[Any] = []

    class Keep:
        def process_item(self, item: Any) -> Any:
            items.append(item)
            return item

    with Site(lambda hit: Page(status=500 if hit.path == "/fails" else 200)) as site:
        entries = [
            {"url": f"{site.url}/q?x=1", "url_cookie_key": "f", "cookies": {"sid": "9"}},
            {"url": f"{site.url}/form", "method": "post", "a": "1", "b": ["2", "3"]},
            {"url": f"{site.url}/raw", "method": "POST", "body": "raw", "headers": {"X-A": "1"}},
            {"url": f"{site.url}/kw", "cb_kwargs": {"page": 3}, "meta": {"job": 7}},
            {"url": f"{site.url}/cb", "callback": "parse_item"},
            {"url": f"{site.url}/fails", "errback": "failed"},
        ]
        store.client().rpush("entries:start_urls", *map(json.dumps, entries))
        await crawl(Entries, project(store, ITEM_PIPELINES={Keep: 1}))
    seen = {hit.path: hit for hit in site.hits}
    assert seen["/q?x=1"].headers["cookie"] == "sid=9"
    assert (seen["/form"].method, seen["/form"].body) == ("POST", b"a=1&b=2&b=3")
    assert (seen["/raw"].body, seen["/raw"].headers["x-a"]) == (b"raw", "1")
    (kw,) = [item for item in items if item.get("kwargs")]
    assert (kw["kwargs"], kw["meta"]["job"]) == ({"page": 3}, 7)
    assert {"item": f"{site.url}/cb"} in items
    assert {"failed": f"{site.url}/fails"} in items


@pytest.mark.parametrize("bad", ["not-a-url", "123", "null", '["x"]', '{"meta": {}}', b"\xff\xfe"])
async def test_27_a_bad_entry_costs_only_itself(store: Server, bad: Any) -> None:
    with Site() as site:
        good = [f"{site.url}/{n}" for n in range(60)]
        store.client().rpush("entries:start_urls", *good[:5], bad, *good[5:])
        stats = await crawl(Entries, project(store))
    assert site.counts() == {f"/{n}": 1 for n in range(60)}
    assert stats["orbweb/start_entries/refused"] == 1
    (kept,) = store.client().lrange("entries:start_urls:bad", 0, -1)
    record = json.loads(kept)
    assert record["reason"].startswith("StartEntryError: ")
    assert record["entry"] == (bad if isinstance(bad, str) else "\\xff\\xfe")


async def test_27_bad_entries_that_cannot_be_kept_hinder_nothing(
    store: Server, caplog: pytest.LogCaptureFixture
) -> None:
    store.client().set("entries:start_urls:bad", "of somebody else")
    with Site() as site:
        good = [f"{site.url}/{n}" for n in range(20)]
        store.client().rpush("entries:start_urls", *good[:5], "no URL", *good[5:])
        stats = await crawl(Entries, project(store))
    assert site.counts() == {f"/{n}": 1 for n in range(20)}
    assert stats["orbweb/start_entries/refused"] == 1
    (warned,) = [each for each in caplog.messages if "could not be kept" in each]
    assert "'entries:start_urls:bad'" in warned
    assert "WRONGTYPE" in warned


async def test_28_start_requests_of_the_project_are_made_before_those_from_redis(
    store: Server,
) -> None:
    class Old(Entries):
        def start_requests(self) -> Any:
            yield Request(f"{site.url}/own")
            yield from super().start_requests()

    with Site() as site:
        store.client().rpush("entries:start_urls", f"{site.url}/pushed")
        await crawl(Old, project(store))
    assert site.counts() == {"/own": 1, "/pushed": 1}


async def test_28_a_start_of_the_project_does_not_hide_the_entries(store: Server) -> None:
    class New(Entries):
        async def start(self) -> Any:
            yield Request(f"{site.url}/own")

    with Site() as site:
        store.client().rpush("entries:start_urls", f"{site.url}/pushed")
        await crawl(New, project(store))
    assert site.counts() == {"/own": 1, "/pushed": 1}


class Tagging:
    async def process_start(self, start: Any) -> Any:
        async for request in start:
            request.meta["tag"] = "seen by the middleware"
            yield request


async def test_29_every_start_entry_passes_the_spider_middlewares(store: Server) -> None:
    tags: list[Any] = []

    class Tagged(Entries):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            tags.append(response.meta.get("tag"))

    with Site() as site:
        store.client().rpush("entries:start_urls", *(f"{site.url}/{n}" for n in range(100)))
        await crawl(Tagged, project(store, SPIDER_MIDDLEWARES={Tagging: 500}))
    assert tags == ["seen by the middleware"] * 100


async def test_30_the_statistics_of_all_workers_add_up(
    store: Server, caplog: pytest.LogCaptureFixture
) -> None:
    changes = {"STATS_CLASS": f"{OURS}.stats.RedisStatsCollector", "SCHEDULER_PERSIST": True}
    caplog.set_level("INFO")
    with Site(tree(60, delay=0.01)) as site:
        workers = [
            Worker(at(site), project(store, CONCURRENT_REQUESTS=4, **changes)) for _ in range(2)
        ]
        await asyncio.gather(*(worker.run() for worker in workers))
    collector = workers[0].crawler.stats
    assert isinstance(collector, RedisStatsCollector)
    total = collector.cluster_stats()
    assert total["response_received_count"] == len(site.hits) == 60
    assert total["item_scraped_count"] == 60
    assert total["finish_reason"] == "finished"
    assert caplog.text.count("Dumping Scrapy stats") == 2


class Constant:
    def fingerprint(self, request: Request) -> bytes:
        return b"the same"


async def test_31_the_fingerprinter_of_the_project_decides(store: Server) -> None:
    with Site(lambda hit: links("/a", "/b")) as site:
        changes = {"REQUEST_FINGERPRINTER_CLASS": Constant}
        await crawl(at(site), project(store, **changes))
    assert len(site.hits) == 2  # the first is not filtered; one of the two links is


async def test_31_a_filter_that_was_taken_over_goes_on_filtering(store: Server) -> None:
    with Site(lambda hit: links("/old", "/new")) as site:
        push(store.client(), Request(f"{site.url}/old"), key="elsewhere")
        store.client().rename("shop:dupefilter", "tree:dupefilter")
        plan = MigratePlan(spider="tree", url=store.url, as_json=True)
        assert await asyncio.to_thread(migrate, plan) == 0
        await crawl(at(site), project(store, ORBWEB_FINGERPRINT="scrapy-redis"))
    assert site.counts() == {"/": 1, "/new": 1}


@pytest.mark.parametrize(
    ("dupefilter", "hits"),
    [
        (None, 2),
        ("scrapy.dupefilters.RFPDupeFilter", 2),
        ("scrapy.dupefilters.BaseDupeFilter", 3),
        (f"{OURS}.dupefilter.RFPDupeFilter", 2),
    ],
)
async def test_32_any_dupefilter_of_scrapy_works(
    store: Server, dupefilter: str | None, hits: int
) -> None:
    class Twice(Spider):
        name = "twice"

        def parse(self, response: Any) -> Any:
            if response.url.endswith("/"):
                yield Request(response.urljoin("/page"))
                yield Request(response.urljoin("/page"))

    settings = project(store)
    del settings["DUPEFILTER_CLASS"]
    if dupefilter:
        settings["DUPEFILTER_CLASS"] = dupefilter
    with Site() as site:
        await crawl(at(site, Twice), settings)
    assert len(site.hits) == hits


async def test_32_a_filter_of_the_project_that_decides_itself_is_asked(
    store: Server, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(RFPDupeFilter):
        def request_seen(self, request: Request) -> bool:
            return "odd" in request.url

    with Site(lambda hit: links("/odd", "/even")) as site:
        await crawl(at(site), project(store, DUPEFILTER_CLASS=Odd))
    assert site.counts() == {"/": 1, "/even": 1}
    assert "Odd.request_seen() is asked for every request" in caplog.text


def test_32_a_spider_of_scrapy_redis_itself_is_refused_with_the_remedy() -> None:
    original = type("RedisSpider", (Spider,), {"__module__": "scrapy_redis.spiders"})
    spider = type("Shop", (original,), {"name": "shop"})
    crawler = made_crawler(spider)
    crawler.spider = spider()
    with pytest.raises(ConfigError, match="install_as_scrapy_redis"):
        Scheduler.from_crawler(crawler)


async def test_33_two_projects_with_a_spider_of_one_name_do_not_meet(store: Server) -> None:
    with Site(tree(30, delay=0.01)) as one, Site(tree(30, delay=0.01)) as two:
        both = [
            crawl(at(site), project(store, BOT_NAME=bot)) for site, bot in ((one, "a"), (two, "b"))
        ]
        await asyncio.gather(*both)
    assert len(one.hits) == len(one.counts()) == 30
    assert len(two.hits) == len(two.counts()) == 30


async def test_34_a_session_stays_with_the_worker_that_has_it(store: Server) -> None:
    class Login(Spider):
        name = "login"

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.mine: set[str] = set()

        def parse(self, response: Any) -> Any:
            for n in range(20):
                yield Request(response.urljoin(f"/login{n}"), self.parse_login)

        def parse_login(self, response: Any) -> Any:
            number = response.url.rpartition("login")[2]
            self.mine.add(number)
            meta = {"orbweb_here": True}
            yield Request(response.urljoin(f"/account{number}"), self.parse_account, meta=meta)

        def parse_account(self, response: Any) -> Any:
            yield {"mine": response.url.rpartition("account")[2] in self.mine}

    items: list[Any] = []

    class Keep:
        def process_item(self, item: Any) -> Any:
            items.append(item)
            return item

    settings = project(store, CONCURRENT_REQUESTS=2, ITEM_PIPELINES={Keep: 1})
    with Site(lambda hit: Page(delay=0.05)) as site:
        workers = [Worker(at(site, Login), settings) for _ in range(2)]
        await asyncio.gather(*(worker.run() for worker in workers))
    shares = [worker.stats.get("response_received_count", 0) for worker in workers]
    assert min(shares) >= 4
    assert items == [{"mine": True}] * 20


async def test_34_cookies_in_a_request_go_with_it_to_any_worker(store: Server) -> None:
    class Session(Spider):
        name = "session"

        def parse(self, response: Any) -> Any:
            for n in range(30):
                cookies = {"sid": f"s{n}"}
                yield FormRequest(
                    response.urljoin(f"/{n}"),
                    self.parse_item,
                    cookies=cookies,
                    formdata={"n": str(n)},
                    meta={"cookiejar": n},
                )

        def parse_item(self, response: Any) -> Any: ...

    with Site(lambda hit: Page(delay=0.05)) as site:
        workers = [
            Worker(at(site, Session), project(store, CONCURRENT_REQUESTS=2)) for _ in range(2)
        ]
        await asyncio.gather(*(worker.run() for worker in workers))
    shares = [worker.stats.get("response_received_count", 0) for worker in workers]
    assert min(shares) >= 3
    sent = {hit.path: hit.headers.get("cookie") for hit in site.hits if hit.path != "/"}
    assert sent == {f"/{n}": f"sid=s{n}" for n in range(30)}
