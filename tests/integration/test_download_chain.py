"""The whole chain with the real client against a real server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.gates import OpenGate

from orbweb.download.base import Dropped, Failed, Fetched, Redirected
from orbweb.download.chain import Chain
from orbweb.download.http import BodyLimits, HttpDownloader, HttpOptions
from orbweb.download.robots import ROBOTS_MAX_BYTES, MemoryRobotsStore, Robots, RobotsOptions
from orbweb.download.send import Sender
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response

ROBOTS = "User-agent: *\nDisallow: /admin\n"


class Shop:
    """A site with redirects and a robots.txt, that notes each request."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[tuple[str, str, bytes, dict[str, str]]] = []
        self.elsewhere = ""

    async def handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append((request.method, request.path_qs, await request.read(), headers))
        match request.path:
            case "/robots.txt":
                return web.Response(text=ROBOTS)
            case "/moved":
                status = int(request.query.get("status", "302"))
                return web.Response(status=status, headers={"Location": "/item?id=1"})
            case "/away":
                return web.Response(status=302, headers={"Location": f"{self.elsewhere}/landing"})
            case "/backdoor":
                return web.Response(status=302, headers={"Location": "/admin/orders"})
            case "/wall":
                if "pass" in request.cookies:
                    return web.Response(text="behind the wall")
                answer = web.Response(status=302, headers={"Location": "/wall"})
                answer.set_cookie("pass", "1")
                return answer
            case "/round":
                return web.Response(status=302, headers={"Location": "/round"})
            case "/busy":
                return web.Response(status=429, headers={"Retry-After": "3"})
            case _:
                return web.Response(text=f"page {request.path_qs}")

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.seen]


@asynccontextmanager
async def running(shop: Shop) -> AsyncIterator[Shop]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", shop.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    shop.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield shop
    finally:
        await runner.cleanup()


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    async with running(Shop()) as shop:
        yield shop


@pytest.fixture
async def chain() -> AsyncIterator[Chain]:
    client = HttpDownloader(HttpOptions(user_agent="orbweb/test"))
    robots = Robots(
        Sender(client.limited(BodyLimits(ROBOTS_MAX_BYTES, truncate=True))),
        MemoryRobotsStore(asyncio.get_running_loop().time),
        RobotsOptions("orbweb"),
        holder="node-1",
        rng=random.Random(1),
    )
    chain = Chain(client, robots=robots)
    yield chain
    await chain.close()


async def page(chain: Chain, request: Request) -> Response:
    outcome = await chain.download(request, gate=OpenGate())
    assert isinstance(outcome, Fetched), outcome
    assert outcome.response is not None
    return outcome.response


async def test_many_requests_at_once_ask_for_one_robots_txt(shop: Shop, chain: Chain) -> None:
    requests = [Request(f"{shop.url}/p/{number}") for number in range(30)]
    pages = await asyncio.gather(*(page(chain, request) for request in requests))
    assert [each.text for each in pages] == [f"page /p/{number}" for number in range(30)]
    assert shop.paths.count("/robots.txt") == 1
    assert shop.paths[0] == "/robots.txt"
    assert len(shop.paths) == 31


async def test_a_redirect_is_followed_and_recorded(shop: Shop, chain: Chain) -> None:
    request = Request(shop.url + "/moved")
    response = await page(chain, request)
    assert response.url == shop.url + "/item?id=1"
    assert response.history == [shop.url + "/moved"]
    assert response.request is request
    assert response.text == "page /item?id=1"


@pytest.mark.parametrize(("status", "method", "body"), [(303, "GET", b""), (307, "POST", b"a=1")])
async def test_a_form_after_a_redirect(
    shop: Shop, chain: Chain, status: int, method: str, body: bytes
) -> None:
    url = f"{shop.url}/moved?status={status}"
    await page(chain, Request(url, method="POST", data={"a": 1}))
    sent_method, path, sent_body, headers = shop.seen[-1]
    assert (sent_method, path, sent_body) == (method, "/item?id=1", body)
    assert ("content-type" in headers) == (method == "POST")


async def test_another_origin_gets_neither_authorization_nor_cookies(
    shop: Shop, chain: Chain
) -> None:
    async with running(Shop()) as other:
        shop.elsewhere = other.url.replace("127.0.0.1", "localhost")
        request = Request(
            shop.url + "/away", auth=("u", "p"), cookies={"c": "1"}, headers={"X-Keep": "1"}
        )
        outcome = await chain.download(request, gate=OpenGate())
        assert isinstance(outcome, Redirected)
        response = await page(chain, outcome.target)
    assert response.history == [shop.url + "/away"]
    first, landing = shop.seen[-1][3], other.seen[-1][3]
    assert "authorization" in first
    assert "cookie" in first
    assert "authorization" not in landing
    assert "cookie" not in landing
    assert landing["x-keep"] == "1"
    assert other.paths == ["/robots.txt", "/landing"]


async def test_a_cookie_wall_lets_us_through_without_a_session(shop: Shop, chain: Chain) -> None:
    assert (await page(chain, Request(shop.url + "/wall"))).text == "behind the wall"
    await page(chain, Request(shop.url + "/p"))
    assert "cookie" not in shop.seen[-1][3]


async def test_a_redirect_into_a_disallowed_place_is_not_followed(shop: Shop, chain: Chain) -> None:
    outcome = await chain.download(Request(shop.url + "/backdoor"), gate=OpenGate())
    assert isinstance(outcome, Dropped)
    assert outcome.reason is Reason.ROBOTS_DISALLOWED
    assert "/admin/orders" not in shop.paths


async def test_a_page_that_redirects_to_itself(shop: Shop, chain: Chain) -> None:
    outcome = await chain.download(Request(shop.url + "/round"), gate=OpenGate())
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retry) == (Reason.REDIRECT_LOOP, False)
    assert shop.paths.count("/round") == 1


async def test_a_busy_site_says_when_to_come_back(shop: Shop, chain: Chain) -> None:
    outcome = await chain.download(Request(shop.url + "/busy"), gate=OpenGate())
    assert isinstance(outcome, Failed)
    assert (outcome.retry, outcome.retry_after) == (True, 3.0)
