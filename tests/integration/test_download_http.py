"""The HTTP client against real servers: one that behaves, and one that does not."""

from __future__ import annotations

import asyncio
import gzip
import random
import shutil
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import brotli
import pytest
from aiohttp import web
from tests.gates import OpenGate

from orbweb.download.base import DownloadError
from orbweb.download.http import BodyLimits, HttpDownloader, HttpOptions
from orbweb.errors import ContentTypeRejectedError, ResponseTooLargeError
from orbweb.model.reasons import Reason
from orbweb.model.request import Request

try:
    from compression import zstd
except ImportError:
    from backports import zstd

TEXT = b"<html>" + b"page " * 3000 + b"</html>"
MIB = 1024 * 1024

ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
    "deflate": zlib.compress,
    "raw deflate": lambda data: zlib.compress(data, wbits=-15),
}


@dataclass
class Origin:
    """A server that notes what it was asked."""

    url: str = ""
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    peers: set[Any] = field(default_factory=set)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]] | None
        handler = getattr(self, f"on_{request.path.strip('/')}", None)
        if handler is None:
            return web.Response(body=TEXT, content_type="text/html")
        return await handler(request)

    async def on_encoded(self, request: web.Request) -> web.StreamResponse:
        name = request.query["as"]
        body = ENCODERS[name](TEXT)
        headers = {"Content-Encoding": name.removeprefix("raw ")}
        return web.Response(body=body, headers=headers, content_type="text/html")

    async def on_bomb(self, request: web.Request) -> web.StreamResponse:
        body = ENCODERS[request.query["as"]](b"\0" * (64 * MIB))
        return web.Response(body=body, headers={"Content-Encoding": request.query["as"]})

    async def on_broken(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"this is not gzip", headers={"Content-Encoding": "gzip"})

    async def on_endless(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"x" * 65_536)

    async def on_announced(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x" * 2 * MIB)

    async def on_incompressible(self, request: web.Request) -> web.StreamResponse:
        body = gzip.compress(random.Random(1).randbytes(MIB))
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async def on_silent(self, request: web.Request) -> web.StreamResponse:
        await self.release.wait()
        return web.Response()

    async def on_stalled(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b"begun")
        await self.release.wait()
        return answer

    async def on_moved(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "/target"}, text="moved")

    async def on_headers(self, request: web.Request) -> web.StreamResponse:
        answer = web.Response(text="x")
        answer.headers["X-One"] = "1"
        answer.headers.add("X-Two", "a")
        answer.headers.add("X-Two", "b")
        answer.set_cookie("first", "1")
        answer.set_cookie("second", "2 and more")
        return answer

    async def on_image(self, request: web.Request) -> web.StreamResponse:
        return web.Response(
            status=int(request.query.get("status", 200)), body=b"png", content_type="image/png"
        )


