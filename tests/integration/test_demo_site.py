"""The demo site over real sockets."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl, urldefrag, urljoin, urlsplit

import aiohttp
import pytest
from parsel import Selector

from orbweb.testing import shop
from orbweb.testing.origin import OriginLog
from orbweb.testing.site import DemoSite, SiteThread


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "origin.jsonl"


@pytest.fixture
async def site(log: Path) -> AsyncIterator[DemoSite]:
    async with DemoSite(log=log) as site:
        yield site


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


async def test_a_crawl_of_the_shop_finds_what_the_shop_says(
    site: DemoSite, client: aiohttp.ClientSession, log: Path
):
    """A plain breadth-first crawler that sorts queries, drops utm and follows redirects."""

    def canonical(url: str) -> str:
        parts = urlsplit(urldefrag(url).url)
        query = sorted(pair for pair in parse_qsl(parts.query) if pair[0] != "utm_source")
        return parts._replace(query="&".join("=".join(pair) for pair in query)).geturl()

    statuses: dict[str, int] = {}
    names: set[str] = set()
    waiting = [f"{site.url}/"]

    async def visit(url: str) -> None:
        async with client.get(url) as response:
            if response.status == 429:
                async with client.get(url) as second:
                    await take(url, second)
            else:
                await take(url, response)

    async def take(url: str, response: aiohttp.ClientResponse) -> None:
        statuses[url] = response.status
        selector = Selector(text=(await response.read()).decode("utf-8", "replace"))
        if name := selector.css("h1[class=name]::text").get():
            names.add(name.split()[-1])
        for href in selector.css("a::attr(href)").getall():
            link = canonical(urljoin(str(response.url), href))
            if link.startswith(site.url) and link not in statuses and "/p/" not in link:
                statuses[link] = 0
                waiting.append(link)

    while waiting:
        batch, waiting = waiting, []
        await asyncio.gather(*(visit(url) for url in batch))
    failed = [url for url, status in statuses.items() if status != 200]
    assert failed == [site.url + shop.product_url(shop.FAILING)]
    assert sorted(names, key=int) == [
        str(n) for n in range(1, shop.PRODUCTS + 1) if n != shop.FAILING
    ]
    pages = [url for url, status in statuses.items() if status == 200]
    assert len(pages) == shop.good_pages() + 1  # and /admin, which robots.txt forbids
    assert len(OriginLog.read(log)) == len(statuses) + 1  # and the 429


async def test_a_request_is_in_the_log_before_its_answer_arrives(
    site: DemoSite, client: aiohttp.ClientSession, log: Path
):
    for n in range(20):
        async with client.get(f"{site.url}/flat?n={n}&x=a%20b") as response:
            await response.read()
        hits = OriginLog.read(log).hits
        assert len(hits) == n + 1
        assert hits[-1].path == f"/flat?n={n}&x=a%20b"
        assert hits[-1].host == site.url.removeprefix("http://")
        assert hits[-1].status == 200


async def test_the_busy_page_refuses_once_with_retry_after(
    site: DemoSite, client: aiohttp.ClientSession
):
    answers = []
    for _ in range(3):
        async with client.get(site.url + shop.product_url(shop.BUSY)) as response:
            answers.append((response.status, response.headers.get("Retry-After")))
    assert answers == [(429, "1"), (200, None), (200, None)]


async def test_redirects_point_at_the_product_and_are_logged(
    site: DemoSite, client: aiohttp.ClientSession, log: Path
):
    async with client.get(f"{site.url}/p/7") as response:
        assert response.url.path_qs == shop.product_url(7)
    async with client.get(f"{site.url}/hops?n=3") as response:
        assert len(response.history) == 3
    assert [hit.status for hit in OriginLog.read(log)] == [302, 200, 302, 302, 302, 200]


@pytest.mark.parametrize(
    "path", ["/nothing", "/p/0", "/p/x", "/product?id=zzz", "/tree?n=nan&of=0"]
)
async def test_what_is_not_there_is_404_and_logged(
    site: DemoSite, client: aiohttp.ClientSession, log: Path, path: str
):
    async with client.get(site.url + path) as response:
        assert response.status == 404
    assert [(hit.path, hit.status) for hit in OriginLog.read(log)] == [(path, 404)]


async def test_status_fails_as_often_as_asked(site: DemoSite, client: aiohttp.ClientSession):
    answers = []
    for _ in range(3):
        url = f"{site.url}/status?code=503&times=2&retry_after=4"
        async with client.get(url) as response:
            answers.append((response.status, response.headers.get("Retry-After")))
    assert answers == [(503, "4"), (503, "4"), (200, None)]


async def test_delay_and_overlap_show_in_the_log(
    site: DemoSite, client: aiohttp.ClientSession, log: Path
):
    async def get(n: int) -> None:
        async with client.get(f"{site.url}/flat?n={n}&delay=0.2") as response:
            await response.read()

    await asyncio.gather(*(get(n) for n in range(3)))
    read = OriginLog.read(log)
    assert list(read.most_at_once().values()) == [3]
    assert all(hit.end - hit.t >= 0.19 for hit in read)


async def test_echo_shows_method_headers_and_body(site: DemoSite, client: aiohttp.ClientSession):
    async with client.put(f"{site.url}/echo?q=1", data=b"body", headers={"X-A": "1"}) as response:
        seen = await response.json()
    assert (seen["method"], seen["path"], seen["body"]) == ("PUT", "/echo?q=1", "body")
    assert seen["headers"]["X-A"] == "1"


async def test_the_site_runs_in_a_thread(log: Path, client: aiohttp.ClientSession):
    with SiteThread(log=log) as site:
        async with client.get(f"{site.url}/news?p=2&details=3") as response:
            links = Selector(text=await response.text()).css("a.title::attr(href)").getall()
    assert links == ["/article?id=4", "/article?id=5", "/article?id=6"]
    assert len(OriginLog.read(log)) == 1


def test_a_taken_port_is_an_error_of_start():
    with SiteThread() as site:
        port = int(site.url.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            SiteThread(port=port).start()


def test_the_site_runs_as_a_process_and_ends_on_sigterm(log: Path):
    process = subprocess.Popen(
        [sys.executable, "-m", "orbweb.testing.site", "--log", str(log)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        asyncio.run(_get(f"{url}/robots.txt"))
    finally:
        process.terminate()
        assert process.wait(10) == 0
        process.stdout.close()
    line = json.loads(log.read_text())
    assert (line["path"], line["status"]) == ("/robots.txt", 200)
    assert abs(line["t"] - time.time()) < 60


async def _get(url: str) -> None:
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        assert "Disallow: /admin" in await response.text()
