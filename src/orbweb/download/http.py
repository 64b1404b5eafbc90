"""The HTTP client: one aiohttp session with keep-alive, and the limits of what is read."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.connector import Connection

from orbweb.download.base import Gate
from orbweb.download.failures import CLIENT_ERRORS, download_error
from orbweb.download.socks import SocksSessions
from orbweb.download.wire import own_proxy, unsendable, wire_arguments
from orbweb.errors import ContentTypeRejectedError, ResponseTooLargeError
from orbweb.model.proxy import Proxy
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import host_of

_HEAD_LIMIT_BYTES = 65_536
_HEADERS_LIMIT = 512

_gate: ContextVar[Gate | None] = ContextVar("gate", default=None)
"""The gate of the request that the running task sends: aiohttp hands nothing of ours through."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What of an answer is read."""

    max_bytes: int = 32 * 1024 * 1024
    """Longest body, counted after decompression; 0 = no limit."""
    content_types: tuple[str, ...] = ()
    """Accepted prefixes of the type of a 2xx answer; empty = all. Other answers are not read."""
    truncate: bool = False
    """Keep the first `max_bytes` of a longer body instead of refusing it."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How the client behaves when a request does not say otherwise. Times in seconds."""

    user_agent: str
    total_seconds: float = 30.0
    """From asking for a connection to the last byte of the body."""
    connect_seconds: float = 10.0
    """DNS, TCP and TLS together."""
    read_seconds: float = 20.0
    """Longest silence of the server."""
    limits: BodyLimits = BodyLimits()
    keep_cookies: bool = False
    """Send cookies back that sites have set (`USE_SESSION`); a request's `use_session` wins."""
    keepalive_seconds: float = 15.0
    dns_ttl_seconds: int = 300


@dataclass(slots=True)
class Traffic:
    """Bytes of requests and answers so far, heads included, as they were on the wire before TLS."""

    received: int = 0
    sent: int = 0

    def count(self, reply: aiohttp.ClientResponse) -> None:
        """Count one exchange, when as much of the body is read as ever will be."""
        asked = reply.request_info
        body = asked.headers.get("Content-Length", "0")
        head = sum(len(name) + len(value) + 4 for name, value in asked.headers.items())
        self.sent += len(asked.method) + len(asked.url.raw_path_qs) + 13 + head + int(body)
        head = sum(len(name) + len(value) + 4 for name, value in reply.raw_headers)
        read = 0 if reply.content is aiohttp.EMPTY_PAYLOAD else reply.content.total_raw_bytes
        self.received += len(reply.reason or "") + 17 + head + read


