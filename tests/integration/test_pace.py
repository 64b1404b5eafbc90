"""The gap between the requests of a host, as the host sees it."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

import pytest
from tests.origin import StampingOrigin

import orbweb

pytestmark = pytest.mark.alone

TOLERANCE_SECONDS = 0.005


def crawl(origin: StampingOrigin, paths: list[str], load: float = 0.0, **settings: Any) -> Any:
    """Fetch the paths; the event loop is busy for `load` seconds again and again."""

    class Paced(orbweb.AirSpider):
        custom_settings: ClassVar = {
            "LOG_LEVEL": "ERROR",
            "ITEM_PIPELINES": (),
            "RUN_SUMMARY_ENABLE": False,
            **settings,
        }

        def start_requests(self) -> Any:
            for path in paths:
                yield orbweb.Request(path if "://" in path else origin.url + path)

        async def start_callback(self) -> None:
            self.busy = asyncio.create_task(self.keep_busy())

        async def keep_busy(self) -> None:
            while load:
                until = time.monotonic() + load
                while time.monotonic() < until:
                    pass
                await asyncio.sleep(0.005)

        async def end_callback(self) -> None:
            self.busy.cancel()

        async def parse(self, request: Any, response: Any) -> Any:
            yield {"url": response.url, "history": response.history}

    return Paced().run()


def page(path: str) -> tuple[int, dict[str, str], bytes]:
    if path == "/robots.txt":
        return 200, {}, b"User-agent: *\nDisallow: /secret\n"
    if path.startswith("/moved"):
        return 302, {"Location": path.replace("/moved", "/p")}, b""
    if path.startswith("/cold"):
        return 200, {"Connection": "close"}, b"page"
    return 200, {}, b"page"


def test_a_loaded_node_keeps_the_gap_to_the_millisecond() -> None:
    paths = [f"/{kind}/{n}" for n in range(10) for kind in ("p", "cold", "moved/x")]
    with StampingOrigin(page) as origin:
        report = crawl(origin, paths, load=0.008, DOWNLOAD_DELAY=0.1)
    assert report.run.reasons["done"] == 30
    assert len(origin.arrivals) == 1 + 30 + 10, "robots.txt, pages and redirects"
    assert min(origin.gaps()) >= 0.1 - TOLERANCE_SECONDS


def test_robots_txt_and_its_crawl_delay_keep_their_distance_too() -> None:
    def slow(path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/robots.txt":
            return 200, {}, b"User-agent: *\nCrawl-delay: 0.3\n"
        return page(path)

    with StampingOrigin(slow) as origin:
        report = crawl(origin, [f"/p/{n}" for n in range(5)], DOWNLOAD_DELAY=0.05)
    assert report.run.reasons == {"done": 5}
    first, *others = origin.gaps()
    assert first >= 0.05 - TOLERANCE_SECONDS
    assert min(others) >= 0.3 - TOLERANCE_SECONDS


def test_a_redirect_at_a_slow_host_comes_in_its_turn_and_the_page_is_fetched_once() -> None:
    def slow(path: str) -> tuple[int, dict[str, str], bytes]:
        return (404, {}, b"") if path == "/robots.txt" else page(path)

    with StampingOrigin(slow) as origin:
        report = crawl(origin, ["/moved/1"], DOWNLOAD_DELAY=1.2)
    assert origin.paths() == ["/robots.txt", "/moved/1", "/p/1"]
    assert min(origin.gaps()) >= 1.2 - TOLERANCE_SECONDS
    assert report.run.reasons == {"redirected": 1, "done": 1}


def test_after_a_retry_after_only_what_was_sent_before_reaches_the_host() -> None:
    asked: list[str] = []

    def limited(path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/robots.txt":
            return page(path)
        asked.append(path)
        if len(asked) == 10:
            return 429, {"Retry-After": "1"}, b""
        return page(path)

    paths = [f"/p/{n}" for n in range(40)]
    with StampingOrigin(limited) as origin:
        settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 4, "CONCURRENT_REQUESTS": 8}
        report = crawl(origin, paths, **settings)
    assert report.run.reasons == {"done": 40}
    longest = max(origin.gaps())
    before = sorted(arrival.at for arrival in origin.arrivals)
    silent_at = origin.gaps().index(longest) + 1
    assert longest >= 0.95
    assert silent_at <= 11 + 4, f"{silent_at} of {len(before)} before the pause"


@pytest.mark.parametrize("chain", [2, 3])
def test_redirects_between_hosts_are_followed_to_their_end(chain: int) -> None:
    with StampingOrigin(page) as last:

        def away(path: str) -> tuple[int, dict[str, str], bytes]:
            if path == "/robots.txt":
                return page(path)
            left = int(path.rpartition("/")[2]) - 1
            target = f"{last.url}/p/end" if left == 0 else f"{urls[left % 2]}/hop/{left}"
            return 302, {"Location": target}, b""

        with StampingOrigin(away) as first, StampingOrigin(away) as second:
            urls = [first.url, second.url]
            report = crawl(first, [f"{urls[chain % 2]}/hop/{chain}"])
    assert report.run.reasons == {"redirected": chain, "done": 1}
    assert last.paths() == ["/robots.txt", "/p/end"]


def test_sitemaps_reach_spiders_and_their_file_is_fetched_once() -> None:
    found: dict[str, tuple[str, ...]] = {}

    def mapped(path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/robots.txt":
            return 200, {}, b"Sitemap: https://shop.example/all.xml\n"
        return page(path)

    class Mapped(orbweb.AirSpider):
        custom_settings: ClassVar = {"LOG_LEVEL": "ERROR", "RUN_SUMMARY_ENABLE": False}

        def start_requests(self) -> Any:
            found["thread"] = self.wait_sitemaps(origin.url)
            yield orbweb.Request(f"{origin.url}/p/1")

        async def parse(self, request: Any, response: Any) -> Any:
            found["loop"] = await self.sitemaps(response.url)
            return None

    with StampingOrigin(mapped) as origin:
        Mapped().run()
    assert found == dict.fromkeys(("thread", "loop"), ("https://shop.example/all.xml",))
    assert origin.paths() == ["/robots.txt", "/p/1"]


def test_a_robots_txt_that_holds_for_less_than_the_gap_takes_one_turn_a_page() -> None:
    class Slow(orbweb.AirSpider):
        custom_settings: ClassVar = {
            "LOG_LEVEL": "ERROR",
            "RUN_SUMMARY_ENABLE": False,
            "DOWNLOAD_DELAY": 1.1,
            "ROBOTS_CACHE_TTL": 0.01,
        }

        def start_requests(self) -> Any:
            yield orbweb.Request(f"{origin.url}/p/1")

        def parse(self, request: Any, response: Any) -> Any:
            return None

    with StampingOrigin(page) as origin:
        Slow().run()
    assert origin.paths() == ["/robots.txt", "/p/1"]
