"""Requests through real proxies: the origin sees from where each one comes, and judges."""

from __future__ import annotations

import asyncio
import random
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from tests.gates import OpenGate
from tests.ports import free_port
from tests.proxies import ForwardProxy

from orbweb.download.base import DownloadError, Failed, Fetched
from orbweb.download.chain import Chain
from orbweb.download.http import BodyLimits, HttpDownloader, HttpOptions
from orbweb.download.proxied import ProxiedDownloader
from orbweb.download.proxies import PoolOptions, ProxyPool
from orbweb.download.robots import ROBOTS_MAX_BYTES, MemoryRobotsStore, Robots, RobotsOptions
from orbweb.download.send import Sender
from orbweb.errors import NoProxyFree
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response

DIRECT = "127.0.0.1"
LOGIN = "user:pa/ss@#1"
QUOTED = "user:pa%2Fss%40%231"


@dataclass
class Origin:
    """Notes who asked for what."""

    url: str = ""
    peers: list[str | None] = field(default_factory=list)
    status: int = 200

    async def handle(self, request: web.Request) -> web.Response:
        self.peers.append(request.remote)
        return web.Response(text="page", status=self.status)


@asynccontextmanager
async def running(tls: ssl.SSLContext | None = None) -> AsyncIterator[Origin]:
    origin = Origin()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", origin.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    origin.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield origin
    finally:
        await runner.cleanup()


