"""`orbweb migrate scrapy-redis`: counted, checked, repeatable, and the source stays as it is."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy import FormRequest, Request
from tests.scrapy.crawls import crawl, project
from tests.scrapy.processes import ROOT
from tests.scrapy.site import Site
from tests.servers import Server

from orbweb.adapters.scrapy.codec import RequestCodec
from orbweb.adapters.scrapy.dupefilter import set_fingerprint
from orbweb.adapters.scrapy.migrate import Mover, OldCrawl
from orbweb.adapters.scrapy.spiders import RedisSpider
from orbweb.cli.migrate import LEFT_OUT, MigratePlan, migrate
from orbweb.errors import ConfigError

JOB = "scrapybot.shop"


@pytest.fixture
def target() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


def push(client: redis.Redis, request: Request, key: str = "shop:requests") -> None:
    """As scrapy-redis 0.9.1 does: fingerprint into the set, pickle into the queue."""
    if not request.dont_filter:
        client.sadd("shop:dupefilter", set_fingerprint(request))
    stored = pickle.dumps(request.to_dict(), protocol=-1)
    client.execute_command("ZADD", key, -request.priority, stored)


def old_crawl(client: redis.Redis, pages: int = 30) -> None:
    """`pages` requests wait, as many were fetched, and three start URLs."""
    for n in range(pages):
        push(client, Request(f"http://e.com/{n}", priority=n % 3, meta={"n": n}))
        client.sadd("shop:dupefilter", set_fingerprint(Request(f"http://e.com/done/{n}")))
    push(client, FormRequest("http://e.com/form", formdata={"a": "1"}, headers={"X": "1"}))
    push(client, Request("http://e.com/again", dont_filter=True, cookies={"s": "1"}))
    client.rpush("shop:start_urls", "http://e.com/a", "http://e.com/b", '{"url": "http://e.com/c"}')


def moved(capsys: pytest.CaptureFixture[str], **options: Any) -> tuple[int, dict[str, Any]]:
    code = migrate(MigratePlan(spider="shop", as_json=True, **options))
    return code, json.loads(capsys.readouterr().out)


def waiting(client: redis.Redis) -> list[Request]:
    """The requests of the run that are there."""
    (bodies,) = client.keys("*:body")
    codec = RequestCodec(None)
    stored = [body for id, body in client.hgetall(bodies).items() if not id.startswith(b"@")]
    return [codec.decode(body.split(b"\n", 3)[3]) for body in stored]


def test_everything_is_moved_counted_and_checked(
    store: Server, target: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    old_crawl(store.client())
    before = {key: store.client().dump(key) for key in store.client().keys("*")}
    code, report = moved(capsys, url=store.url, store=target.url)
    assert code == 0
    assert (report["job"], report["requests"], report["entered"]) == (JOB, 32, 32)
    assert (report["seen"], report["learned"], report["starts"]) == (61, 30, 3)
    found = {request.url: request for request in waiting(target.client())}
    assert len(found) == 32
    assert (found["http://e.com/4"].priority, found["http://e.com/4"].meta) == (1, {"n": 4})
    form = found["http://e.com/form"]
    assert isinstance(form, FormRequest)
    assert (form.method, form.body, form.headers["X"]) == ("POST", b"a=1", b"1")
    assert found["http://e.com/again"].cookies == {"s": "1"}
    assert target.client().llen("shop:start_urls") == 3
    assert {key: store.client().dump(key) for key in store.client().keys("*")} == before


class Shop(RedisSpider):
    name = "shop"

    def parse(self, response: Any) -> Any:
        for path in ("/waits", "/done", "/new"):
            yield Request(response.urljoin(path), self.parse_item)

    def parse_item(self, response: Any) -> Any:
        yield {"path": response.url.rpartition("/")[2], "n": response.meta.get("n")}


async def test_a_crawl_goes_on_where_scrapy_redis_left_it(store: Server) -> None:
    items: list[Any] = []

    class Keep:
        def process_item(self, item: Any) -> Any:
            items.append(item)
            return item

    client, spider = store.client(), Shop()
    with Site() as site:
        waits = Request(f"{site.url}/waits", spider.parse_item, meta={"n": 7})
        stored = pickle.dumps(waits.to_dict(spider=spider), protocol=-1)
        client.zadd("shop:requests", {stored: 0})
        for path in ("/waits", "/done"):
            client.sadd("shop:dupefilter", set_fingerprint(Request(f"{site.url}{path}")))
        client.rpush("shop:start_urls", f"{site.url}/start")
        plan = MigratePlan(spider="shop", url=store.url, delete=True)
        assert await asyncio.to_thread(migrate, plan) == 0
        changes = {"ORBWEB_FINGERPRINT": "scrapy-redis", "ITEM_PIPELINES": {Keep: 1}}
        await crawl(Shop, project(store, **changes))
    assert site.counts() == {"/waits": 1, "/start": 1, "/new": 1}
    assert {"path": "waits", "n": 7} in items


def test_a_second_time_moves_nothing_twice(
    store: Server, target: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    old_crawl(store.client())
    moved(capsys, url=store.url, store=target.url)
    code, report = moved(capsys, url=store.url, store=target.url, delete=True)
    assert (code, report["entered"], report["learned"]) == (0, 0, 0)
    assert len(waiting(target.client())) == 32
    assert target.client().llen("shop:start_urls") == 3
    assert store.client().keys("*") == [b"shop:requests:migrated"]
    assert store.client().ttl("shop:requests:migrated") > 0


def test_within_one_server_start_urls_stay_where_the_spider_reads_them(
    store: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    old_crawl(store.client())
    code, report = moved(capsys, url=store.url, delete=True)
    assert (code, report["starts_stay"], report["starts"]) == (0, True, 3)
    assert store.client().llen("shop:start_urls") == 3
    assert not store.client().exists("shop:requests", "shop:dupefilter")


def test_a_dry_run_counts_and_changes_nothing(
    store: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    old_crawl(store.client())
    keys = sorted(store.client().keys("*"))
    code, report = moved(capsys, url=store.url, dry_run=True)
    assert (code, report["requests"], report["seen"], report["starts"]) == (0, 32, 61, 3)
    assert sorted(store.client().keys("*")) == keys


class Planted:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["ORBWEB_PLANTED"],)


def test_a_planted_pickle_is_not_executed_but_counted_and_kept(
    store: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ORBWEB_PLANTED", str(tmp_path / "executed"))
    old_crawl(store.client(), pages=2)
    planted = pickle.dumps(Planted())
    store.client().zadd("shop:requests", {planted: 0})
    code, report = moved(capsys, url=store.url, delete=True)
    assert (code, report["requests"], report["entered"]) == (LEFT_OUT, 5, 4)
    assert not (tmp_path / "executed").exists()
    assert store.client().lrange("shop:requests:refused", 0, -1) == [planted]


@pytest.mark.parametrize(("order", "first"), [("fifo", 0), ("lifo", 4)])
def test_a_queue_that_is_a_list_keeps_its_order(
    store: Server, capsys: pytest.CaptureFixture[str], order: str, first: int
) -> None:
    for n in range(5):
        record = Request(f"http://e.com/{n}").to_dict()
        store.client().lpush("shop:requests", pickle.dumps(record))
    moved(capsys, url=store.url, order=order)
    (queue,) = store.client().keys("*:queue:e.com")
    ids = store.client().zrange(queue, 0, 0)
    (bodies,) = store.client().keys("*:body")
    stored = store.client().hget(bodies, ids[0]).split(b"\n", 3)[3]
    assert RequestCodec(None).decode(stored).url == f"http://e.com/{first}"


SETTINGS = """
BOT_NAME = "store"
SPIDER_MODULES = ["spiders"]
REDIS_URL = {url!r}
SCHEDULER_QUEUE_KEY = "old:%(spider)s:requests"
"""
SPIDERS = """
from orbweb.adapters.scrapy.spiders import RedisSpider

