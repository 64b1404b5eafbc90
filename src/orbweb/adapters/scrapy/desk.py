"""The desk: what one crawler holds, does and has done, in Scrapy's own loop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from scrapy import Request
from scrapy.crawler import Crawler
from twisted.internet.defer import Deferred

from orbweb.adapters.scrapy.buffer import Buffer
from orbweb.adapters.scrapy.codec import RequestCodec
from orbweb.adapters.scrapy.config import RoomConfig
from orbweb.adapters.scrapy.entry import Entry, Filter, order_of
from orbweb.adapters.scrapy.gauge import Gauge
from orbweb.adapters.scrapy.join import say_found
from orbweb.adapters.scrapy.links import Links
from orbweb.adapters.scrapy.outbox import Fetched
from orbweb.adapters.scrapy.room import Room
from orbweb.adapters.scrapy.starting import Starting
from orbweb.adapters.scrapy.starts import is_start
from orbweb.adapters.scrapy.wishes import DELAY, delay_ms
from orbweb.adapters.scrapy.work import Work
from orbweb.engine.pacer import Turn
from orbweb.errors import OrbwebError, RunLost, SpiderError
from orbweb.frontier.base import Ack, Claim, Held, Lease, Nack, Opened, RunState
from orbweb.log import get_logger
from orbweb.model.reasons import Reason

MOST_WAITING = 4
"""The buffer holds up to so many times what it is filled with, where hosts have no room."""

SUSPECT_PAUSE_MS = 100, 500

log = get_logger("orbweb.scrapy")


class Desk:
    """Gives Scrapy requests, follows each to its end, and tells the store what came of it.

    See `Tenant` for what the room tells it.
    """

    def __init__(
        self,
        crawler: Crawler,
        config: RoomConfig,
        post: Callable[..., None],
        *,
        wake: Callable[[], None],
        close_spider: Callable[[str], None],
    ) -> None:
        """`wake` lets Scrapy ask for requests; `close_spider` closes it, for a reason."""
        assert crawler.spider is not None
        assert crawler.stats is not None
        settings = crawler.settings
        self.config = config
        self.over = False
        """The run is done: nobody has work, and none can come."""
        self.stopped = False
        """Nothing more is begun."""
        self.post = post
        self.room = Room(self, config, post)
        self.codec = RequestCodec(crawler.spider, allow_pickle=config.allow_pickle)
        self.starting = Starting(self.room, self._settle, self._count_refused)
        self.filter = Filter(crawler)
        self.links = Links(
            Entry(self.filter.fingerprint, order_of(settings), self.room.node),
            self.filter,
            self.codec,
            self.room.put,
            self._keep_here,
            crawler.stats,
            debug=settings.getbool("DUPEFILTER_DEBUG"),
        )
        self.gauge = Gauge(crawler.spider.name, self._traffic)
        assert crawler.engine is not None
        self._downloader = crawler.engine.downloader
        self._stats = crawler.stats
        self._wake = wake
        self._close_spider = close_spider
        self.buffer = Buffer(self._limit_of)
        self._works: dict[int, Work] = {}
        self._by_held: dict[Held, Work] = {}
        self._kept_here = 0
        self._received = 0
        self._handed_out = 0
        self._pending = 0
        self._suspect: Work | None = None
        self._opened: Deferred[None] | None = None
        self._closed: Deferred[None] | None = None
        self._ended = False

    # -- what Scrapy asks

    def open(self) -> Deferred[None]:
        """Join the run. The Deferred fails with what keeps this worker from it."""
        self._opened = Deferred()
        self.room.open()
        return self._opened

    def close(self) -> Deferred[None] | None:
        """End when the store knows everything, or does not answer."""
        self.stop()
        self.links.settle_loose()
        if self._ended:
            return None
        self._closed = Deferred()
        self.post(self.room.close)  # after what was posted before, such as requests to give back
        return self._closed

    @property
    def pending(self) -> int:
        """Requests that are not finished, in the whole run, as far as this worker knows."""
        return max(self._pending, len(self._works) + len(self.buffer)) + self.room.waiting

    @property
    def busy(self) -> bool:
        """Something is to be done, here or elsewhere, or may come."""
        if self._ended or self.stopped:
            return False
        return not self.over or self._kept_here > 0 or self.room.waiting > 0

    def next(self) -> Request | None:
        """The next request to be fetched."""
        self.links.settle_loose()
        work = None if self.stopped or self._enough() else self.buffer.pop()
        self._ask()
        if work is None or work.request is None:
            return None
        if work.lease is not None and not self._is_valid(work.lease):
            self.buffer.leave(work)
            self._buffer(work)
            return None
        self._works[id(work.request)] = work
        self._handed_out += 1
        where = "memory" if work.lease is None else "redis"
        self._stats.inc_value(f"scheduler/dequeued/{where}")
        self._stats.inc_value("scheduler/dequeued")
        return work.request

    def work_on(self, request: Request | None) -> Work | None:
        """What is known of a request that Scrapy is at work on."""
        return self._works.get(id(request))

    def left_downloader(self, request: Request) -> None:
        """The body has arrived, or will not."""
        work = self.work_on(request)
        if work is not None and work.slot is not None:
            self.buffer.leave(work)
            if self.config.politeness and work.lease is not None and not work.lost:
                self.room.put(Fetched(work.lease.held))

    def end(self, request: Request) -> None:
        """Scrapy is done with a request: callback, items and all."""
        work = self._works.pop(id(request), None)
        if work is None:
            return
        self.buffer.leave(work)
        self.links.end(work)
        work.ended = True
        self._settle(work)
        if self._enough() and not self._works and not self.stopped:
            log.info("%d requests were asked for and are done", self.config.stop_after)
            self._close_spider("stop_after")

    def stop(self) -> None:
        """Begin nothing more, and give back at once what has not begun."""
        if self.stopped:
            return
        self.stopped = True
        self.room.stop()
        for work in self.buffer.clear():
            work.root.give_back = True
            work.ended = True
            self._settle(work)
        self.starting.stop()

    # -- what the room tells

    def on_open(self, opened: Opened) -> None:
        self.links.epoch = opened.epoch
        say_found(opened, self.config)
        done = opened.status.state is RunState.DONE and not self.config.run.keep_alive
        if done and self.config.source is None:
            self.over = True
        self._ask()
        self._fire_opened(None)

    def on_claimed(self, claim: Claim, asked: float, answered: float) -> None:
        self._received += len(claim.leases)
        self._pending = max(0, claim.pending - self.config.run.keep_alive)
        for lease in claim.leases:
            turn = Turn.of(asked, answered, lease.start_ms, lease.mark)
            self._arrive(lease, turn)
        if claim.leases:
            self.over = False
            self._wake()
        elif self.starting.failed and self._only_seeding_left(claim):
            self.on_over()
        self._ask()

    def on_acked(self, acks: Sequence[Ack], kept: Sequence[bool]) -> None:
        for ack, is_kept in zip(acks, kept, strict=True):
            if is_kept:
                self.links.acked(ack)
                self.gauge.acked(ack)
            else:
                self._stats.inc_value("orbweb/lease_lost")

    def on_lost(self, held: Sequence[Held]) -> None:
        for each in held:
            if not self.room.lose_seeding(each):
                self._lose(each)

    def on_overdue(self, held: Sequence[Held]) -> None:
        for each in held:
            self.room.put(Nack(*each, counted=False, reason=Reason.TIMEOUT))
            self._lose(each)

    def on_over(self) -> None:
        self.over = True
        self.starting.end()
        self._wake()

    def on_stop(self, reason: str) -> None:
        if not self.stopped:
            log.warning("stopping: %s", reason)
            self._close_spider("stopped")

    def on_outage(self) -> None:
        self.links.doubt()
        self._stats.inc_value("orbweb/store_outage_retries")

    def on_failed(self, error: BaseException) -> None:
        self._ended = True
        if self._fire_opened(error):
            return
        log.error("the crawl cannot go on: %s", error, exc_info=_unexpected(error))
        self.stop()
        self._fire_closed()
        self._close_spider("run_lost" if isinstance(error, RunLost) else "store_error")

    def on_closed(self) -> None:
        self._ended = True
        courier = self.room.courier
        if courier is not None:
            self._stats.set_value("orbweb/store_calls", courier.calls)
        self._fire_opened(None)
        self._fire_closed()

    def on_beat(self) -> None:
        self.gauge.pulse += 1

    def pulse(self) -> int:
        return self.gauge.pulse

    def _traffic(self) -> tuple[int, int]:
        """As Scrapy counts it, in its own loop; the room's thread reads a whole number."""
        received = self._stats.get_value("downloader/response_bytes", 0)
        return received, self._stats.get_value("downloader/request_bytes", 0)

    def beat(self) -> bytes:
        held, fetching = len(self._by_held), sum(self.buffer.busy.values())
        return self.gauge.describe(held, fetching, stopping=self.stopped)

    # -- inside

    def _arrive(self, lease: Lease, turn: Turn) -> None:
        if self.stopped:
            self.room.put(Nack(*lease.held, counted=False, reason=Reason.STOPPED))
        elif is_start(lease.payload):
            self._by_held[lease.held] = self.starting.arrive(lease)
        elif self._is_suspect(lease) and self._suspect is not None:
            pause_ms = int(random.uniform(*SUSPECT_PAUSE_MS))
            self.room.put(Nack(*lease.held, pause_ms, counted=False))
        else:
            self._decode(lease, turn)

    def _decode(self, lease: Lease, turn: Turn) -> None:
        try:
            request = self.codec.decode(lease.payload)
            wait_ms = delay_ms(request)
        except OrbwebError as error:
            known = isinstance(error, SpiderError)
            reason = Reason.UNKNOWN_CALLBACK if known else Reason.UNDECODABLE
            log.error("request %s of %s cannot be made: %s", lease.id, lease.host, error)
            self.room.put(Nack(*lease.held, fatal=True, reason=reason, error=str(error)))
            return
        if wait_ms:
            del request.meta[DELAY]
            payload = self.codec.encode(request)
            self.room.put(Nack(*lease.held, wait_ms, counted=False, payload=payload))
            return
        work = Work(lease, request, turn=turn)
        if self._is_suspect(lease):
            self._suspect = work
        self._by_held[lease.held] = work
        self._buffer(work)

    def _buffer(self, work: Work) -> None:
        assert work.request is not None
        slot = self._downloader.get_slot_key(work.request)
        priority = -work.request.priority if work.lease is None else work.lease.priority
        self.buffer.put(slot, priority, work)

    def _keep_here(self, request: Request, page: Work | None) -> None:
        if page is not None:
            page.local += 1
        self._kept_here += 1
        self._buffer(Work(None, request, parent=page))
        self._wake()

    def _settle(self, work: Work) -> None:
        """Hand in what came of it, if it is over."""
        if not work.ended or work.local:
            return
        if work.lease is None:
            self._kept_here -= 1
            if work.parent is not None:
                work.parent.local -= 1
                self._settle(work.parent)
            return
        if self._suspect is work:
            self._suspect = None
        self._by_held.pop(work.lease.held, None)
        outcome = None if work.told else work.outcome()
        work.told = True
        if outcome is not None:
            self.room.put(outcome)

    def _count_refused(self, entries: int) -> None:
        self._stats.inc_value("orbweb/start_entries/refused", entries)

    def _lose(self, held: Held) -> None:
        work = self._by_held.pop(held, None)
        if work is None:
            return
        work.lost = True
        self._stats.inc_value("orbweb/lease_lost")
        if self.buffer.remove(work) and self._suspect is work:
            self._suspect = None

    def _is_suspect(self, lease: Lease) -> bool:
        """Workers have died with it so often that it may be what kills them: one at a time."""
        return lease.deliveries >= max(2, self.config.run.max_deliveries - 2)

    def _is_valid(self, lease: Lease) -> bool:
        return self.room.ledger.valid(lease.held, time.monotonic())

    def _only_seeding_left(self, claim: Claim) -> bool:
        """What is left is to run `start()`, in which this worker has failed."""
        pseudo = 1 + self.config.run.keep_alive
        return claim.pending <= pseudo and not self._works and not self.room.waiting

    def _enough(self) -> bool:
        return 0 < self.config.stop_after <= self._handed_out

    def _ask(self) -> None:
        """Tell the courier for how much there is room."""
        courier = self.room.courier
        if courier is None or self.stopped:
            return
        target, waiting = self.config.prefetch, len(self.buffer)
        coming = courier.sent - self._received
        wanted = min(target - self.buffer.startable, MOST_WAITING * target - waiting) - coming
        if self.config.stop_after:
            target = min(target, self.config.stop_after - self._handed_out - waiting - coming)
            wanted = min(wanted, target)
        courier.want(max(0, wanted), target, starts=not self.starting.waiting)

    def _limit_of(self, slot: str) -> int:
        downloader = self._downloader
        own = downloader.per_slot_settings.get(slot, {}).get("concurrency")
        limit: int = own or downloader.ip_concurrency or downloader.domain_concurrency
        return limit

    def _fire_opened(self, error: BaseException | None) -> bool:
        opened, self._opened = self._opened, None
        if opened is None:
            return False
        if error is None:
            opened.callback(None)
        else:
            opened.errback(error)
        return True

    def _fire_closed(self) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            closed.callback(None)


def _unexpected(error: BaseException) -> BaseException | None:
    """The error itself where its trace says more than its text."""
    return None if isinstance(error, OrbwebError) else error
