"""One step: what a node does with one lease, from the fetch to the outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from orbweb.download.base import Again, Dropped, Failed, Fetched, Outcome, Redirected
from orbweb.download.robots import ROBOTS_FAILED
from orbweb.engine.errands import BadErrandError, parent_of
from orbweb.engine.journal import Attempt
from orbweb.engine.outputs import Outputs, Refused
from orbweb.engine.pacer import Pacer, Turn
from orbweb.engine.tools import StepTools
from orbweb.engine.traces import is_mistake, own_trace, place_of
from orbweb.errors import (
    HostBusy,
    LeaseLost,
    NoProxyFree,
    NotRetryError,
    OrbwebError,
    PipelineError,
    RunLost,
    SpiderError,
    StoreUnavailable,
    UnserialisableError,
    ValidationError,
)
from orbweb.frontier.base import TASKS_HOST, Ack, Lease, Nack, NewRequest
from orbweb.frontier.tasks import page_of
from orbweb.log import get_logger, writable
from orbweb.model.answer import pack_answer
from orbweb.model.fingerprint import request_id
from orbweb.model.item import ItemRecord, Origin
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import beside, host_of
from orbweb.pipelines.buffer import Rejected

T = TypeVar("T")

EMIT_CHUNK = 1000
"""A page with more links than this lets them enter before its end, this many in one step."""

PAGE_ITEMS = 1000
"""A page with more items than this is stored in parts, while its callback still goes on."""

LONGEST_ERROR = 2000
"""Characters of an error text that are kept with a dead letter."""

STORE_PAUSE_SECONDS = 0.5

NO_PROXY_PAUSE_MS = 500, 1500
"""How long a request that found no proxy stays away: short, as the pool may be changed at once."""

log = get_logger("orbweb.engine")


class Why(Enum):
    """Why a step is cancelled."""

    LOST = "lost"
    OVERDUE = "overdue"
    SHUTDOWN = "shutdown"


@dataclass(slots=True)
class Page:
    """What came of a request for good. It holds no response: many pages may wait for storage."""

    url: str
    outputs: Outputs
    reason: Reason = Reason.DONE
    error: str = ""
    answer: bytes = b""
    """Of a page that failed: what is kept of its response."""


class _SinkClosed(Exception):
    """The item buffer ends before the page's items were stored: the node stops."""


@dataclass(slots=True)
class _Part:
    """Items that were sent to the pipelines together."""

    origin: Origin
    yielded: list[ItemRecord]
    sent: list[ItemRecord]
    answer: asyncio.Future[list[Rejected]]


