"""robots.txt: what is allowed, what failing servers mean, and one fetch for everybody."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protego import Protego
from tests.gates import OpenGate

from orbweb.download.base import DownloadError, Gate
from orbweb.download.robots import (
    ROBOTS_MAX_BYTES,
    EntryKind,
    MemoryRobotsStore,
    Refusal,
    Robots,
    RobotsEntry,
    RobotsOptions,
)
from orbweb.download.send import Sender
from orbweb.errors import HostBusy, StoreUnavailable
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response

SHOP = "http://shop.example"
RULES = b"User-agent: *\nDisallow: /admin\nDisallow: /*?sort=\nCrawl-delay: 2.5\n"


class GatedRobots(Robots):
    """Asks through a gate that is always open."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gate = OpenGate()

    async def refusal(self, url: str, gate: Gate | None = None) -> Refusal | None:
        return await super().refusal(url, gate or self.gate)

    async def sitemaps(self, url: str, gate: Gate | None = None) -> tuple[str, ...]:
        return await super().sitemaps(url, gate or self.gate)


class Site:
    """A downloader with prepared answers, and the clock of the store: both turned by the test."""

    def __init__(self, **answers: Response | Exception) -> None:
        self.answers: dict[str, Response | Exception] = dict(answers)
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.started = asyncio.Event()
        self.now = 0.0
        self.store = MemoryRobotsStore(lambda: self.now)

    async def fetch(self, request: Request, gate: Gate | None = None) -> Response:
        self.asked.append(request.url)
        self.started.set()
        await self.gate.wait()
        answer = self.answers[request.url]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None: ...

    def answer(self, url: str, status: int = 200, body: bytes = b"", **headers: str) -> None:
        self.answers[url] = Response(url=url, status_code=status, content=body, headers=headers)

    def robots(self, holder: str = "node-1", **options: float) -> GatedRobots:
        return GatedRobots(
            Sender(self),
            self.store,
            RobotsOptions(user_agent="orbweb", **options),
            holder=holder,
            rng=random.Random(1),
        )


@pytest.fixture
def site() -> Site:
    site = Site()
    site.answer(f"{SHOP}/robots.txt", 200, RULES)
    return site


async def test_rules_are_obeyed_with_wildcards(site: Site) -> None:
    robots = site.robots()
    assert await robots.refusal(f"{SHOP}/p/1") is None
    for path in ("/admin", "/admin/x?y=1", "/list?sort=price"):
        refusal = await robots.refusal(SHOP + path)
        assert refusal is not None
        assert refusal.reason is Reason.ROBOTS_DISALLOWED
        assert SHOP + path in refusal.text
    assert site.asked == [f"{SHOP}/robots.txt"]


async def test_the_group_of_our_own_name_wins(site: Site) -> None:
    site.answer(
        f"{SHOP}/robots.txt", 200, b"User-agent: *\nDisallow: /\n\nUser-agent: orbweb\nAllow: /\n"
    )
    assert await site.robots().refusal(f"{SHOP}/p") is None


async def test_the_crawl_delay_is_told_once_a_load_and_none_is_zero(site: Site) -> None:
    robots = site.robots()
    await robots.refusal(f"{SHOP}/p")
    assert robots.gate.crawl_delays.pop("shop.example") == 2.5
    await robots.refusal(f"{SHOP}/q")
    site.answer("http://other.example/robots.txt", 404)
    await robots.refusal("http://other.example/p")
    assert robots.gate.crawl_delays == {"other.example": 0}


