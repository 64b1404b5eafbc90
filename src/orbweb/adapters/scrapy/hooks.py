"""Where the adapter stands in Scrapy: the one file that leans on what Scrapy does not document.

For Scrapy 2.13 to 2.19. What a version lacks is said when the spider opens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.spidermiddlewares.urllength import UrlLengthMiddleware
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from orbweb.adapters.scrapy.desk import Desk
from orbweb.adapters.scrapy.failures import reason_of, text_of
from orbweb.adapters.scrapy.threads import answer
from orbweb.adapters.scrapy.turns import BUSY, GRANTED
from orbweb.adapters.scrapy.work import Work
from orbweb.download.base import Meeting
from orbweb.download.status import StatusPolicy
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.model.reasons import Reason


def install(crawler: Crawler, desk: Desk) -> None:
    """Let the desk see what becomes of requests. To be called before the spider's `start()`."""
    engine: Any = crawler.engine
    pages, fetches = engine.scraper.spidermw.methods, engine.downloader.middleware.methods
    watch = Watch(crawler, desk)
    # Next to the engine, which is the end of the lists, and next to the spider. Scrapy counts on
    # both lists having the same middlewares at the same places.
    pages["process_spider_output"].append(watch.process_spider_output)
    pages["process_spider_exception"].append(None)
    pages["process_spider_output"].appendleft(None)
    pages["process_spider_exception"].appendleft(watch.process_spider_exception)
    pages["process_start"].append(watch.process_start)
    pages["process_start"].appendleft(watch.process_given)
    fetches["process_exception"].append(watch.process_exception)
    if desk.config.politeness:
        _take_delays_away(engine.downloader)
        gate = TurnGate(desk)
        fetches["process_request"].append(gate.process_request)
        fetches["process_exception"].appendleft(gate.process_exception)
        crawler.signals.connect(gate.response_downloaded, signals.response_downloaded)
    for name in ("item_scraped", "item_error", "spider_error", "request_left_downloader"):
        crawler.signals.connect(getattr(watch, name), getattr(signals, name))


def install_on_slot(crawler: Crawler, desk: Desk) -> None:
    """Let the desk know when Scrapy is done with a request, and when the spider begins to close."""
    slot: Any = slot_of(crawler)
    if slot is None or not hasattr(slot, "remove_request") or not hasattr(slot, "close"):
        raise ConfigError(
            "this version of Scrapy does not tell when a request is done; right would be one from "
            "2.13 to 2.19"
        )
    remove_request, close = slot.remove_request, slot.close

    def removed(request: Request) -> None:
        desk.end(request)
        remove_request(request)

    def closing() -> Any:
        desk.stop()
        return close()

    slot.remove_request, slot.close = removed, closing


def slot_of(crawler: Crawler) -> Any:
    """The engine's record of the open spider; None when it is not open."""
    return getattr(crawler.engine, "_slot", None)


def wake(crawler: Crawler) -> None:
    """Let the engine ask for requests, or find that it is idle."""
    slot = slot_of(crawler)
    if slot is not None and slot.closing is None:
        slot.nextcall.schedule()


def _take_delays_away(downloader: Any) -> None:
    """Scrapy's own delay would make requests late that have waited for their turn already."""
    get_slot = downloader._get_slot

    def slot_without_delay(*args: Any, **options: Any) -> Any:
        key, slot = get_slot(*args, **options)
        slot.delay = 0.0
        return key, slot

    downloader._get_slot = slot_without_delay