class Step:
    """The work on one lease. It hands in exactly one outcome, or none when the lease is lost.

    The outcome is handed in when the callback has come to its end, every item is durable and all
    links are in the ack. `cancel` may be called at any moment: it hands in the outcome itself, so
    user code that refuses to be cancelled cannot hold up the lease.
    """

    def __init__(
        self, lease: Lease, turn: Turn, tools: StepTools, fetched_from_ms: int = 0
    ) -> None:
        """`turn`: when the host may be sent the request, as the claim has said.

        `fetched_from_ms`: the store's wall clock before which nothing is fetched.
        """
        self.lease = lease
        self.held = lease.held
        self.over = False
        self.attempt = Attempt(lease)
        if tools.tracer is not None and tools.tracer.samples():
            self.attempt.marks = [("claim", tools.clock())]
        self._tools = tools
        self._task: asyncio.Task[None] | None = None
        self._parts: list[_Part] = []
        self._emitted = 0
        self._dropped_items = 0
        self._fetched_from_ms = fetched_from_ms
        self._pacer = Pacer(
            self.held, lease.host, turn, tools.pacing, is_held=self._is_held, renew=self._renew
        )

    def start(self, group: asyncio.TaskGroup) -> asyncio.Task[None]:
        """Begin to work in a task of the group."""
        self._task = group.create_task(self._run())
        return self._task

    def cancel(self, why: Why) -> None:
        """End the step now: given back, or dropped when the lease is lost."""
        if self.over:
            return
        if why is Why.LOST:
            self._drop()
        elif why is Why.OVERDUE:
            limit = self._tools.options.max_hold_seconds
            self._give_back(Reason.TIMEOUT, f"held for more than {limit:.0f} s (MAX_HOLD)", 0)
        else:
            self._settle(Nack(*self.held, counted=False, reason=Reason.STOPPED))
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            if self.lease.host == TASKS_HOST:
                page = await self._errand()
            else:
                request = self._decode()
                page = None if request is None else await self._work(request)
            if page is not None:
                await self._finish(page)
        except LeaseLost:
            self._drop()
        except HostBusy as error:
            log.debug("%s: %s", self.lease.id, error)
            self._settle(Nack(*self.held, counted=False, reason=Reason.RATE_WAIT))
        except NoProxyFree as error:
            log.debug("%s: %s", self.lease.id, error)
            self._tools.stats.incr("no_proxy")
            pause_ms = int(self._tools.rng.uniform(*NO_PROXY_PAUSE_MS))
            self._settle(Nack(*self.held, pause_ms, counted=False, reason=Reason.NO_PROXY))
        except RunLost:
            raise
        except _SinkClosed as error:
            log.debug("%s: %s", self.lease.id, error)
            self._settle(Nack(*self.held, counted=False, reason=Reason.STOPPED))
        except Exception as error:
            log.exception("unexpected error in the work on request %s", self.lease.id)
            self._give_back(Reason.MIDDLEWARE_ERROR, error_text(error), 0)
        finally:
            self._tools.items.release(self)

    def _decode(self) -> Request | None:
        lease = self.lease
        try:
            request = self._tools.codec.decode(lease.payload)
        except OrbwebError as error:
            log.error("request %s of %s cannot be read: %s", lease.id, lease.host, error)
            self._settle(
                Nack(*self.held, fatal=True, reason=Reason.UNDECODABLE, error=error_text(error))
            )
            return None
        request.id = lease.id
        request.lease_token = lease.token
        request.retry_times = lease.retries
        self.attempt.request = request
        return request

    async def _work(self, request: Request) -> Page | None:
        """Fetch and parse; None when the outcome is handed in already."""
        tools = self._tools
        if tools.knobs.links.is_excluded(request.url):  # the rules have changed since it was taken
            self._settle(Ack(*self.held, Reason.EXCLUDED))
            return None
        try:
            tools.callbacks.resolve(request)
        except SpiderError as error:
            return await self._fail(request, None, Reason.UNKNOWN_CALLBACK, error)
        result = await self._download(request)
        if self.over:
            return None
        response = result.response if isinstance(result, Fetched | Failed) else None
        attempt = self.attempt
        attempt.answered(result.request, response, self._pacer.seconds)
        now = tools.clock()
        attempt.mark("fetch", now - self._pacer.seconds)
        attempt.mark("parse", now)
        if request.auto_request:
            tools.stats.counts.answered(attempt.status, attempt.ms / 1000, attempt.size_bytes)
        failed = result if isinstance(result, Failed | Dropped) else None
        tools.answers.note(
            self.lease.host,
            attempt.status,
            failed.reason if failed else None,
        )
        if isinstance(result, Fetched):
            tools.desk.fetched(self)
            return await self._parse(result.request, result.response)
        if isinstance(result, Failed):
            return await self._fail(
                result.request,
                result.response,
                result.reason,
                result.error,
                retry=result.retry,
                retry_after=result.retry_after,
            )
        if isinstance(result, Redirected):
            return await self._redirect(result)
        if isinstance(result, Dropped):
            url = result.request.url
            log.info("dropped %s: %s", url, beside(url, str(result.error)))
            self.attempt.error = str(result.error)
            self._settle(Ack(*self.held, result.reason))
            return None
        return await self._again(result)

    async def _download(self, request: Request) -> Outcome:
        """Fetch. That the store is away (it keeps robots.txt too) is no failure of the request."""
        while True:
            try:
                return await self._tools.chain.download(
                    request,
                    download_midware=self._tools.callbacks.midware(request),
                    gate=self._pacer,
                    admit=self._admit_redirect,
                )
            except StoreUnavailable as error:
                log.debug("%s waits for the store: %s", request.url, error)
            await asyncio.sleep(STORE_PAUSE_SECONDS)
            await self._renew()

    async def _admit_redirect(self, hop: Request) -> Reason | None:
        """Why a redirect is not followed: off the site, or to a page that was taken before.

        The request's own page is no such page: sites send one back to where it began.
        """
        admitted = self._tools.admission.redirect(hop, self.lease.id)
        if isinstance(admitted, Refused):
            return admitted.reason
        if hop.filter_repeat and request_id(admitted) != page_of(self.lease.id):
            free = await self._tools.session.visit(self.held, admitted, host_of(hop.url))
            if free is None:
                raise LeaseLost(f"lease of {self.lease.id} is lost")
            if not free:
                return Reason.DUPLICATE_REDIRECT
        return None

    def _is_held(self) -> bool:
        """Nobody else can hold the lease now."""
        return not self.over and self._tools.ledger.valid(self.held, self._tools.clock())

    async def _renew(self) -> None:
        """Renew this lease now; raises `LeaseLost` when it is another's."""
        tools = self._tools
        if not self.over and self.held in tools.ledger:
            lost, _, sent = await tools.session.renew([self.held])
            if not lost and not self.over:
                tools.ledger.renewed([self.held], sent)
                return
        raise LeaseLost(f"lease of {self.lease.id} is lost")

    async def _redirect(self, result: Redirected) -> Page | None:
        """The page is elsewhere: a request of its own, which takes its turn there."""
        self.attempt.to = result.target
        admitted = self._tools.admission.elsewhere(result.target, result.request)
        if isinstance(admitted, NewRequest):
            self._settle(Ack(*self.held, Reason.REDIRECTED, children=(admitted,)))
            return None
        if admitted.reason is Reason.NOT_SERIALIZABLE:
            error = UnserialisableError(admitted.text)
            return await self._fail(result.request, None, admitted.reason, error, retry=False)
        log.info("%s redirects to %s", result.request.url, admitted.text)
        self._settle(Ack(*self.held, Reason.REDIRECTED, skipped=((admitted.reason, 1),)))
        return None

    # -- a task

    async def _errand(self) -> Page | None:
        """Have a task's requests made, or its end told. An error is tried again, as of a page."""
        tools, parent = self._tools, parent_of(self.lease)
        outputs = self._new_outputs(parent)
        if tools.errands is None:
            text = f"{tools.spider.name} is no TaskSpider, but its run has tasks"
            self._settle(Nack(*self.held, fatal=True, reason=Reason.UNKNOWN_CALLBACK, error=text))
            return None
        tools.desk.fetched(self)
        try:
            reason = await tools.errands.run(self.lease, outputs, lambda: self._flush(outputs))
        except (LeaseLost, RunLost, _SinkClosed):
            raise
        except BadErrandError as error:
            self._settle(
                Nack(*self.held, fatal=True, reason=Reason.UNDECODABLE, error=error_text(error))
            )
            return None
        except Exception as error:
            if not isinstance(error, OrbwebError) and tools.known_errors.is_new(error):
                log.error("task %s failed", self.lease.id, exc_info=own_trace(error))
            return self._fail_errand(parent.url, outputs, error)
        return Page(parent.url, outputs, reason)

    def _fail_errand(self, url: str, outputs: Outputs, error: Exception) -> Page | None:
        retries, text = self.lease.retries, error_text(error)
        if not isinstance(error, NotRetryError) and retries < self._tools.knobs.max_retries:
            backoff_ms = self._tools.backoff_ms(retries, None)
            self._give_back(Reason.CALLBACK_ERROR, text, backoff_ms)
            return None
        log.error("gave up %s after %d tries: %s", self.lease.id, retries + 1, text)
        reason = Reason.NOT_RETRY if isinstance(error, NotRetryError) else Reason.CALLBACK_ERROR
        return Page(url, outputs, reason, text)

    # -- the page

    async def _parse(self, request: Request, response: Response | None) -> Page | None:
        outputs = self._new_outputs(request)
        try:
            if response is not None and not await self._tools.callbacks.accepts(request, response):
                self._settle(Ack(*self.held, Reason.VALIDATION))
                return None
            function = self._tools.callbacks.resolve(request)
            await self._tools.callbacks.parse(
                function, request, response, outputs, lambda: self._flush(outputs)
            )
        except (LeaseLost, RunLost, _SinkClosed):
            raise
        except NotRetryError as error:
            return await self._fail(
                request, response, Reason.NOT_RETRY, error, outputs, retry=False
            )
        except ValidationError as error:
            return await self._fail(request, response, Reason.VALIDATION, error, outputs)
        except Exception as error:
            if is_mistake(error) and self._tools.known_errors.is_new(error):
                log.error("callback failed on %s", request.url, exc_info=own_trace(error))
            return await self._fail(request, response, Reason.CALLBACK_ERROR, error, outputs)
        return Page(request.url, outputs)

    def _new_outputs(self, request: Request) -> Outputs:
        tools = self._tools
        return Outputs(
            request,
            tools.admission,
            epoch=tools.epoch,
            default_table=tools.options.default_table,
        )

    async def _flush(self, outputs: Outputs) -> None:
        """Send items to the buffer, and links to the frontier, when they are many."""
        if self.over:
            raise LeaseLost(f"the work on {self.lease.id} was cancelled")
        if outputs.waiting_records > PAGE_ITEMS:
            await self._submit(outputs)
        while outputs.waiting_children > EMIT_CHUNK:
            await self._emit(outputs.take_children(EMIT_CHUNK))

    async def _submit(self, outputs: Outputs, *, complete: bool = True) -> None:
        tools = self._tools
        yielded = outputs.take_records()
        origin = Origin(tools.epoch, *self.held, self._fetched_from_ms, len(self._parts), complete)
        sent = await self._answered(lambda: tools.items.fresh(yielded, self))
        self._dropped_items += len(yielded) - len(sent)
        try:
            await tools.buffer.wait_for_room()
            answer = tools.buffer.submit(sent, origin)
        except PipelineError as error:
            raise _SinkClosed(str(error)) from error
        self._parts.append(_Part(origin, yielded, sent, answer))

    async def _answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until the store has answered."""
        while True:
            try:
                return await call()
            except StoreUnavailable as error:
                log.debug("%s waits for the store: %s", self.lease.id, error)
            await asyncio.sleep(STORE_PAUSE_SECONDS)

    async def _emit(self, children: Sequence[NewRequest]) -> None:
        """Let nodes begin with the links of a long page before it has come to its end."""
        self._emitted += 1
        if not await self._tools.session.emit(self.held, self._emitted, children):
            raise LeaseLost(f"lease of {self.lease.id} is lost")

    async def _finish(self, page: Page) -> None:
        """Wait until the items are durable, then hand in the ack with the links."""
        outputs = page.outputs
        await self._flush(outputs)
        if outputs.waiting_records:
            await self._submit(outputs, complete=not page.error and not outputs.lost)
        rejected = await self._durable(page.url)
        for each in rejected:
            outputs.lose(Reason.ITEM_REJECTED, f"{each.record.table}: {each.error}")
        reason, error = page.reason, page.error
        if outputs.lost:
            text = outputs.lost_text()
            error = f"{error}; {text}" if error else text
            reason = reason if page.error else outputs.lost_reason or reason
            log.error("%s: %s", page.url, text)
            self._tools.stats.incr("item_failed", outputs.rejected_items + len(rejected))
        self.attempt.links = outputs.links
        stored = outputs.items - outputs.rejected_items - len(rejected) - self._dropped_items
        self._tools.stats.incr("item_dedup_dropped", self._dropped_items)
        self._settle(
            Ack(
                *self.held,
                reason,
                stored,
                outputs.take_children(),
                error,
                tuple(outputs.skipped.items()),
                self._emitted,
                page.answer,
            )
        )

    async def _durable(self, url: str) -> list[Rejected]:
        """Wait until each item is stored or refused in every pipeline; returns the refusals."""
        if not self._parts:
            return []
        self._tools.ledger.finishing(self.held)
        self.attempt.mark("items", self._tools.clock())
        await asyncio.wait([part.answer for part in self._parts])
        try:
            answers = [part.answer.result() for part in self._parts]
        except PipelineError as error:
            raise _SinkClosed(str(error)) from error
        for part, rejected in zip(self._parts, answers, strict=True):
            await self._note(part, rejected, url)
        return [each for rejected in answers for each in rejected]

    async def _note(self, part: _Part, rejected: list[Rejected], url: str) -> None:
        """Keep what failed and remember what is stored: before the ack, so that a crash repeats."""
        items = self._tools.items
        await self._answered(lambda: items.keep_failed(rejected, part.origin, url))
        await self._answered(lambda: items.durable(part.sent, rejected))
        items.count(part.yielded, part.origin)
        self._count_items(part, rejected)

    def _count_items(self, part: _Part, rejected: list[Rejected]) -> None:
        counts = self._tools.stats.counts
        yielded = Counter(record.table for record in part.yielded)
        sent = Counter(record.table for record in part.sent)
        failed = Counter({each.record.key: each.record.table for each in rejected}.values())
        for table, number in yielded.items():
            counts.item(table, "stored", sent[table] - failed[table])
            counts.item(table, "filtered", number - sent[table])
            counts.item(table, "failed", failed[table])

    # -- failures

    async def _fail(
        self,
        request: Request,
        response: Response | None,
        reason: Reason,
        error: Exception,
        outputs: Outputs | None = None,
        *,
        retry: bool = True,
        retry_after: float | None = None,
    ) -> Page | None:
        """Give the request back for another try, or make it a dead letter when that was the last.

        Of a page that failed for good, what it had yielded before still enters.
        """
        retries, most = self.lease.retries, self._tools.knobs.max_retries
        place = place_of(error)
        text = error_text(error)[: LONGEST_ERROR - len(place)] + place
        shown = beside(request.url, text)
        if reason in ROBOTS_FAILED and retry_after is not None:
            await self._tools.pacing.signals.hold_off(self.lease.host, retry_after)
        if retry and retries < most:
            await self._hook("exception_request", request, response, error)
            backoff_ms = self._tools.backoff_ms(retries, retry_after)
            log.info(
                "retry %d/%d of %s in %.1f s: %s: %s",
                retries + 1,
                most,
                request.url,
                backoff_ms / 1000,
                reason,
                shown,
            )
            self._give_back(reason, text, backoff_ms)
            return None
        tries = f"{retries + 1} tries" if retries else "1 try"
        log.error("gave up %s after %s: %s: %s", request.url, tries, reason, shown)
        outputs = outputs or self._new_outputs(request)
        if self._tools.callbacks.overrides("failed_request"):
            await self._collect_failed(request, response, outputs)
        answer = self._kept(response)
        return Page(request.url, outputs, reason, text or str(reason), answer)

    def _kept(self, response: Response | None) -> bytes:
        most = self._tools.options.failed_response_bytes
        return pack_answer(response, most) if response is not None and most else b""

    async def _collect_failed(
        self, request: Request, response: Response | None, outputs: Outputs
    ) -> None:
        try:
            await self._tools.callbacks.collect(
                self._tools.spider.failed_request,
                (request, response),
                {},
                outputs,
                lambda: self._flush(outputs),
            )
        except (LeaseLost, RunLost, _SinkClosed):
            raise
        except Exception:
            log.exception("failed_request raised for %s", request.url)

    async def _hook(self, name: str, *args: Any) -> None:
        if not self._tools.callbacks.overrides(name):
            return
        try:
            await self._tools.callbacks.call(getattr(self._tools.spider, name), *args)
        except Exception:
            log.exception("%s raised", name)

    async def _again(self, result: Again) -> Page | None:
        """A middleware wants another try with this request: the lease's own id stays."""
        error = OrbwebError("a middleware asked for another try")
        if self.lease.retries >= self._tools.knobs.max_retries:
            return await self._fail(
                result.request, None, Reason.MIDDLEWARE_ERROR, error, retry=False
            )
        try:
            payload = self._tools.codec.encode(result.request)
        except OrbwebError as refused:
            return await self._fail(result.request, None, Reason.NOT_SERIALIZABLE, refused)
        backoff_ms = self._tools.backoff_ms(self.lease.retries, None)
        nack = Nack(*self.held, backoff_ms, reason=Reason.RETRY_WAIT, error=str(error))
        self._settle(nack._replace(payload=payload))
        return None

    # -- the outcome, once

    def _give_back(self, reason: Reason, text: str, backoff_ms: int) -> None:
        self._settle(Nack(*self.held, backoff_ms, reason=reason, error=text))

    def _settle(self, outcome: Ack | Nack) -> None:
        if not self.over:
            self.over = True
            self.attempt.mark("ack", self._tools.clock())
            if outcome.error:
                outcome = outcome._replace(error=writable(outcome.error)[:LONGEST_ERROR])
            self._tools.desk.settle(self, outcome)

    def _drop(self) -> None:
        if not self.over:
            self.over = True
            log.info("lease of %s was lost, its work is dropped", self.lease.id)
            self._tools.desk.drop(self)


def error_text(error: BaseException) -> str:
    """What is kept of an error: its type unless it is one of ours, and its text."""
    text = str(error)
    if not isinstance(error, OrbwebError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text[:LONGEST_ERROR]