class HttpDownloader:
    """See `Downloader`. Reuses connections; must be used on one event loop."""

    def __init__(self, options: HttpOptions) -> None:
        self.traffic = Traffic()
        self._options = options
        self._timeout = _timeout(options)
        self._of_hosts: Mapping[str, HttpOptions] = {}
        self._connector: aiohttp.TCPConnector | None = None
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._socks = SocksSessions(self._open_owner, options.keepalive_seconds)
        self._jar: aiohttp.CookieJar | None = None

    def retune(self, options: HttpOptions, of_hosts: Mapping[str, HttpOptions]) -> None:
        """Send by other options from now on, to some hosts by options of their own.

        What is under way goes on as it began; cookies and connections are kept. `keep_cookies` and
        what connections are made by stay as they were.
        """
        self._options, self._of_hosts = options, of_hosts
        self._timeout = _timeout(options)
        for session in (*self._sessions.values(), *self._socks):
            session.headers["User-Agent"] = options.user_agent

    def fetch(
        self, request: Request, gate: Gate | None = None, proxy: Proxy | None = None
    ) -> Coroutine[Any, Any, Response]:
        """See `Downloader`; through the proxy if one is given, else that of the request."""
        return self.exchange(request, None, gate, proxy)

    async def exchange(
        self,
        request: Request,
        limits: BodyLimits | None,
        gate: Gate | None,
        proxy: Proxy | None = None,
    ) -> Response:
        """`fetch`, with other limits than those of the options unless `limits` is None."""
        if request.render or request.impersonate or request.random_user_agent:
            raise unsendable(
                f"{request.url}: render, impersonate and random_user_agent belong to features "
                "that this version does not have"
            )
        proxy = proxy or own_proxy(request)
        if proxy is None or not proxy.is_socks:
            return await self._exchange(self._session(request), request, limits, gate, proxy)
        async with self._socks.session(proxy, self._keeps_cookies(request)) as session:
            return await self._exchange(session, request, limits, gate, None)

    async def _exchange(
        self,
        session: aiohttp.ClientSession,
        request: Request,
        limits: BodyLimits | None,
        gate: Gate | None,
        proxy: Proxy | None,
    ) -> Response:
        url = request.url
        options, timeout = self._options, self._timeout
        own = self._of_hosts.get(host_of(url)) if self._of_hosts else None
        if own is not None:
            options, timeout = own, _timeout(own)
        limits = limits or options.limits
        entered = _gate.set(gate)
        try:
            arguments: dict[str, Any] = {"timeout": timeout}
            if request.requests_kwargs:
                url = request.full_url
                arguments |= wire_arguments(request, timeout)
            if own is not None and not _names(arguments.get("headers", {}), "user-agent"):
                headers_of_host = {"User-Agent": own.user_agent}
                arguments["headers"] = {**arguments.get("headers", {}), **headers_of_host}
            if proxy is not None:
                arguments["proxy"] = proxy.address
            started = asyncio.get_running_loop().time()
            reply = await session.request(request.method, url, allow_redirects=False, **arguments)
            try:
                headers = _lower_headers(reply)
                if limits.content_types:
                    _check_type(reply.status, headers, url, limits)
                body = await _read(reply, headers, url, limits)
            finally:
                self.traffic.count(reply)
                if not reply.closed:
                    reply.close()
        except CLIENT_ERRORS as error:
            raise download_error(error, url) from error
        finally:
            _gate.reset(entered)
        response = Response(
            _answered_url(url, reply),
            reply.status,
            body,
            cookies=_cookies(reply) if "set-cookie" in headers else None,
            request=request,
            elapsed=asyncio.get_running_loop().time() - started,
        )
        response.headers.update(headers)
        return response

    def limited(self, limits: BodyLimits) -> LimitedDownloader:
        """The same connections with other limits; closing it closes nothing."""
        return LimitedDownloader(self, limits)

    async def close(self) -> None:
        """See `Downloader`."""
        sessions, self._sessions = self._sessions, {}
        connector, self._connector = self._connector, None
        for session in sessions.values():
            await session.close()
        await self._socks.close()
        if connector is not None:
            await connector.close()

    def _keeps_cookies(self, request: Request) -> bool:
        asked = request.use_session
        return self._options.keep_cookies if asked is None else bool(asked)

    def _session(self, request: Request) -> aiohttp.ClientSession:
        cookies = self._keeps_cookies(request)
        session = self._sessions.get(cookies)
        if session is not None:
            return session
        if self._connector is None:
            self._connector = aiohttp.TCPConnector(
                limit=0,
                ttl_dns_cache=self._options.dns_ttl_seconds,
                keepalive_timeout=self._options.keepalive_seconds,
            )
        session = self._sessions[cookies] = self._open(self._connector, cookies)
        return session

    def _open_owner(self, connector: aiohttp.BaseConnector, cookies: bool) -> aiohttp.ClientSession:
        return self._open(connector, cookies, owns=True)

    def _open(
        self, connector: aiohttp.BaseConnector, cookies: bool, *, owns: bool = False
    ) -> aiohttp.ClientSession:
        options = self._options
        if cookies and self._jar is None:
            self._jar = aiohttp.CookieJar(unsafe=True)
        return aiohttp.ClientSession(
            connector=connector,
            connector_owner=owns,
            request_class=_HeldRequest,
            cookie_jar=self._jar if cookies else aiohttp.DummyCookieJar(),
            headers={
                "User-Agent": options.user_agent,
                "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            },
            timeout=self._timeout,
            max_line_size=_HEAD_LIMIT_BYTES,
            max_field_size=_HEAD_LIMIT_BYTES,
            max_headers=_HEADERS_LIMIT,
        )


class _HeldRequest(aiohttp.ClientRequest):
    """A request that enters its gate when the connection is there, right before its first byte.

    aiohttp closes the connection when the gate raises. A `CONNECT` to a proxy is not held.
    """

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        gate = _gate.get()
        if gate is None:
            return await super().send(conn)
        await gate.enter()
        if conn.transport is not None:  # written at once, not at the end of the loop's turn
            conn.transport.set_write_buffer_limits(high=0)
        response = await super().send(conn)
        gate.sent()
        return response


class LimitedDownloader:
    """See `Downloader`: an `HttpDownloader` seen through other limits."""

    def __init__(self, downloader: HttpDownloader, limits: BodyLimits) -> None:
        self._downloader = downloader
        self._limits = limits

    async def fetch(
        self, request: Request, gate: Gate | None = None, proxy: Proxy | None = None
    ) -> Response:
        """See `Downloader`."""
        return await self._downloader.exchange(request, self._limits, gate, proxy)

    def limited(self, limits: BodyLimits) -> LimitedDownloader:
        """See `HttpDownloader.limited`."""
        return LimitedDownloader(self._downloader, limits)

    async def close(self) -> None:
        """The connections belong to the downloader that this one came from."""


def _timeout(options: HttpOptions) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=options.total_seconds or None,
        connect=options.connect_seconds or None,
        sock_read=options.read_seconds or None,
    )