@pytest.fixture
async def origin() -> AsyncIterator[Origin]:
    async with running() as site:
        yield site


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1 and its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command")
    path = tmp_path_factory.mktemp("tls") / "self-signed.pem"
    command = [openssl, "req", "-x509", "-nodes", "-newkey", "ec", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


class Line:
    """A downloader over a pool."""

    def __init__(self, *addresses: str, options: PoolOptions | None = None) -> None:
        self.pool = ProxyPool(options)
        self.pool.replace(addresses)
        self.pool.switch(True)
        self.client = HttpDownloader(HttpOptions("test/1", connect_seconds=1.0, read_seconds=2.0))
        self.downloader = ProxiedDownloader(self.client, self.pool)
        self.gate = OpenGate()

    async def __aenter__(self) -> Line:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.downloader.close()

    async def get(self, url: str, **kwargs: object) -> Response:
        return await self.downloader.fetch(Request(url, **kwargs), self.gate)

    async def error(self, url: str, **kwargs: object) -> DownloadError:
        with pytest.raises(DownloadError) as caught:
            await self.get(url, **kwargs)
        return caught.value


@asynccontextmanager
async def proxies(number: int, login: str = "") -> AsyncIterator[list[ForwardProxy]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(ForwardProxy(f"127.0.0.{50 + n}", login))
            for n in range(number)
        ]


async def test_a_pool_is_used_in_turn_and_the_answer_says_which(origin: Origin) -> None:
    async with proxies(2) as (one, two), Line(one.url(), two.url()) as line:
        answers = [await line.get(f"{origin.url}/{n}") for n in range(4)]
    assert origin.peers == [one.source, two.source] * 2
    assert [answer.proxy for answer in answers] == [one.id, two.id] * 2
    assert line.gate.entered == 4, "the gate stands before each send through a proxy too"


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_user_and_password_are_sent_to_the_proxy_and_shown_to_nobody(
    origin: Origin, scheme: str
) -> None:
    async with proxies(1, LOGIN) as (proxy,):
        async with Line(proxy.url(scheme, QUOTED)) as line:
            answer = await line.get(origin.url + "/a")
        assert origin.peers == [proxy.source]
        assert answer.proxy.startswith(f"{proxy.id}#")
        async with Line() as line:
            error = await line.error(origin.url + "/b", proxy=proxy.url(scheme, "user:wrong"))
    assert error.reason is Reason.PROXY
    assert "wrong" not in str(error)
    assert "user" not in str(error).replace("user or password", "")
    assert len(origin.peers) == 1


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_https_goes_through_a_tunnel(scheme: str, certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with running(tls) as origin, proxies(1, LOGIN) as (proxy,):
        async with Line(proxy.url(scheme, QUOTED)) as line:
            await line.get(origin.url + "/a", verify=str(certificate))
            assert line.gate.entered == 1, "the CONNECT is no send to the host"
            error = await line.error(origin.url + "/b")
            assert error.reason is Reason.TLS
            assert line.pool.counts() == {"all": 1, "resting": 0, "missed": 0}, (
                "the host's own certificate"
            )
        assert origin.peers == [proxy.source]
        assert {word.split()[0] for word in proxy.asked} == (
            {"CONNECT"} if scheme == "http" else {"SOCKS"}
        )


async def test_a_proxy_that_is_gone_costs_no_attempt(origin: Origin) -> None:
    async with proxies(1) as (proxy,), Line(f"127.0.0.1:{free_port()}", proxy.url()) as line:
        for n in range(3):
            await line.get(f"{origin.url}/{n}")
        assert origin.peers == [proxy.source] * 3
        assert line.pool.counts() == {"all": 2, "resting": 1, "missed": 0}


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_host_that_no_proxy_reaches_is_a_failed_attempt_and_not_waited_for(
    scheme: str,
) -> None:
    async with proxies(1) as (proxy,), Line(proxy.url(scheme)) as line:
        for url in (f"https://127.0.0.1:{free_port()}/", f"https://127.0.0.1:{free_port()}/"):
            error = await line.error(url)
            assert (error.reason, error.retry) == (Reason.CONNECTION, True)
            assert proxy.id in str(error)
        assert line.pool.counts()["resting"] == 0
        error = await line.error(f"https://127.0.0.1:{free_port()}/", proxy=proxy.url(scheme))
        assert error.reason is Reason.CONNECTION, "nor is it the fault of a request's own proxy"


async def test_a_proxy_that_does_not_answer_rests_and_the_attempt_has_failed(
    origin: Origin,
) -> None:
    async with proxies(2) as (deaf, good), Line(deaf.url(), good.url()) as line:
        deaf.deaf = True
        error = await line.error(origin.url.replace("http:", "https:"))
        assert error.reason is Reason.TIMEOUT
        assert line.pool.counts()["resting"] == 1
        await line.get(origin.url)
    assert origin.peers == [good.source]


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_nothing_goes_past_a_pool_of_which_none_is_left(origin: Origin, scheme: str) -> None:
    async with Line(f"{scheme}://127.0.0.1:{free_port()}") as line:
        with pytest.raises(NoProxyFree, match="all 1 proxies of the pool rest from it"):
            await line.get(origin.url)
        assert [host.partition(":")[0] for host in line.pool.waiting()] == ["127.0.0.1"]
        line.pool.replace([])
        with pytest.raises(NoProxyFree, match="empty"):
            await line.get(origin.url)
    assert origin.peers == []


async def test_a_pool_that_is_filled_serves_who_waits(origin: Origin) -> None:
    async with proxies(1) as (proxy,), Line() as line:
        waiting = asyncio.ensure_future(line.get(origin.url))
        await asyncio.sleep(0.01)
        assert len(line.pool.waiting()) == 1
        line.pool.replace([proxy.url()])
        await waiting
        assert line.pool.waiting() == ()
    assert origin.peers == [proxy.source]


async def test_switched_off_it_is_straight_and_on_again_it_is_not(origin: Origin) -> None:
    async with proxies(1) as (proxy,), Line(proxy.url()) as line:
        await line.get(origin.url)
        line.pool.switch(False)
        await line.get(origin.url)
        line.pool.switch(True)
        await line.get(origin.url)
    assert origin.peers == [proxy.source, DIRECT, proxy.source]


@pytest.mark.parametrize("status", [403, 429])
async def test_a_refusal_by_the_host_lets_the_proxy_rest_from_it_alone(
    origin: Origin, status: int
) -> None:
    other = origin.url.replace("127.0.0.1", "other.test")
    async with proxies(2) as (one, two), Line(one.url(), two.url()) as line:
        origin.status = status
        assert (await line.get(origin.url)).status_code == status
        origin.status = 200
        for _ in range(2):
            await line.get(origin.url)
        assert origin.peers == [one.source, two.source, two.source]
        await line.get(other)
        await line.get(other)
    assert origin.peers[3:] == [one.source, two.source], "at another host it does not rest"


async def test_407_lets_a_proxy_rest_and_the_next_one_is_asked(origin: Origin) -> None:
    async with proxies(2, LOGIN) as (one, two):
        async with Line(one.url(login="user:old"), two.url(login=QUOTED)) as line:
            answer = await line.get(origin.url)
        assert answer.status_code == 200
        assert (len(one.asked), origin.peers) == (1, [two.source])


async def test_a_proxy_that_breaks_off_again_and_again_rests(origin: Origin) -> None:
    options = PoolOptions(suspect_after=2)
    async with proxies(1) as (proxy,), Line(proxy.url(), options=options) as line:
        proxy.drop = 2  # the client sends once more what a closed connection has swallowed
        error = await line.error(origin.url)
        assert error.reason is Reason.CONNECTION
        assert proxy.id in str(error)
        await line.get(origin.url)
        proxy.drop = 4
        await line.error(origin.url)
        assert line.pool.counts()["resting"] == 0, "a good answer between them was a new start"
        await line.error(origin.url)
        assert line.pool.counts()["resting"] == 1


async def test_the_requests_own_proxy_wins(origin: Origin) -> None:
    async with proxies(3) as (pool, own, meta), Line(pool.url()) as line:
        await line.get(origin.url, proxy=own.url())
        await line.get(origin.url, meta={"proxy": meta.url()})
        await line.get(origin.url, proxies={"http": own.url()})
        error = await line.error(origin.url, proxy=f"http://127.0.0.1:{free_port()}")
        assert error.reason is Reason.PROXY
        for bad in ("", "ftp://x:1", "http://nobody:secret@host"):
            error = await line.error(origin.url, proxy=bad)
            assert (error.reason, error.retry, "secret" in str(error)) == (
                Reason.PROXY,
                False,
                False,
            )
    assert origin.peers == [own.source, meta.source, own.source]


async def test_the_bare_client_does_not_go_past_it_either(origin: Origin) -> None:
    async with proxies(1) as (proxy,), Line() as line:
        await line.client.fetch(Request(origin.url, meta={"proxy": proxy.url("socks5")}))
        limited = line.client.limited(BodyLimits(2, truncate=True))
        answer = await limited.fetch(Request(origin.url, proxy=proxy.url()))
        assert answer.content == b"pa"
    assert origin.peers == [proxy.source] * 2


async def test_socks_looks_names_up_at_the_proxy(origin: Origin) -> None:
    port = origin.url.rpartition(":")[2]
    async with proxies(1) as (proxy,), Line(proxy.url("socks5")) as line:
        await line.get(f"http://no.such.name.invalid:{port}/")
        assert proxy.asked == [f"SOCKS no.such.name.invalid:{port}"]
    assert origin.peers == [proxy.source]


def chain_of(line: Line) -> Chain:
    """As nodes have it: robots.txt comes by the same way."""
    limits = BodyLimits(ROBOTS_MAX_BYTES, truncate=True)
    robots = Robots(
        Sender(line.downloader.limited(limits)),
        MemoryRobotsStore(asyncio.get_running_loop().time),
        RobotsOptions("test"),
        holder="node",
        rng=random.Random(1),
    )
    return Chain(line.downloader, robots=robots)


async def test_robots_txt_comes_through_the_pool_too(origin: Origin) -> None:
    async with proxies(1) as (proxy,), Line(proxy.url()) as line:
        outcome = await chain_of(line).download(Request(origin.url + "/p"), gate=line.gate)
        assert isinstance(outcome, Fetched)
    assert origin.peers == [proxy.source] * 2


async def test_robots_txt_comes_through_the_requests_own_proxy(origin: Origin) -> None:
    async with proxies(1) as (proxy,), Line() as line:
        line.pool.switch(False)
        request = Request(origin.url + "/p", meta={"proxy": proxy.url()})
        outcome = await chain_of(line).download(request, gate=line.gate)
        assert isinstance(outcome, Fetched)
        assert outcome.response is not None
        assert outcome.response.proxy == proxy.id
        bad = await chain_of(line).download(Request(origin.url + "/q", proxy="x"), gate=line.gate)
        assert isinstance(bad, Failed)
        assert (bad.reason, bad.retry) == (Reason.PROXY, False)
    assert origin.peers == [proxy.source] * 2


async def test_without_a_proxy_the_chain_ends_with_no_outcome(origin: Origin) -> None:
    async with Line() as line:
        with pytest.raises(NoProxyFree):
            await chain_of(line).download(Request(origin.url + "/p"), gate=line.gate)
    assert origin.peers == []
    assert line.gate.meetings == [], "nothing is said of the host"
