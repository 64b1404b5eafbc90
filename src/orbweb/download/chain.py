"""The order of one download: middlewares, robots.txt, fetch and redirects, middlewares, status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from orbweb.download.base import (
    Again,
    Downloader,
    DownloadError,
    Dropped,
    Failed,
    Fetched,
    Gate,
    Meeting,
    Outcome,
    Redirected,
)
from orbweb.download.failures import failure
from orbweb.download.middlewares import Hook, RunBlocking, hooks_of
from orbweb.download.redirects import RedirectRules, Trail
from orbweb.download.robots import Robots
from orbweb.download.send import Sender
from orbweb.download.status import StatusPolicy
from orbweb.download.wire import own_proxy
from orbweb.errors import (
    ContentTypeRejectedError,
    HostBusy,
    LeaseLost,
    NoProxyFree,
    NotRetryError,
    OrbwebError,
    RequestError,
    RunLost,
    StoreUnavailable,
    ValidationError,
)
from orbweb.model.proxy import Proxy
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import host_of

Admit = Callable[[Request], Awaitable[Reason | None]]
"""Says of where a redirect leads why it is not wanted."""

_OF_THE_GATE = (HostBusy, LeaseLost, NoProxyFree, RunLost, StoreUnavailable)
"""What ends a download without being an error of the request."""

_MEANT = (RequestError, ValidationError, NotRetryError, ContentTypeRejectedError)


class _Ended(Exception):
    """An attempt ended before the end of the chain; carries its outcome. Never leaves the chain."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class Chain:
    """Downloads requests, each in the same order.

    process_request of each middleware, `download_midware`, robots.txt, fetch (redirects are
    followed here as far as they stay at the host, and each hop asks robots.txt again),
    process_response in reverse, status policy.
    A `Response` from process_request skips the fetch and all that comes before it.
    """

    def __init__(
        self,
        downloader: Downloader,
        *,
        middlewares: Iterable[Any] = (),
        robots: Robots | None = None,
        obey_robots: bool = True,
        status: StatusPolicy | None = None,
        redirects: RedirectRules | None = None,
        run_blocking: RunBlocking | None = None,
    ) -> None:
        """Without `robots` none are obeyed and no sitemaps are known.

        `run_blocking` takes plain `def` hooks off the event loop.
        """
        self._downloader = downloader
        self.middlewares = tuple(middlewares)
        self._robots = robots
        self._obeyed = robots if obey_robots else None
        self._status = status or StatusPolicy()
        self._sender = Sender(downloader, self._status)
        self._redirects = redirects or RedirectRules()
        self._run_blocking = run_blocking
        self._before = hooks_of(self.middlewares, "process_request", run_blocking)
        self._after = hooks_of(self.middlewares, "process_response", run_blocking)[::-1]

    async def download(
        self,
        request: Request,
        *,
        download_midware: Callable[[Request], Any] | None = None,
        gate: Gate,
        admit: Admit | None = None,
    ) -> Outcome:
        """Run one attempt to its outcome. No error of a request, page or middleware is raised.

        `admit` says of a redirect's target why it is not wanted; such a request is dropped.

        What passes through is what the gate raises, such as `LeaseLost`, `NoProxyFree`, and
        cancellation.
        The outcome's request carries the identity (id, lease, depth, tries) of the one given, also
        when a middleware replaced it.
        """
        if not request.auto_request:
            return Fetched(request, None)
        try:
            request, response = await self._prepare(request, download_midware)
            if response is None:
                response = await self._fetch(request, gate, admit)
            response = await self._finish(request, response)
        except _Ended as ended:
            return ended.outcome
        return self._status.refusal(request, response) or Fetched(request, response)

    def retune(self, status: StatusPolicy, redirects: RedirectRules) -> None:
        """Judge answers and redirects by other rules from now on."""
        self._status = self._sender.status = status
        self._redirects = redirects

    async def sitemaps(self, url: str, gate: Gate) -> tuple[str, ...]:
        """See `Robots.sitemaps`."""
        return () if self._robots is None else await self._robots.sitemaps(url, gate)

    async def close(self) -> None:
        """Close the middlewares that have `close`, then the downloader."""
        for close in hooks_of(self.middlewares, "close", self._run_blocking):
            await close()
        await self._downloader.close()

    async def _prepare(
        self, request: Request, download_midware: Callable[[Request], Any] | None
    ) -> tuple[Request, Response | None]:
        for hook in self._before:
            result = await self._call(hook, request, request)
            if isinstance(result, Response):
                result.request = request
                return request, result
            request = self._replaced(hook.name, request, result)
        if download_midware is not None:
            hook = Hook("download_midware", download_midware, self._run_blocking)
            request = self._replaced(hook.name, request, await self._call(hook, request, request))
        return request, None

    async def _finish(self, request: Request, response: Response) -> Response:
        for hook in self._after:
            result = await self._call(hook, request, request, response)
            if isinstance(result, Response):
                response = result
                if response.request is None:
                    response.request = request
            elif result is not None:
                raise _Ended(Again(self._replaced(hook.name, request, result)))
        return response

    async def _call(self, hook: Hook, request: Request, *arguments: Any) -> Any:
        try:
            return await hook(*arguments)
        except _MEANT as error:
            raise _Ended(failure(request, error)) from error
        except OrbwebError:
            raise
        except Exception as error:
            _middleware_failed(request, f"{hook.name}: {type(error).__name__}: {error}", error)

    def _replaced(self, name: str, request: Request, result: Any) -> Request:
        if result is None or result is request:
            return request
        if not isinstance(result, Request):
            _middleware_failed(
                request, f"{name} returned {type(result).__name__}, not a Request or None"
            )
        for field in ("id", "parent_id", "depth", "retry_times", "lease_token"):
            setattr(result, field, getattr(request, field))
        return result

    async def _fetch(self, request: Request, gate: Gate, admit: Admit | None) -> Response:
        await self._ask_robots(request, request, gate)
        response = await self._send(request, request, gate)
        response.history = list(request.way.history)
        if self._redirects.applies(request, response):
            try:
                async with asyncio.timeout(self._redirects.seconds(request)) as limit:
                    waiting = _Unhurried(gate, limit)
                    response = await self._follow(request, response, waiting, admit)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                text = f"{request.url}: its redirects did not end within the request timeout"
                late = DownloadError(Reason.TIMEOUT, text)
                raise _Ended(failure(request, late)) from error
        return response

    async def _follow(
        self, request: Request, response: Response, gate: _Unhurried, admit: Admit | None
    ) -> Response:
        trail = Trail(request, self._redirects.most)
        host = host_of(request.url)
        hop = request
        while self._redirects.applies(hop, response):
            try:
                hop = trail.next_hop(hop, response)
            except DownloadError as error:
                raise _Ended(failure(request, error, response)) from error
            if host_of(hop.url) != host:
                raise _Ended(Redirected(request, trail.carried(hop)))
            async with gate.suspended():
                refused = await admit(hop) if admit is not None else None
            if refused is not None:
                text = f"{request.url} redirects to {hop.url}: {refused.text()}"
                raise _Ended(Dropped(request, refused, DownloadError(refused, text)))
            try:
                async with gate.suspended():
                    await self._ask_robots(request, hop, gate)
                response = await self._send(request, hop, gate)
            except (
                HostBusy,
                NoProxyFree,
            ) as busy:  # to fetch the redirecting page again would lead here again
                raise _Ended(Redirected(request, trail.carried(hop, taken=True))) from busy
        response.history = trail.history
        response.request = request
        return response

    async def _send(self, request: Request, hop: Request, gate: Gate) -> Response:
        """One exchange for `request`: itself, or a redirect of it."""
        try:
            return await self._sender.send(hop, gate)
        except HostBusy:
            if self._obeyed is not None:
                self._obeyed.put_off(_full_url(request, hop))
            raise
        except _OF_THE_GATE:
            raise
        except Exception as error:
            raise _Ended(failure(request, error)) from error

    async def _ask_robots(self, request: Request, hop: Request, gate: Gate) -> None:
        if self._obeyed is None:
            return
        refusal = await self._obeyed.refusal(_full_url(request, hop), gate, _proxy(request, hop))
        if refusal is None:
            return
        error = DownloadError(refusal.reason, refusal.text)
        if refusal.reason is Reason.ROBOTS_DISALLOWED:
            raise _Ended(Dropped(request, refusal.reason, error))
        raise _Ended(Failed(request, refusal.reason, error, True, refusal.retry_after))