class Shop(RedisSpider):
    name = "shop"
    redis_key = "%(name)s:urls"
"""


def test_a_project_says_which_keys_and_job_are_meant(store: Server, tmp_path: Path) -> None:
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = changed\n")
    (tmp_path / "changed.py").write_text(SETTINGS.format(url=store.url))
    (tmp_path / "spiders.py").write_text(SPIDERS)
    push(store.client(), Request("http://e.com/1"), key="old:shop:requests")
    store.client().rpush("shop:urls", "http://e.com/2", "http://e.com/3")
    command = [sys.executable, "-m", "orbweb", "migrate", "scrapy-redis", "--spider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, "shop", "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    report = json.loads(done.stdout)
    assert (report["job"], report["entered"], report["starts"]) == ("store.shop", 1, 2)
    assert done.returncode == 0


def test_keys_of_another_type_are_named(store: Server) -> None:
    store.client().set("shop:requests", "x")
    with pytest.raises(Exception, match="shop:requests is a string; scrapy-redis"):
        migrate(MigratePlan(spider="shop", url=store.url))


def test_a_spider_of_which_nothing_is_there_is_an_error(store: Server) -> None:
    with pytest.raises(Exception, match="has none of shop:requests, shop:dupefilter"):
        migrate(MigratePlan(spider="shop", url=store.url))


LATE = "http://e.com/late"


@pytest.mark.parametrize("at", ["_requests", "_marks"])
def test_what_a_worker_pushes_while_it_is_moved_and_deleted_is_not_lost(
    store: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    """Also a request whose mark stood there before, and one at the place of another one."""
    client = store.client()
    old_crawl(client, pages=2)
    client.sadd("shop:dupefilter", set_fingerprint(Request(f"{LATE}/marked")))
    step, pushed = getattr(Mover, at), []

    async def push_then_step(mover: Mover, old: OldCrawl) -> Any:
        answer = await step(mover, old)
        if not pushed:
            pushed.append(True)
            if at == "_requests":
                stored = pickle.dumps(Request(f"{LATE}/marked").to_dict(), protocol=-1)
                client.zadd("shop:requests", {stored: 0})
            push(client, Request(f"{LATE}/new"))
            push(client, Request("http://e.com/again", dont_filter=True))
        return answer

    monkeypatch.setattr(Mover, at, push_then_step)
    code, report = moved(capsys, url=store.url, delete=True)
    expected = Counter(["http://e.com/0", "http://e.com/1", "http://e.com/form", f"{LATE}/new"])
    expected["http://e.com/again"] = 2
    if at == "_requests":
        expected[f"{LATE}/marked"] = 1
    assert (code, report["left"]) == (LEFT_OUT, 1 if at == "_requests" else 3)
    assert moved(capsys, url=store.url, delete=True)[0] == 0
    assert Counter(request.url for request in waiting(client)) == expected
    assert set(client.keys("shop:*")) == {b"shop:requests:migrated", b"shop:start_urls"}


def test_a_worker_that_writes_while_it_is_copied_is_noticed(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_crawl(store.client(), pages=2)
    step = Mover._marks

    async def push_first(mover: Mover, old: OldCrawl) -> None:
        push(store.client(), Request(LATE))
        await step(mover, old)

    monkeypatch.setattr(Mover, "_marks", push_first)
    with pytest.raises(ConfigError, match="was changed meanwhile, so a request may be taken"):
        migrate(MigratePlan(spider="shop", url=store.url))
    assert store.client().zcard("shop:requests") == 5


def test_what_was_set_apart_is_not_passed_over(store: Server) -> None:
    old_crawl(store.client(), pages=2)
    store.client().rename("shop:requests", "shop:requests:migrating")
    for options in ({}, {"dry_run": True}):
        with pytest.raises(ConfigError, match=r"was not finished\. Right would be .* --delete"):
            migrate(MigratePlan(spider="shop", url=store.url, **options))


@pytest.mark.parametrize("delete", [False, True])
def test_a_migration_that_is_killed_goes_on(
    store: Server, target: Server, capsys: pytest.CaptureFixture[str], delete: bool
) -> None:
    old_crawl(store.client(), pages=1500)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(
        ["orbweb.cli.migrate", "scrapy", "orbweb.adapters.scrapy.codec"]
    )
    plan = MigratePlan(spider="shop", url=store.url, store=target.url, delete=delete)
    kills = 0
    for floor in (1, 400, 800, 1200, 1502):
        process = processes.Process(target=migrate, args=(plan,))
        process.start()
        while process.is_alive() and entered(target.client()) < floor:
            time.sleep(0.001)
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    assert kills >= 3
    if store.client().exists("shop:dupefilter", "shop:dupefilter:migrating", "shop:start_urls"):
        code, report = moved(capsys, url=store.url, store=target.url, delete=delete)
        assert code == 0
        assert delete or (report["requests"], report["seen"]) == (1502, 3001)
    assert not delete or store.client().keys("*") == [b"shop:requests:migrated"]
    urls = [request.url for request in waiting(target.client())]
    assert len(urls) == len(set(urls)) == 1502
    assert target.client().llen("shop:start_urls") == 3


def entered(client: redis.Redis) -> int:
    return sum(int(client.hlen(key)) for key in client.keys("*:body"))
