"""Scrapy's scheduler on Orbweb's frontier."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.reactor import is_reactor_installed
from twisted.internet.defer import Deferred

from orbweb.adapters.scrapy.alias import refuse_originals
from orbweb.adapters.scrapy.config import room_config
from orbweb.adapters.scrapy.desk import Desk
from orbweb.adapters.scrapy.hooks import install, install_on_slot, slot_of, wake
from orbweb.adapters.scrapy.room import rooms
from orbweb.errors import ConfigError
from orbweb.log import get_logger

log = get_logger("orbweb.scrapy")


class Scheduler(BaseScheduler):
    """`SCHEDULER = "orbweb.adapters.scrapy.Scheduler"`: one frontier for all workers.

    A request is handed out under a lease and finished when its callback has come to its end, its
    items are through all pipelines and its links are in the store. No call of Scrapy's waits for
    the store: requests are fetched ahead, and results handed in, by a thread.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Raises `ConfigError` for a setting that cannot be."""
        self.crawler = crawler
        self.persist = crawler.settings.getbool("SCHEDULER_PERSIST")
        self.flush_on_start = crawler.settings.getbool("SCHEDULER_FLUSH_ON_START")
        if crawler.spider is None:
            raise ConfigError(
                "the scheduler is for a crawler that runs: its spider is not made yet"
            )
        refuse_originals(type(crawler.spider))
        self.desk = Desk(
            crawler,
            room_config(crawler.settings, crawler.spider),
            _poster(),
            wake=lambda: wake(crawler),
            close_spider=lambda reason: _close_spider(crawler, reason),
        )
        rooms[crawler] = self.desk.starting
        install(crawler, self.desk)
        self._restore_signal: Callable[[], None] = lambda: None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def __len__(self) -> int:
        return self.desk.pending

    def open(self, spider: Spider) -> Deferred[None]:
        """Join the run. The Deferred fails when the store does not answer or is not safe."""
        install_on_slot(self.crawler, self.desk)
        self._restore_signal = _on_sigusr1(
            lambda: _close_spider(self.crawler, "drained"), self.desk.post
        )
        opened = self.desk.open()
        if (local := self.desk.filter.local) is not None:
            opened.addCallback(lambda _: local.open())
        return opened

    def close(self, reason: str) -> Deferred[None] | None:
        """Hand in what is done, give back what is not, and leave. Nothing is deleted."""
        self._restore_signal()
        if (local := self.desk.filter.local) is not None:
            local.close(reason)
        return self.desk.close()

    def has_pending_requests(self) -> bool:
        """Whether anybody in the fleet has work, or may get some."""
        return self.desk.busy

    def enqueue_request(self, request: Request) -> bool:
        """Take a request in; False when it is a duplicate, as far as this worker knows."""
        return self.desk.links.enter(request)

    def next_request(self) -> Request | None:
        """A request that may be fetched now."""
        return self.desk.next()


def _poster() -> Callable[..., None]:
    """Calls a function in the loop of Scrapy, from any thread."""
    if is_reactor_installed():
        from twisted.internet import reactor

        post: Callable[..., None] = reactor.callFromThread
        return post
    loop = asyncio.get_running_loop()

    def post_to_loop(function: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # Scrapy has ended
            loop.call_soon_threadsafe(function, *args)

    return post_to_loop


def _close_spider(crawler: Crawler, reason: str) -> None:
    engine: Any = crawler.engine
    if slot_of(crawler) is None or engine.spider is None:
        return
    if hasattr(engine, "close_spider_async"):
        deferred_from_coro(engine.close_spider_async(reason=reason))
    else:
        engine.close_spider(crawler.spider, reason=reason)


def _on_sigusr1(drain: Callable[[], None], post: Callable[..., None]) -> Callable[[], None]:
    """Let SIGUSR1 finish what is in work and close; returns what takes that off again."""
    number = getattr(signal, "SIGUSR1", None)
    main = threading.current_thread() is threading.main_thread()
    if number is None or not main or signal.getsignal(number) is not signal.SIG_DFL:
        return lambda: None

    def on_signal(number: int, frame: object) -> None:
        post(log.warning, "SIGUSR1: finishing what is in work")
        post(drain)

    def restore() -> None:
        signal.signal(number, signal.SIG_DFL)

    signal.signal(number, on_signal)
    return restore