class _Unhurried:
    """A gate whose waits are not counted against the page. See `Gate`."""

    def __init__(self, gate: Gate, limit: asyncio.Timeout) -> None:
        self._gate = gate
        self._limit = limit

    async def ready(self) -> None:
        async with self.suspended():
            await self._gate.ready()

    async def enter(self) -> None:
        async with self.suspended():
            await self._gate.enter()

    def sent(self) -> None:
        self._gate.sent()

    async def met(self, meeting: Meeting) -> None:
        async with self.suspended():
            await self._gate.met(meeting)

    async def crawl_delay(self, host: str, seconds: float) -> None:
        async with self.suspended():
            await self._gate.crawl_delay(host, seconds)

    def elsewhere(self, host: str) -> Gate:
        return _Unhurried(self._gate.elsewhere(host), self._limit)

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Wait for the store, or for a host's turn, while the limit stands still."""
        until = self._limit.when()
        if until is None:
            yield
            return
        clock = asyncio.get_running_loop().time
        began = clock()
        self._limit.reschedule(None)
        try:
            yield
        finally:
            self._limit.reschedule(until + clock() - began)


def _proxy(request: Request, hop: Request) -> Proxy | None:
    try:
        return own_proxy(hop)
    except DownloadError as error:
        raise _Ended(failure(request, error)) from error


def _full_url(request: Request, hop: Request) -> str:
    try:
        return hop.full_url
    except OrbwebError as error:
        raise _Ended(failure(request, error)) from error


def _middleware_failed(request: Request, text: str, cause: Exception | None = None) -> NoReturn:
    error = DownloadError(Reason.MIDDLEWARE_ERROR, text, retry=True)
    error.__cause__ = cause
    raise _Ended(Failed(request, Reason.MIDDLEWARE_ERROR, error, retry=True)) from cause