class Watch:
    """What Scrapy's middlewares and signals tell of a request."""

    def __init__(self, crawler: Crawler, desk: Desk) -> None:
        self._crawler = crawler
        self._desk = desk

    # -- as the spider middleware next to the engine, and the one next to the spider

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Run `start()` if no other worker does, and note where its requests come from."""
        desk, starting = self._desk, self._desk.starting
        if desk.config.source is not None:
            async for one in start:
                if isinstance(one, Request) and starting.current is not None:
                    desk.links.found(one, starting.current)
                yield one
                self._count_unscheduled(one)
            return
        if not await starting.may_start():
            return
        ordinal = 0
        try:
            async for one in start:
                if isinstance(one, Request):
                    desk.links.seeded(one, ordinal)
                    ordinal += 1
                yield one
                self._count_unscheduled(one)
                await starting.room_for_seeds()
            starting.seeded()
        except BaseException as error:
            starting.give_up_seeding(error)
            raise

    async def process_given(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Count what Scrapy's own middleware is going to leave out of what the spider gives."""
        measure = self._crawler.get_spider_middleware(UrlLengthMiddleware)
        desk = self._desk
        async for one in start:
            if measure and isinstance(one, Request) and len(one.url) > measure.maxlength:
                desk.links.left_out(one, desk.starting.current, Reason.URL_LENGTH)
            yield one

    def _count_unscheduled(self, one: Any) -> None:
        """Scrapy has scheduled by now what it was given last, or has left it out."""
        links, spider = self._desk.links, self._crawler.spider
        if isinstance(one, Request) and spider is not None and links.is_waited_for(one):
            offsite = self._crawler.get_downloader_middleware(OffsiteMiddleware)
            is_offsite = offsite is not None and not offsite.should_follow(one, spider)
            reason = Reason.OFFSITE if is_offsite else Reason.CANCELLED
            links.left_out(one, self._desk.starting.current, reason)

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any], spider: Any = None
    ) -> AsyncIterator[Any]:
        """Note which page gives a request."""
        work = self._work(response)
        if work is not None:
            work.answered = True
        found = self._desk.links.found
        async for one in result:
            if work is not None and isinstance(one, Request):
                found(one, work)
            yield one

    def process_spider_exception(
        self, response: Response, exception: Exception, spider: Any = None
    ) -> None:
        """A status that is not let through to the callback, or a callback that ends the crawl."""
        work = self._work(response)
        if work is None:
            return
        if isinstance(exception, HttpError):
            work.fail(Reason.STATUS_REJECTED, f"HTTP status {response.status} for {response.url}")
        elif isinstance(exception, CloseSpider):
            work.root.give_back = True

    # -- as the downloader middleware next to the engine

    def process_exception(self, request: Request, exception: Exception, spider: Any = None) -> None:
        """No middleware had an answer to this error. With an errback it is no dead letter."""
        work = self._desk.work_on(request)
        if work is not None:
            dead = request.errback is None and not isinstance(exception, IgnoreRequest)
            work.fail(reason_of(exception), text_of(exception) if dead else "")

    # -- signals

    def spider_error(self, failure: Failure, response: Any) -> None:
        """A callback or errback has raised; what it gave before enters all the same."""
        work = self._work(response)
        if work is not None and failure.value is not None:
            work.fail(Reason.CALLBACK_ERROR, text_of(failure.value))

    def item_scraped(self, response: Any) -> None:
        """An item is through all pipelines."""
        work = self._work(response)
        if work is not None:
            work.root.items += 1

    def item_error(self, response: Any, failure: Failure) -> None:
        """A pipeline has raised: for want of its store the page comes again, else it is kept."""
        work = self._work(response)
        if work is None:
            return
        if isinstance(failure.value, StoreUnavailable):
            work.root.give_back = True
        elif failure.value is not None:
            work.fail(Reason.ITEM_REJECTED, text_of(failure.value))

    def request_left_downloader(self, request: Request) -> None:
        """The body has arrived, or will not."""
        self._desk.left_downloader(request)

    def _work(self, response: Any) -> Work | None:
        """Of the request that a response, or the failure in its place, belongs to."""
        return self._desk.work_on(getattr(response, "request", None))


class TurnGate:
    """The last downloader middleware before the host, where the fleet takes turns there."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._status = StatusPolicy()

    async def process_request(self, request: Request, spider: Any = None) -> None:
        """Wait for the host's turn. A request whose turn is far is given back."""
        work = self._desk.work_on(request)
        if work is None or work.lease is None or work.turn is None:
            return
        decided: Deferred[str] = Deferred()
        self._desk.room.ask_turn(work.lease, work.turn, decided.callback)
        word = await answer(decided)
        if word != GRANTED:
            work.give_back, work.lost = word == BUSY, work.lost or word != BUSY
            raise IgnoreRequest(f"the turn of {work.lease.host} is {word}")

    def process_exception(self, request: Request, exception: Exception, spider: Any = None) -> None:
        """A failed fetch is a bad sign of its host."""
        work = self._desk.work_on(request)
        if work is not None and work.lease is not None and not isinstance(exception, IgnoreRequest):
            meeting = Meeting(work.lease.host, healthy=False)
            self._desk.room.meet(meeting, request.meta.get("download_latency", 0.0))

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Tell the fleet what a host has answered."""
        work = self._desk.work_on(request)
        if work is not None and work.lease is not None:
            headers: Any = response.headers.to_unicode_dict()
            meeting = self._status.meeting(work.lease.host, response.status, headers)
            self._desk.room.meet(meeting, request.meta.get("download_latency", 0.0))
