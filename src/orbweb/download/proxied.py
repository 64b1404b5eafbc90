"""The downloader that sends each request through its proxy: its own, or one of the pool."""

from __future__ import annotations

from typing import Protocol

from orbweb.download.base import DownloadError, Gate, Meeting
from orbweb.download.http import BodyLimits
from orbweb.download.proxies import ProxyPool
from orbweb.download.wire import own_proxy
from orbweb.model.proxy import Proxy
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import host_of

AUTHENTICATION_REQUIRED = 407

_OF_THE_PROXY = frozenset({Reason.PROXY, Reason.DNS})
"""Before anything was sent: the proxy cannot be had, or will not. It is its name that is looked up.

Every other failure counts as an attempt, or a host that nobody reaches would be tried for ever.
"""


class Client(Protocol):
    """What sends a request through a proxy that was chosen, or without one."""

    async def fetch(
        self, request: Request, gate: Gate | None = None, proxy: Proxy | None = None
    ) -> Response:
        """See `Downloader`."""

    def limited(self, limits: BodyLimits) -> Client:
        """The same connections with other limits; closing it closes nothing."""

    async def close(self) -> None:
        """See `Downloader`."""


class ProxiedDownloader:
    """See `Downloader`. Also raises `NoProxyFree`: a pool that is on is never gone past.

    When a proxy cannot be had, the next one is tried at once: it is no failure of the request. One
    that the request itself names has no other beside it.
    """

    def __init__(self, client: Client, pool: ProxyPool) -> None:
        self._client = client
        self._pool = pool

    async def fetch(self, request: Request, gate: Gate | None = None) -> Response:
        """See `Downloader`."""
        own = own_proxy(request)
        if own is not None:
            return await self._through_own(own, request, gate)
        if not self._pool.is_on:
            return await self._client.fetch(request, gate)
        host = host_of(request.url)
        while True:
            proxy = await self._pool.take(host)
            response = await self._through(proxy, host, request, gate)
            if response is not None:
                return response

    def limited(self, limits: BodyLimits) -> ProxiedDownloader:
        """The same connections and proxies with other limits; closing it closes nothing."""
        return ProxiedDownloader(self._client.limited(limits), self._pool)

    async def close(self) -> None:
        """See `Downloader`."""
        await self._client.close()

    async def _through(
        self, proxy: Proxy, host: str, request: Request, gate: Gate | None
    ) -> Response | None:
        """The answer; None when the proxy is of no use, and another one is to be tried."""
        pool, watched = self._pool, _Watched(gate)
        try:
            response = await self._client.fetch(request, watched, proxy)
        except DownloadError as error:
            if not watched.entered and error.reason in _OF_THE_PROXY:
                pool.failed(proxy, host, str(error))
                return None
            if not watched.entered and error.reason is Reason.TIMEOUT:
                pool.failed(proxy, host, str(error))
            elif error.reason is not Reason.TLS:
                pool.suspect(proxy, host, str(error))
            raise _told(error, proxy) from error
        status = response.status_code
        if status == AUTHENTICATION_REQUIRED:
            pool.failed(proxy, host, "it wants another user or password (407)")
            return None
        if status in pool.answers_refused:
            pool.failed(proxy, host, f"the host answered {status} through it")
        else:
            pool.good(proxy, host)
        response.proxy = proxy.id
        return response

    async def _through_own(self, proxy: Proxy, request: Request, gate: Gate | None) -> Response:
        watched = _Watched(gate)
        try:
            response = await self._client.fetch(request, watched, proxy)
        except DownloadError as error:
            if not watched.entered and error.reason in (Reason.DNS, Reason.TIMEOUT):
                error.reason = Reason.PROXY
            raise _told(error, proxy) from error
        if response.status_code == AUTHENTICATION_REQUIRED:
            text = f"{request.url}: proxy {proxy}: it wants another user or password (407)"
            raise DownloadError(Reason.PROXY, text)
        response.proxy = proxy.id
        return response


class _Watched:
    """A gate that knows whether it was entered: before that nothing was sent. See `Gate`."""

    def __init__(self, gate: Gate | None) -> None:
        self.entered = False
        self._gate = gate

    async def ready(self) -> None:
        if self._gate is not None:
            await self._gate.ready()

    async def enter(self) -> None:
        self.entered = True
        if self._gate is not None:
            await self._gate.enter()

    def sent(self) -> None:
        if self._gate is not None:
            self._gate.sent()

    async def met(self, meeting: Meeting) -> None:
        if self._gate is not None:
            await self._gate.met(meeting)

    async def crawl_delay(self, host: str, seconds: float) -> None:
        if self._gate is not None:
            await self._gate.crawl_delay(host, seconds)

    def elsewhere(self, host: str) -> Gate:
        return self if self._gate is None else self._gate.elsewhere(host)


def _told(error: DownloadError, proxy: Proxy) -> DownloadError:
    text = f"{error} (through proxy {proxy})"
    return DownloadError(error.reason, text, retry=error.retry)