async def test_a_crawl_delay_beyond_the_limit_counts_as_the_limit(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.answer(f"{SHOP}/robots.txt", 200, b"User-agent: *\nCrawl-delay: 900")
    robots = site.robots(crawl_delay_max=60.0)
    await robots.refusal(f"{SHOP}/p")
    assert robots.gate.crawl_delays == {"shop.example": 60.0}
    assert "ROBOTS_CRAWL_DELAY_MAX" in caplog.text


async def test_of_two_files_of_a_host_the_longer_delay_holds(site: Site) -> None:
    site.answer("https://shop.example/robots.txt", 404)
    robots = site.robots()
    await robots.refusal(f"{SHOP}/p")
    await robots.refusal("https://shop.example/p")
    assert robots.gate.crawl_delays == {"shop.example": 2.5}


async def test_sitemaps_can_be_read(site: Site) -> None:
    lines = [b"Sitemap: https://shop.example/a.xml", b"sitemap: https://cdn.example/b.xml"]
    site.answer(f"{SHOP}/robots.txt", 200, b"\n".join(lines))
    expected = ("https://shop.example/a.xml", "https://cdn.example/b.xml")
    assert await site.robots().sitemaps(f"{SHOP}/any") == expected
    site.answer("http://other.example/robots.txt", 404)
    assert await site.robots().sitemaps("http://other.example/") == ()


async def test_a_fetch_that_is_given_up_leaves_the_file_to_another_node(site: Site) -> None:
    class Busy(OpenGate):
        async def ready(self) -> None:
            raise HostBusy("not now")

    with pytest.raises(HostBusy):
        await site.robots("node-1").refusal(f"{SHOP}/p", Busy())
    site.now = 0.1
    assert await site.store.begin(SHOP, "node-2", 60)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
async def test_no_file_allows_everything(site: Site, status: int) -> None:
    site.answer(f"{SHOP}/robots.txt", status, b"User-agent: *\nDisallow: /")
    assert await site.robots().refusal(f"{SHOP}/admin") is None


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_failing_server_allows_nothing_for_a_while(site: Site, status: int) -> None:
    site.answer(f"{SHOP}/robots.txt", status)
    robots = site.robots(unreachable_seconds=30)
    refusal = await robots.refusal(f"{SHOP}/p")
    assert refusal is not None
    assert refusal.reason is Reason.ROBOTS_UNREACHABLE
    assert str(status) in refusal.text
    assert refusal.retry_after is not None
    assert 29 < refusal.retry_after <= 30
    assert await robots.refusal(f"{SHOP}/q") is not None
    assert len(site.asked) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DownloadError(Reason.DNS, "no such host"), Reason.DNS),
        (DownloadError(Reason.CONNECTION, "refused"), Reason.CONNECTION),
        (DownloadError(Reason.TIMEOUT, "took too long"), Reason.ROBOTS_UNREACHABLE),
        (RuntimeError("odd"), Reason.ROBOTS_UNREACHABLE),
    ],
)
async def test_no_connection_allows_nothing_and_the_true_reason_is_told(
    site: Site, caplog: pytest.LogCaptureFixture, error: Exception, reason: Reason
) -> None:
    site.answers[f"{SHOP}/robots.txt"] = error
    first, other = site.robots("node-1"), site.robots("node-2")
    for robots in (first, other, first):
        refusal = await robots.refusal(f"{SHOP}/p")
        assert refusal is not None
        assert refusal.reason is reason
        assert str(error) in refusal.text
        assert refusal.retry_after is not None
    (warned,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert warned.message.startswith("shop.example: robots.txt cannot be had")
    assert str(error) in warned.message


async def test_of_very_many_hosts_that_are_not_there_only_some_are_named(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    robots = site.robots()
    for number in range(40):
        site.answers[f"http://h{number}.example/robots.txt"] = DownloadError(Reason.DNS, "gone")
        assert await robots.refusal(f"http://h{number}.example/") is not None
    warned = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert len(warned) == 21
    assert "orbweb failed" in warned[-1]


async def test_an_unreachable_file_is_asked_for_again_when_its_time_is_over(site: Site) -> None:
    site.answer(f"{SHOP}/robots.txt", 500)
    robots = site.robots(unreachable_seconds=0.001)
    assert await robots.refusal(f"{SHOP}/p") is not None
    site.answer(f"{SHOP}/robots.txt", 404)
    site.now += 1
    await asyncio.sleep(0.002)
    assert await robots.refusal(f"{SHOP}/p") is None


async def test_each_origin_has_its_own_file(site: Site) -> None:
    site.answer("https://shop.example/robots.txt", 404)
    site.answer("http://shop.example:8080/robots.txt", 404)
    robots = site.robots()
    assert await robots.refusal("https://user:pw@SHOP.example/admin") is None
    assert await robots.refusal("http://shop.example:8080/admin") is None
    assert await robots.refusal("http://shop.example/admin") is not None


async def test_redirects_of_the_file_are_followed(site: Site) -> None:
    site.answer(f"{SHOP}/robots.txt", 301, location="https://www.shop.example/robots.txt")
    site.answer("https://www.shop.example/robots.txt", 200, RULES)
    assert await site.robots().refusal(f"{SHOP}/admin") is not None


async def test_a_file_behind_six_redirects_does_not_count(site: Site) -> None:
    for number in range(7):
        here = f"{SHOP}/robots.txt" if number == 0 else f"{SHOP}/r{number}"
        site.answer(here, 302, location=f"{SHOP}/r{number + 1}")
    assert await site.robots().refusal(f"{SHOP}/admin") is None
    assert len(site.asked) == 6


async def test_only_the_first_500_kib_count(site: Site) -> None:
    filler = b"#" * (ROBOTS_MAX_BYTES - len(RULES)) + b"\n"
    site.answer(f"{SHOP}/robots.txt", 200, RULES + filler + b"Disallow: /late\n")
    robots = site.robots()
    assert await robots.refusal(f"{SHOP}/admin") is not None
    assert await robots.refusal(f"{SHOP}/late") is None


async def test_requests_of_one_process_share_one_fetch(site: Site) -> None:
    robots = site.robots()
    site.gate.clear()
    asking = [asyncio.create_task(robots.refusal(f"{SHOP}/p/{n}")) for n in range(50)]
    await asyncio.sleep(0)
    site.gate.set()
    assert await asyncio.gather(*asking) == [None] * 50
    assert len(site.asked) == 1


async def test_when_the_fetching_request_is_cancelled_another_fetches(site: Site) -> None:
    robots = site.robots()
    site.gate.clear()
    first = asyncio.create_task(robots.refusal(f"{SHOP}/p"))
    second = asyncio.create_task(robots.refusal(f"{SHOP}/q"))
    await asyncio.sleep(0)
    first.cancel()
    site.gate.set()
    assert await second is None
    assert len(site.asked) == 2


async def test_a_fleet_fetches_a_file_once(site: Site) -> None:
    fleet = [site.robots(f"node-{n}") for n in range(5)]
    site.gate.clear()
    asking = [asyncio.create_task(robots.refusal(f"{SHOP}/admin")) for robots in fleet]
    await site.started.wait()
    site.gate.set()
    assert all(await asyncio.gather(*asking))
    assert len(site.asked) == 1


async def test_a_node_that_dies_while_it_fetches_is_replaced(site: Site) -> None:
    assert await site.store.begin(SHOP, "dead-node", 60)
    asking = asyncio.create_task(site.robots().refusal(f"{SHOP}/p"))
    await asyncio.sleep(0)
    assert not site.asked
    site.now = 61
    assert await asking is None
    assert len(site.asked) == 1


async def test_a_file_is_fetched_again_after_its_ttl(site: Site) -> None:
    await site.robots(ttl_seconds=100).refusal(f"{SHOP}/p")
    site.now = 99
    await site.robots("node-2", ttl_seconds=100).refusal(f"{SHOP}/p")
    assert len(site.asked) == 1
    site.now = 100
    await site.robots("node-3", ttl_seconds=100).refusal(f"{SHOP}/p")
    assert len(site.asked) == 2


async def test_a_file_serves_the_page_that_had_to_wait_longer_than_it_holds(site: Site) -> None:
    robots = site.robots(ttl_seconds=0.001)
    page = f"{SHOP}/p"
    await robots.refusal(page)
    robots.put_off(page)
    await asyncio.sleep(0.002)
    site.now = 1
    assert await robots.refusal(page) is None
    assert await robots.refusal(f"{SHOP}/admin") is not None
    assert len(site.asked) == 2, "it served one page, then it was fetched again"
    robots.put_off("http://unknown.example/p")
    robots.put_off("data:,")


async def test_an_endless_ttl_is_a_day(site: Site) -> None:
    await site.robots(ttl_seconds=0).refusal(f"{SHOP}/p")
    assert await site.store.get(SHOP) is not None
    site.now = 86_400
    assert await site.store.get(SHOP) is None


async def test_an_entry_of_another_version_is_fetched_anew(site: Site) -> None:
    await site.store.put(SHOP, b"9?", 100)
    assert await site.robots().refusal(f"{SHOP}/admin") is not None
    assert len(site.asked) == 1


async def test_a_url_without_an_origin_needs_no_file(site: Site) -> None:
    robots = site.robots()
    assert await robots.refusal("data:text/plain,x") is None
    assert await robots.sitemaps("data:text/plain,x") == ()
    assert not site.asked


@pytest.mark.parametrize("kind", list(EntryKind))
def test_an_entry_survives_the_store(kind: EntryKind) -> None:
    entry = RobotsEntry(kind, b"\x00\xffbody")
    assert RobotsEntry.decode(entry.encode()) == entry


@pytest.mark.parametrize("body", [b"", b"HTTP 503", b"odd\nbody", b"\xff\n"])
def test_an_entry_that_names_no_reason_is_a_file_that_cannot_be_had(body: bytes) -> None:
    reason, text = RobotsEntry(EntryKind.UNREACHABLE, body).failure
    assert (reason, text) == (Reason.ROBOTS_UNREACHABLE, body.decode("utf-8", "replace"))


@given(st.binary(max_size=40))
def test_garbage_in_the_store_is_no_entry_or_a_whole_one(stored: bytes) -> None:
    entry = RobotsEntry.decode(stored)
    assert entry is None or entry.encode() == stored


LINES = st.sampled_from(
    [
        "User-agent: *",
        "Disallow: /*$",
        "Allow: %",
        "Crawl-delay: x",
        "Disallow",
        ":",
        "Request-rate: 1",
    ]
)


@settings(max_examples=200)
@given(st.lists(LINES | st.text(max_size=20), max_size=12), st.text(max_size=20))
def test_no_file_breaks_the_parser(lines: list[str], path: str) -> None:
    rules = Protego.parse("\n".join(lines))
    assert rules.can_fetch(f"{SHOP}/{path}", "orbweb") in (True, False)


async def test_the_claim_of_the_memory_store(site: Site) -> None:
    store = site.store
    assert await store.begin(SHOP, "a", 10)
    assert await store.begin(SHOP, "a", 10)
    assert not await store.begin(SHOP, "b", 10)
    await store.put(SHOP, b"1A", 5)
    assert await store.begin(SHOP, "b", 10)
    assert await store.get(SHOP) == b"1A"
    site.now = 5
    assert await store.get(SHOP) is None


class Outage(MemoryRobotsStore):
    """A store that does not answer for the first calls of one operation."""

    def __init__(self, operation: str, calls: int) -> None:
        super().__init__(lambda: 0.0)
        self.operation, self.calls = operation, calls

    def _answer(self, operation: str) -> None:
        if operation == self.operation and self.calls > 0:
            self.calls -= 1
            raise StoreUnavailable("away")

    async def get(self, origin: str) -> bytes | None:
        self._answer("get")
        return await super().get(origin)

    async def begin(self, origin: str, holder: str, seconds: float) -> bool:
        self._answer("begin")
        return await super().begin(origin, holder, seconds)

    async def put(self, origin: str, entry: bytes, ttl_seconds: float) -> None:
        self._answer("put")
        await super().put(origin, entry, ttl_seconds)


@pytest.mark.parametrize("operation", ["get", "begin", "put"])
async def test_an_outage_of_the_store_is_waited_out(site: Site, operation: str) -> None:
    site.store = Outage(operation, 2)
    robots = site.robots()
    assert await robots.refusal(f"{SHOP}/admin") is not None
    assert await robots.refusal(f"{SHOP}/p") is None
    assert len(site.asked) == 1
