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
    Outcome,
)
from orbweb.download.failures import failure
from orbweb.download.middlewares import Hook, RunBlocking, hooks_of
from orbweb.download.redirects import REDIRECT_STATUSES, RedirectRules, Trail
from orbweb.download.robots import Robots
from orbweb.download.status import StatusPolicy
from orbweb.errors import (
    ContentTypeRejectedError,
    NotRetryError,
    OrbwebError,
    RequestError,
    ValidationError,
)
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response

BeforeSend = Callable[[], Awaitable[None]]

Admit = Callable[[Request], Awaitable[Reason | None]]
"""Awaited right before each send; raises `LeaseLost` when nothing may be sent any more."""

_MEANT = (RequestError, ValidationError, NotRetryError, ContentTypeRejectedError)


class _Ended(Exception):
    """An attempt ended before the end of the chain; carries its outcome. Never leaves the chain."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class Chain:
    """Downloads requests, each in the same order.

    process_request of each middleware, `download_midware`, robots.txt, fetch (redirects are
    followed here, and each hop asks robots.txt again), process_response in reverse, status policy.
    A `Response` from process_request skips the fetch and all that comes before it.
    """

    def __init__(
        self,
        downloader: Downloader,
        *,
        middlewares: Iterable[Any] = (),
        robots: Robots | None = None,
        status: StatusPolicy | None = None,
        redirects: RedirectRules | None = None,
        run_blocking: RunBlocking | None = None,
    ) -> None:
        """`robots` None: not obeyed. `run_blocking` takes plain `def` hooks off the event loop."""
        self._downloader = downloader
        self._middlewares = tuple(middlewares)
        self._robots = robots
        self._status = status or StatusPolicy()
        self._redirects = redirects or RedirectRules()
        self._run_blocking = run_blocking
        self._before = hooks_of(self._middlewares, "process_request", run_blocking)
        self._after = hooks_of(self._middlewares, "process_response", run_blocking)[::-1]

    async def download(
        self,
        request: Request,
        *,
        download_midware: Callable[[Request], Any] | None = None,
        before_send: BeforeSend,
        admit: Admit | None = None,
    ) -> Outcome:
        """Run one attempt to its outcome. No error of a request, page or middleware is raised.

        `admit` says of a redirect's target why it is not wanted; such a request is dropped.

        What passes through is what `before_send` raises, such as `LeaseLost`, and cancellation.
        The outcome's request carries the identity (id, lease, depth, tries) of the one given, also
        when a middleware replaced it.
        """
        if not request.auto_request:
            return Fetched(request, None)
        try:
            request, response = await self._prepare(request, download_midware)
            if response is None:
                response = await self._fetch(request, before_send, admit)
            response = await self._finish(request, response)
        except _Ended as ended:
            return ended.outcome
        return self._status.refusal(request, response) or Fetched(request, response)

    async def close(self) -> None:
        """Close the middlewares that have `close`, then the downloader."""
        for close in hooks_of(self._middlewares, "close", self._run_blocking):
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

    async def _fetch(
        self, request: Request, before_send: BeforeSend, admit: Admit | None
    ) -> Response:
        response = await self._send(request, request, before_send)
        if response.status_code not in REDIRECT_STATUSES:
            return response
        if not self._redirects.applies(request, response):
            return response
        try:
            async with asyncio.timeout(self._redirects.seconds(request)) as limit:
                return await self._follow(request, response, before_send, admit, limit)
        except TimeoutError as error:
            if not limit.expired():
                raise
            text = f"{request.url}: its redirects did not end within the request timeout"
            late = DownloadError(Reason.TIMEOUT, text)
            raise _Ended(failure(request, late)) from error

    async def _follow(
        self,
        request: Request,
        response: Response,
        before_send: BeforeSend,
        admit: Admit | None,
        limit: asyncio.Timeout,
    ) -> Response:
        trail = Trail(request, self._redirects.most)
        hop = request
        while self._redirects.applies(hop, response):
            try:
                hop = trail.next_hop(hop, response)
            except DownloadError as error:
                raise _Ended(failure(request, error, response)) from error
            async with _suspended(limit):
                refused = await admit(hop) if admit is not None else None
            if refused is not None:
                text = f"{request.url} redirects to {hop.url}: {refused.text()}"
                raise _Ended(Dropped(request, refused, DownloadError(refused, text)))
            response = await self._send(request, hop, before_send, limit)
        response.history = trail.history
        response.request = request
        return response

    async def _send(
        self,
        request: Request,
        hop: Request,
        before_send: BeforeSend,
        limit: asyncio.Timeout | None = None,
    ) -> Response:
        """One exchange for `request`: itself, or a redirect of it, which has a limit."""
        async with _suspended(limit):
            await self._may_send(request, hop, before_send)
        try:
            return await self._downloader.fetch(hop)
        except Exception as error:
            raise _Ended(failure(request, error)) from error

    async def _may_send(self, request: Request, hop: Request, before_send: BeforeSend) -> None:
        if self._robots is not None:
            refusal = await self._robots.refusal(_full_url(request, hop))
            if refusal is not None:
                error = DownloadError(refusal.reason, refusal.text)
                if refusal.reason is Reason.ROBOTS_DISALLOWED:
                    raise _Ended(Dropped(request, refusal.reason, error))
                raise _Ended(Failed(request, refusal.reason, error, True, refusal.retry_after))
        await before_send()


@asynccontextmanager
async def _suspended(limit: asyncio.Timeout | None) -> AsyncIterator[None]:
    """Wait for the store, or for another answer: this time is not counted against the page."""
    until = limit.when() if limit is not None else None
    if limit is None or until is None:
        yield
        return
    clock = asyncio.get_running_loop().time
    began = clock()
    limit.reschedule(None)
    yield
    limit.reschedule(until + clock() - began)


def _full_url(request: Request, hop: Request) -> str:
    try:
        return hop.full_url
    except OrbwebError as error:
        raise _Ended(failure(request, error)) from error


def _middleware_failed(request: Request, text: str, cause: Exception | None = None) -> NoReturn:
    error = DownloadError(Reason.MIDDLEWARE_ERROR, text, retry=True)
    error.__cause__ = cause
    raise _Ended(Failed(request, Reason.MIDDLEWARE_ERROR, error, retry=True)) from cause