@asynccontextmanager
async def running(origin: Origin, tls: ssl.SSLContext | None = None) -> AsyncIterator[Origin]:
    app = web.Application(client_max_size=MIB)
    app.router.add_route("*", "/{tail:.*}", origin.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    origin.url = f"http{'s' if tls else ''}://127.0.0.1:{port}"
    try:
        yield origin
    finally:
        origin.release.set()
        await runner.cleanup()


@pytest.fixture
async def origin() -> AsyncIterator[Origin]:
    async with running(Origin()) as origin:
        yield origin


@asynccontextmanager
async def client(**options: Any) -> AsyncIterator[HttpDownloader]:
    downloader = HttpDownloader(HttpOptions(user_agent="orbweb/test", **options))
    try:
        yield downloader
    finally:
        await downloader.close()


@asynccontextmanager
async def raw_server(answer: bytes, *, hang: bool = False) -> AsyncIterator[str]:
    """A server that sends exactly these bytes and closes the connection (or leaves it open)."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if hang:
            await done.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        done.set()
        server.close()
        await server.wait_closed()


async def failing(downloader: HttpDownloader, request: Request) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        await downloader.fetch(request)
    assert request.url in str(caught.value)
    return caught.value


async def test_a_page(origin: Origin) -> None:
    request = Request(origin.url + "/p?x=1#part", params={"y": "2"})
    async with client() as downloader:
        response = await downloader.fetch(request)
    assert (response.status_code, response.content) == (200, TEXT)
    assert response.url == origin.url + "/p?x=1&y=2"
    assert response.request is request
    assert response.elapsed is not None
    assert response.elapsed > 0
    sent = origin.requests[0]
    assert sent.headers["User-Agent"] == "orbweb/test"
    assert sent.query_string == "x=1&y=2"
    for encoding in ("gzip", "deflate", "br", "zstd"):
        assert encoding in sent.headers["Accept-Encoding"]


async def test_connections_are_used_again(origin: Origin) -> None:
    async with client() as downloader:
        for number in range(5):
            await downloader.fetch(Request(f"{origin.url}/{number}"))
        await downloader.fetch(Request(origin.url + "/encoded?as=gzip"))
        await downloader.fetch(Request(origin.url + "/moved"))
        await downloader.fetch(Request(origin.url + "/last", method="POST", data={"a": "1"}))
    assert len(origin.peers) == 1


@pytest.mark.parametrize("encoding", list(ENCODERS))
async def test_compressed_bodies(origin: Origin, encoding: str) -> None:
    async with client() as downloader:
        response = await downloader.fetch(Request(origin.url + "/encoded", params={"as": encoding}))
    assert response.content == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
async def test_a_decompression_bomb_is_cut_at_the_limit(origin: Origin, encoding: str) -> None:
    async with client(limits=BodyLimits(MIB)) as downloader:
        with pytest.raises(ResponseTooLargeError, match=str(MIB)):
            await downloader.fetch(Request(f"{origin.url}/bomb?as={encoding}"))
        assert (await downloader.fetch(Request(origin.url + "/next"))).content == TEXT


async def test_an_endless_body_is_cut_at_the_limit(origin: Origin) -> None:
    async with client(limits=BodyLimits(MIB)) as downloader:
        with pytest.raises(ResponseTooLargeError):
            await downloader.fetch(Request(origin.url + "/endless"))


async def test_a_body_announced_as_too_large_is_not_read(origin: Origin) -> None:
    async with client(limits=BodyLimits(MIB)) as downloader:
        with pytest.raises(ResponseTooLargeError, match="announced"):
            await downloader.fetch(Request(origin.url + "/announced"))
        head = await downloader.fetch(Request(origin.url + "/announced", method="HEAD"))
    assert head.content == b""


async def test_a_body_of_exactly_the_limit_is_a_page(origin: Origin) -> None:
    async with client(limits=BodyLimits(2 * MIB)) as downloader:
        response = await downloader.fetch(Request(origin.url + "/announced"))
    assert len(response.content) == 2 * MIB


async def test_the_limit_counts_the_body_and_not_its_compressed_form(origin: Origin) -> None:
    async with client(limits=BodyLimits(MIB)) as downloader:
        response = await downloader.fetch(Request(origin.url + "/incompressible"))
    assert len(response.content) == MIB
    assert int(response.headers["content-length"]) > MIB


async def test_other_limits_on_the_same_connections(origin: Origin) -> None:
    async with client(limits=BodyLimits(10, ("image/",))) as downloader:
        start = downloader.limited(BodyLimits(5, truncate=True))
        assert (await start.fetch(Request(origin.url + "/p"))).content == TEXT[:5]
        await start.close()
        whole = downloader.limited(BodyLimits(0))
        assert (await whole.fetch(Request(origin.url + "/p"))).content == TEXT


async def test_unwanted_content_types_are_not_read(origin: Origin) -> None:
    async with client(limits=BodyLimits(content_types=("Text/", "application/json"))) as downloader:
        assert (await downloader.fetch(Request(origin.url + "/p"))).content == TEXT
        with pytest.raises(ContentTypeRejectedError, match="image/png"):
            await downloader.fetch(Request(origin.url + "/image"))
        failed = await downloader.fetch(Request(origin.url + "/image?status=503"))
    assert failed.status_code == 503


async def test_headers_are_lower_case_and_repeated_ones_joined(origin: Origin) -> None:
    async with client() as downloader:
        response = await downloader.fetch(Request(origin.url + "/headers"))
    assert response.headers["x-one"] == "1"
    assert response.headers["x-two"] == "a, b"
    assert dict(response.cookies) == {"first": "1", "second": "2 and more"}
    assert all(name == name.lower() for name in response.headers)


async def test_a_redirect_is_an_answer(origin: Origin) -> None:
    async with client() as downloader:
        response = await downloader.fetch(Request(origin.url + "/moved"))
    assert response.status_code == 302
    assert response.headers["location"] == "/target"
    assert len(origin.requests) == 1


@pytest.mark.parametrize(
    ("kwargs", "body", "content_type"),
    [
        ({"json": {"a": "é"}}, '{"a":"é"}'.encode(), "application/json"),
        ({"data": {"a": "1", "b": [2, 3]}}, b"a=1&b=2&b=3", "application/x-www-form-urlencoded"),
        ({"data": b"raw"}, b"raw", None),
        ({"content": "text"}, b"text", None),
        ({"content": b"x", "headers": {"content-type": "text/x"}}, b"x", "text/x"),
    ],
)
async def test_bodies(
    origin: Origin, kwargs: dict[str, Any], body: bytes, content_type: str | None
) -> None:
    async with client() as downloader:
        await downloader.fetch(Request(origin.url + "/form", method="POST", **kwargs))
    assert origin.bodies == [body]
    assert origin.requests[0].headers.get("Content-Type") == content_type


async def test_a_file_upload(origin: Origin) -> None:
    files = {"doc": ("a.txt", b"content", "text/plain")}
    async with client() as downloader:
        await downloader.fetch(
            Request(origin.url + "/form", method="POST", data={"k": 1}, files=files)
        )
    assert b'name="doc"; filename="a.txt"' in origin.bodies[0]
    assert b"\r\n\r\ncontent\r\n" in origin.bodies[0]
    assert b'name="k"' in origin.bodies[0]


async def test_headers_and_auth_of_a_request(origin: Origin) -> None:
    async with client() as downloader:
        await downloader.fetch(
            Request(origin.url + "/p", headers={"User-Agent": "mine", "X-A": "1"}, auth=("u", "p"))
        )
    sent = origin.requests[0].headers
    assert (sent["User-Agent"], sent["X-A"], sent["Authorization"]) == ("mine", "1", "Basic dTpw")


async def test_cookies_are_kept_only_when_asked_for(origin: Origin) -> None:
    async def second_cookie(keep: bool, use_session: bool | None) -> str | None:
        async with client(keep_cookies=keep) as downloader:
            for path in ("/headers", "/p"):
                await downloader.fetch(Request(origin.url + path, use_session=use_session))
        return origin.requests[-1].headers.get("Cookie")

    assert await second_cookie(keep=False, use_session=None) is None
    assert "first=1" in (await second_cookie(keep=True, use_session=None) or "")
    assert "first=1" in (await second_cookie(keep=False, use_session=True) or "")
    assert await second_cookie(keep=True, use_session=False) is None


async def test_cookies_of_a_request_are_sent_once(origin: Origin) -> None:
    async with client() as downloader:
        await downloader.fetch(Request(origin.url + "/p", cookies={"a": "1"}))
        await downloader.fetch(Request(origin.url + "/p"))
    assert [sent.headers.get("Cookie") for sent in origin.requests] == ["a=1", None]


async def test_a_proxy_is_asked_for_the_whole_url(origin: Origin) -> None:
    async with client() as downloader:
        gate = OpenGate()
        request = Request("http://shop.example/p", proxy=origin.url)
        response = await downloader.fetch(request, gate)
    assert gate.entered == 1
    assert response.content == TEXT
    assert origin.requests[0].headers["Host"] == "shop.example"


async def test_a_proxy_that_is_not_there(unused_tcp_port: int) -> None:
    proxy = f"http://127.0.0.1:{unused_tcp_port}"
    async with client() as downloader:
        error = await failing(downloader, Request("http://shop.example/", proxy=proxy))
    assert error.reason is Reason.PROXY


async def test_silence_after_the_request_is_a_read_timeout(origin: Origin) -> None:
    async with client(read_seconds=0.05) as downloader:
        error = await failing(downloader, Request(origin.url + "/silent"))
    assert (error.reason, error.retry) == (Reason.TIMEOUT, True)
    assert "read timeout" in str(error)


async def test_silence_in_the_body_is_a_read_timeout(origin: Origin) -> None:
    async with client(read_seconds=0.05) as downloader:
        error = await failing(downloader, Request(origin.url + "/stalled"))
    assert error.reason is Reason.TIMEOUT
    assert "read timeout" in str(error)


async def test_the_total_timeout_ends_a_body_that_never_ends(origin: Origin) -> None:
    async with client(total_seconds=0.1, limits=BodyLimits(0)) as downloader:
        error = await failing(downloader, Request(origin.url + "/stalled"))
    assert error.reason is Reason.TIMEOUT
    assert "request timeout" in str(error)


async def test_the_timeout_of_a_request_wins(origin: Origin) -> None:
    async with client() as downloader:
        error = await failing(downloader, Request(origin.url + "/silent", timeout=0.05))
    assert error.reason is Reason.TIMEOUT


async def test_a_connection_that_is_not_answered_is_a_connect_timeout() -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with client(connect_seconds=0.05) as downloader:
        # TCP connects, but the TLS handshake, which is part of connecting, never ends
        error = await failing(downloader, Request(f"https://127.0.0.1:{port}/"))
    server.close()
    assert error.reason is Reason.TIMEOUT
    assert "connect timeout" in str(error)


async def test_a_refused_connection(unused_tcp_port: int) -> None:
    async with client() as downloader:
        error = await failing(downloader, Request(f"http://127.0.0.1:{unused_tcp_port}/"))
    assert (error.reason, error.retry) == (Reason.CONNECTION, True)


async def test_a_name_that_does_not_exist() -> None:
    async with client() as downloader:
        error = await failing(downloader, Request("http://no-such-host.invalid/"))
    assert error.reason is Reason.DNS


async def test_a_server_that_speaks_no_tls(origin: Origin) -> None:
    url = origin.url.replace("http:", "https:") + "/"
    async with client() as downloader:
        error = await failing(downloader, Request(url))
    assert error.reason is Reason.TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1 and its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command")
    path = tmp_path_factory.mktemp("tls") / "self-signed.pem"
    command = [openssl, "req", "-x509", "-nodes", "-newkey", "ec"]
    command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", path, "-out", path], check=True, capture_output=True)
    return path


async def test_a_certificate_that_nobody_vouches_for(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with running(Origin(), tls) as origin, client() as downloader:
        error = await failing(downloader, Request(origin.url + "/p"))
        assert error.reason is Reason.TLS
        trusting = await downloader.fetch(Request(origin.url + "/p", verify=False))
        assert trusting.content == TEXT
        vouched = await downloader.fetch(Request(origin.url + "/p", verify=str(certificate)))
        assert vouched.content == TEXT


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", Reason.CONNECTION),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", Reason.CONNECTION),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", Reason.CONNECTION),
        (b"garbage that is not http\r\n\r\n", Reason.HTTP_ERROR),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Reason.HTTP_ERROR),
        (HEAD + b"Content-Length: ten\r\n\r\n", Reason.HTTP_ERROR),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx", Reason.HTTP_ERROR),
        (HEAD + b"a line without colon\r\n\r\n", Reason.HTTP_ERROR),
        (HEAD + b"X-Nul: a\x00b\r\n\r\n", Reason.HTTP_ERROR),
        (HEAD + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n", Reason.HTTP_ERROR),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", Reason.HTTP_ERROR),
    ],
)
async def test_answers_that_are_not_http(answer: bytes, reason: Reason) -> None:
    async with raw_server(answer) as url, client() as downloader:
        error = await failing(downloader, Request(url))
    assert (error.reason, error.retry) == (reason, True)
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (HEAD + b"X-Big: " + b"x" * 30_000 + b"\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (HEAD + b"X-Latin: \xe9\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (HEAD + b"Set-Cookie: ;;=\xe9\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (
            b"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n" + HEAD + b"Content-Length: 0\r\n\r\n",
            b"",
        ),
        (HEAD + b"Content-Encoding: unknown\r\nContent-Length: 2\r\n\r\nok", b"ok"),
    ],
)
async def test_odd_answers_that_can_be_read(answer: bytes, body: bytes) -> None:
    async with raw_server(answer) as url, client() as downloader:
        response = await downloader.fetch(Request(url))
    assert (response.status_code, response.content) == (200, body)


async def test_a_connection_that_the_server_closed_while_idle_is_replaced() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with raw_server(answer) as url, client() as downloader:
        for _ in range(3):
            assert (await downloader.fetch(Request(url))).content == b"ok"


@pytest.mark.parametrize("headers", [{"X-A": "a\r\nX-B: b"}, {"X\n": "1"}])
async def test_a_header_cannot_smuggle_another(origin: Origin, headers: dict[str, str]) -> None:
    async with client() as downloader:
        error = await failing(downloader, Request(origin.url + "/p", headers=headers))
    assert not error.retry
    assert origin.requests == []


@pytest.mark.parametrize(
    "kwargs", [{"render": True}, {"impersonate": "chrome"}, {"random_user_agent": True}]
)
async def test_features_that_are_not_there_fail_loudly(origin: Origin, kwargs: Any) -> None:
    async with client() as downloader:
        error = await failing(downloader, Request(origin.url + "/p", **kwargs))
    assert not error.retry
    assert origin.requests == []


async def test_a_cancelled_fetch_closes_its_connection(origin: Origin) -> None:
    async with client() as downloader:
        task = asyncio.create_task(downloader.fetch(Request(origin.url + "/silent")))
        while not origin.requests:  # noqa: ASYNC110 - the server is in this process
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await downloader.fetch(Request(origin.url + "/p"))).content == TEXT
    assert len(origin.peers) == 2


async def test_closing_twice_does_no_harm(origin: Origin) -> None:
    async with client() as downloader:
        await downloader.fetch(Request(origin.url + "/p"))
        await downloader.close()


class Refusal(Exception):
    """What a closed gate raises."""


class ClosedGate(OpenGate):
    async def enter(self) -> None:
        self.entered += 1
        raise Refusal


async def test_a_request_enters_its_gate_when_the_connection_stands(origin: Origin) -> None:
    class Looking(OpenGate):
        async def enter(self) -> None:
            await super().enter()
            seen.append((len(origin.requests), "entered"))

        def sent(self) -> None:
            seen.append((len(origin.requests), "sent"))

    seen: list[tuple[int, str]] = []
    async with client() as http:
        await http.fetch(Request(origin.url + "/p"), Looking())
        await http.fetch(Request(origin.url + "/p"))
        await http.fetch(Request(origin.url + "/p", method="POST", data={"a": 1}), Looking())
    assert seen == [(0, "entered"), (0, "sent"), (2, "entered"), (2, "sent")]
    assert len(origin.peers) == 1, "the connection is kept"


async def test_what_a_gate_raises_passes_and_nothing_is_sent_or_left_open(origin: Origin) -> None:
    gate = ClosedGate()
    async with client() as http:
        for _ in range(20):
            with pytest.raises(Refusal):
                await http.fetch(Request(origin.url + "/p"), gate)
        assert http._connector is not None
        assert not http._connector._acquired
        assert not http._connector._conns
        assert (await http.fetch(Request(origin.url + "/p"))).content == TEXT
    assert gate.entered == 20
    assert len(origin.requests) == 1


async def test_cancelling_a_request_that_stands_at_its_gate_leaves_nothing_open(
    origin: Origin,
) -> None:
    class Waiting(OpenGate):
        async def enter(self) -> None:
            arrived.set()
            await asyncio.Event().wait()

    arrived = asyncio.Event()
    async with client() as http:
        task = asyncio.create_task(http.fetch(Request(origin.url + "/p"), Waiting()))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert http._connector is not None
        assert not http._connector._acquired
    assert origin.requests == []


async def test_a_request_that_is_sent_again_enters_again() -> None:
    """A server closes a kept connection at the moment at which the client uses it again."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            pass  # the client has gone
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    gate = OpenGate()
    async with server, client() as http:
        await http.fetch(Request(url), gate)
        await http.fetch(Request(url), gate)
    assert gate.entered == 3


async def test_requests_at_once_have_gates_of_their_own(origin: Origin) -> None:
    gates = [OpenGate() for _ in range(20)]
    async with client() as http:
        await asyncio.gather(
            *(http.fetch(Request(f"{origin.url}/p{n}"), g) for n, g in enumerate(gates))
        )
    assert [gate.entered for gate in gates] == [1] * 20
