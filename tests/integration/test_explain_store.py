"""What the store tells of one request: every kind of filter, generations, redirects, shards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec import structs
from tests.servers import Server

from orbweb.download.robots_entry import EntryKind, RobotsEntry, origin_of
from orbweb.engine.job_rules import JobRules
from orbweb.errors import RunLost
from orbweb.explain.facts import Facts, Inquiry
from orbweb.explain.verdict import Standing, Verdict, verdict_of
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import Ack, Nack, NewRequest, RunConfig
from orbweb.frontier.robots import ValkeyRobotsStore
from orbweb.frontier.scripts import assemble
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.frontier.servers import OneServer
from orbweb.frontier.spread import shared_frontier
from orbweb.frontier.urls import Place, UrlState, Wanted
from orbweb.model.codec import encode
from orbweb.model.fingerprint import fingerprint, request_id
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.url import host_of
from orbweb.monitor.crawl_line import CrawlLine, encode_line, time_text
from orbweb.monitor.log_folder import LogFolder
from orbweb.monitor.log_reader import LogReader

KINDS = [SeenKind.EXACT, SeenKind.COMPACT, SeenKind.SET, SeenKind.BLOOM]
URL = "http://shop.test/p/1"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture
async def servers(server: Server) -> AsyncIterator[OneServer]:
    server.client().flushall()
    one = OneServer(server.url)
    yield one
    await one.aclose()


def wanted(url: str) -> Wanted:
    number = fingerprint(Request(url))
    return Wanted(request_id(number), number, host_of(url))


def new(url: str, priority: int = 300) -> NewRequest:
    id, number, host = wanted(url)
    return NewRequest(id, host, priority, number, encode(Request(url, priority=priority)))


class Crawl:
    """A run that a test moves by hand."""

    def __init__(self, servers: OneServer, shards: int = 1) -> None:
        self.admin = Admin(servers, "orbweb", shards=shards)
        self.frontier = shared_frontier(servers, prefix="orbweb", job="Shop", run="", shards=shards)
        self._seq = 0

    async def open(self, *, scope: str = "run", **seen: object) -> None:
        config = RunConfig(lease_ms=60_000, dedup_scope=scope, seen=SeenConfig(**seen))  # type: ignore[arg-type]
        await self.frontier.open(config)
        reply = await self.frontier.seed_claim("node", 1, 60_000)
        await self.frontier.seed_push(reply.token, 1, True, [])

    async def claim(self, most: int = 1):  # type: ignore[no-untyped-def]
        self._seq += 1
        return (await self.frontier.claim("node", self._seq, most, 60_000)).leases

    async def look(self, url: str) -> UrlState:
        info = await self.admin.find("Shop")
        return await self.admin.urls.look("Shop", "", info.epoch, info.status.shards, wanted(url))

    async def facts(self, url: str) -> Facts:
        inquiry = Inquiry(
            "Shop",
            None,
            default_rules=JobRules(obey_robots=False),
        )
        return await inquiry.ask(self.admin, await self.admin.find("Shop"), url)

    async def verdict(self, url: str) -> Verdict:
        return verdict_of(await self.facts(url))


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
async def crawl(request: pytest.FixtureRequest, servers: OneServer) -> Crawl:
    return Crawl(servers, request.param)


@pytest.mark.parametrize(
    "url", ["http://Shop.test:80/private/a", "https://bücher.test/private/a", URL + "/../private"]
)
async def test_robots_txt_is_found_where_nodes_put_it(servers: OneServer, url: str) -> None:
    crawl = Crawl(servers)
    await crawl.open()
    origin = origin_of(Request(url).url)
    assert origin is not None
    entry = RobotsEntry(EntryKind.RULES, b"User-agent: *\nDisallow: /\n")
    await ValkeyRobotsStore(servers.of_shard(0), "orbweb").put(origin, entry.encode(), 60)
    inquiry = Inquiry("Shop", None, default_rules=JobRules())
    facts = await inquiry.ask(crawl.admin, await crawl.admin.find("Shop"), url)
    assert facts.robots is not None
    assert not facts.robots.allowed


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_is_told_at_each_place_of_its_life(crawl: Crawl, kind: SeenKind) -> None:
    await crawl.open(kind=kind, capacity=1000)
    before = await crawl.look(URL)
    assert (before.place, before.known, before.seen.kind) == (Place.NOWHERE, False, kind)
    await crawl.frontier.add([new(URL), new("http://shop.test/first", 100)])
    queued = await crawl.look(URL)
    assert (queued.place, queued.before, queued.seen.seen) == (Place.QUEUED, 1, True)
    assert queued.request is not None
    assert queued.request.priority == 300
    _, lease = await crawl.claim(2)
    leased = await crawl.look(URL)
    assert (leased.place, leased.node) == (Place.LEASED, "node")
    assert 0 <= leased.until_ms - leased.at_ms <= 60_000
    assert abs(leased.since_ms - leased.at_ms) < 30_000
    await crawl.frontier.nack([Nack(*lease.held, 50_000, reason="timeout")])
    delayed = await crawl.look(URL)
    assert delayed.place is Place.DELAYED
    assert delayed.request is not None
    assert delayed.request.retries == 1
    assert 0 < delayed.until_ms - delayed.at_ms <= 50_000


async def test_a_request_whose_node_has_no_proxy_for_its_host_says_so(crawl: Crawl) -> None:
    await crawl.open()
    await crawl.frontier.add([new(URL), new("http://other.test/b")])
    assert (await crawl.verdict(URL)).reason == Reason.QUEUED
    await crawl.frontier.renew("node-7", 60_000, [], b'{"no_proxy": ["shop.test"]}')
    for place in (Place.QUEUED, Place.LEASED, Place.DELAYED):
        if place is Place.LEASED:
            leases = await crawl.claim(2)
        if place is Place.DELAYED:
            await crawl.frontier.nack([Nack(*one.held, 50_000, counted=False) for one in leases])
        assert (await crawl.look(URL)).place is place
        verdict = await crawl.verdict(URL)
        if place is not Place.LEASED:
            assert (verdict.standing, verdict.reason) == (Standing.WAITING, Reason.NO_PROXY)
            assert "node node-7 found none" in verdict.details[0]
            assert "PROXY_LIST" in verdict.advice[0].text
        assert (await crawl.verdict("http://other.test/b")).reason != Reason.NO_PROXY


async def test_the_end_of_a_request_is_told(crawl: Crawl) -> None:
    await crawl.open()
    await crawl.frontier.add([new(URL), new("http://shop.test/bad")])
    for lease in await crawl.claim(2):
        error = "HTTP status 404" if lease.id == wanted("http://shop.test/bad").id else ""
        await crawl.frontier.ack([Ack(*lease.held, "done", error=error)])
    good, bad = await crawl.look(URL), await crawl.look("http://shop.test/bad")
    assert (good.place, good.dead, good.seen.seen) == ("", None, True)
    assert bad.dead is not None
    assert bad.dead.error == "HTTP status 404"
    ended = await crawl.verdict(URL)
    assert (ended.standing, ended.reason) == ("ended", "seen")


async def test_a_bloom_filter_says_that_it_may_err(servers: OneServer) -> None:
    crawl = Crawl(servers)
    await crawl.open(kind=SeenKind.BLOOM, capacity=1000)
    await crawl.frontier.add([new(URL)])
    (lease,) = await crawl.claim()
    await crawl.frontier.ack([Ack(*lease.held, "done")])
    verdict = await crawl.verdict(URL)
    assert any("takes a new URL for a seen one" in detail for detail in verdict.details)
    (advice,) = verdict.advice
    assert advice.command == "orbweb dedup forget Shop --host shop.test"


async def test_the_generation_that_has_it_is_told_and_no_new_one_begins(servers: OneServer) -> None:
    crawl = Crawl(servers)
    await crawl.open(scope="spider", generation_ms=1)
    await crawl.frontier.add([new(URL)])
    while (await crawl.look(URL)).at_ms <= (await crawl.look(URL)).seen.begun_ms + 1:
        pass  # the server's clock has to move by a generation
    await crawl.frontier.add([new("http://shop.test/later")])
    first, later = await crawl.look(URL), await crawl.look("http://shop.test/later")
    assert later.seen.part > first.seen.part > 0
    assert later.seen.begun_ms >= first.seen.begun_ms > 0
    assert first.seen.shared
    again = await crawl.look("http://shop.test/later")  # its generation is over by now
    assert (again.seen.part, again.seen.parts) == (later.seen.part, later.seen.parts)


async def test_a_host_that_was_forgotten_has_nothing_seen(crawl: Crawl) -> None:
    await crawl.open()
    await crawl.frontier.add([new(URL)])
    (lease,) = await crawl.claim()
    await crawl.frontier.ack([Ack(*lease.held, "done")])
    await crawl.admin.seen.forget_host(await crawl.admin.seen.find("Shop"), "shop.test")
    state = await crawl.look(URL)
    assert (state.seen.seen, state.seen.host_forgotten) == (False, 1)


async def test_a_page_that_a_redirect_has_taken_is_told(crawl: Crawl) -> None:
    await crawl.open()
    await crawl.frontier.add([new(URL)])
    (lease,) = await crawl.claim()
    target = wanted("http://shop.test/target")
    await crawl.frontier.visit(*lease.held, target.fingerprint, target.host)
    state = await crawl.look("http://shop.test/target")
    assert (state.taken_by, state.parked) == (lease.id, False)
    verdict = await crawl.verdict("http://shop.test/target")
    assert (verdict.standing, verdict.reason) == ("in work", "leased")
    assert lease.id in verdict.text


async def test_what_links_to_it_is_named_while_that_is_known(crawl: Crawl) -> None:
    await crawl.open()
    await crawl.frontier.add([new("http://shop.test/list")])
    child = Request(URL)
    child.parent_id, child.depth = wanted("http://shop.test/list").id, 1
    await crawl.frontier.add([new(URL)._replace(payload=encode(child))])
    facts = await crawl.facts(URL)
    assert (facts.parent_url, facts.depth) == ("http://shop.test/list", 1)


async def test_other_spellings_that_are_known_are_named(crawl: Crawl) -> None:
    await crawl.open()
    await crawl.frontier.add([new("https://shop.test/p/1"), new("http://www.shop.test/p/1/")])
    facts = await crawl.facts("http://www.shop.test/p/1")
    assert facts.near == ("http://www.shop.test/p/1/", "https://shop.test/p/1")
    assert verdict_of(facts).reason == "never_discovered"


async def test_a_run_that_is_gone_is_no_unknown_url(servers: OneServer) -> None:
    crawl = Crawl(servers)
    await crawl.open()
    info = await crawl.admin.find("Shop")
    await crawl.admin.reset(info, seen=True)
    with pytest.raises(RunLost):
        await crawl.admin.urls.look("Shop", "", info.epoch, 1, wanted(URL))


async def test_the_rules_of_the_job_decide_not_those_of_who_asks(servers: OneServer) -> None:
    crawl = Crawl(servers)
    await crawl.open()
    rules = JobRules(allowed_domains=("shop.test",), drop_query_params=("utm_*",))
    await crawl.admin.book("Shop").keep_rules(rules.encode())
    await crawl.frontier.add([new(URL)])
    facts = await crawl.facts(f"{URL}?utm_source=x")
    assert facts.canonical == URL
    assert facts.state is not None
    assert facts.state.place is Place.QUEUED
    assert (await crawl.verdict("http://other.test/")).reason == "offsite"


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_itself_refuses_writes_of_explain(kind: SeenKind) -> None:
    assert assemble("explain", kind).source.startswith(b"#!lua flags=no-writes\n")


async def test_a_request_that_may_be_repeated_is_found_by_what_the_log_knows(
    servers: OneServer, tmp_path: Path
) -> None:
    crawl = Crawl(servers)
    await crawl.open()
    repeated = new(URL)._replace(id="00000000000000aa", fingerprint=None)
    await crawl.frontier.add([repeated])
    (lease,) = await crawl.claim()
    await crawl.frontier.nack([Nack(*lease.held, fatal=True, reason="timeout", error="late")])
    folder = LogFolder(tmp_path)
    _, file = folder.begin("Shop", "node", 0)
    line = CrawlLine(
        time_text(2 * 10**12), "Shop", "", "node", "failed", "timeout", repeated.id, URL
    )
    file.write(encode_line(structs.replace(line, page=wanted(URL).id)))
    file.close()
    inquiry = Inquiry("Shop", LogReader(folder), default_rules=JobRules())
    facts = await inquiry.ask(crawl.admin, await crawl.admin.find("Shop"), URL)
    verdict = verdict_of(facts)
    assert (verdict.standing, verdict.reason) == ("failed", "timeout")
    assert verdict.advice[-1].command == "orbweb failed retry Shop 00000000000000aa"