def _names(headers: Mapping[str, str], wanted: str) -> bool:
    return any(name.lower() == wanted for name in headers)


def _lower_headers(reply: aiohttp.ClientResponse) -> dict[str, str]:
    """Names in lower case; values of a repeated name joined by a comma (RFC 9110, 5.3)."""
    received = reply.headers
    headers = {name.lower(): value for name, value in received.items()}
    if len(headers) != len(received):
        for name in headers:
            headers[name] = ", ".join(received.getall(name))
    return headers


def _answered_url(url: str, reply: aiohttp.ClientResponse) -> str:
    """The URL as it was asked for, without fragment and password; encoded where it has to be."""
    if url.isascii() and "@" not in url and " " not in url:
        return url.partition("#")[0] if "#" in url else url
    return str(reply.url)


def _cookies(reply: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: morsel.value for name, morsel in reply.cookies.items()}


def _check_type(status: int, headers: dict[str, str], url: str, limits: BodyLimits) -> None:
    if not 200 <= status < 300:
        return
    kind = headers.get("content-type", "").strip().lower()
    if kind and not kind.startswith(tuple(prefix.lower() for prefix in limits.content_types)):
        raise ContentTypeRejectedError(
            f"{url}: content type {kind!r} is not among ALLOWED_CONTENT_TYPES"
        )


async def _read(
    reply: aiohttp.ClientResponse, headers: dict[str, str], url: str, limits: BodyLimits
) -> bytes:
    """The body, decompressed; reading ends at the limit, so a bomb costs no more than that."""
    most = limits.max_bytes
    if most and not limits.truncate and "content-encoding" not in headers:
        announced = headers.get("content-length", "")
        if reply.method != "HEAD" and announced.isdigit() and int(announced) > most:
            raise ResponseTooLargeError(f"{url}: {announced} bytes announced, limit {most}")
    stream = reply.content
    chunk = await stream.readany()
    if stream.at_eof() and not (most and len(chunk) > most):
        return chunk
    chunks = [chunk]
    size = len(chunk)
    while not (most and size > most):
        chunk = await stream.readany()
        if not chunk and stream.at_eof():
            return b"".join(chunks)
        chunks.append(chunk)
        size += len(chunk)
    if limits.truncate:
        return b"".join(chunks)[:most]
    raise ResponseTooLargeError(f"{url}: the body passes the limit of {most} bytes")
