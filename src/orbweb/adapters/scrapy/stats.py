"""Statistics of all workers of a spider in one Redis hash, written in batches from a thread.

Each worker counts in memory, as Scrapy's own collector does, and sends what has changed every few
seconds in one call. So the hash holds the sum over all workers, and no callback waits for Redis.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from datetime import datetime
from importlib.resources import files
from typing import Any, Self

from redis.exceptions import RedisError
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from orbweb.adapters.scrapy import connection, defaults
from orbweb.log import event, get_logger

log = get_logger("orbweb.scrapy")
FLUSH_SECONDS = 5.0
SILENT_MS = 60_000
"""A worker that has not sent for this long is gone."""

MERGE = (files(__package__) / "lua" / "merge_stats.lua").read_text("utf-8")


class RedisStatsCollector(StatsCollector):
    """Scrapy's collector, plus the sum over all workers in the hash `STATS_KEY`.

    `get_value` and `get_stats` tell what this worker counted, `cluster_stats` what all did. Unless
    `SCHEDULER_PERSIST` is set the last worker that closes removes the hash.
    """

    def __init__(self, crawler: Crawler, spider: Spider | None = None) -> None:
        super().__init__(crawler)
        settings = crawler.settings
        self.server = connection.get_impatient_redis(settings)
        self.spider = spider
        self.stats_key = settings.get("STATS_KEY", defaults.STATS_KEY)
        self.persist = settings.getbool("SCHEDULER_PERSIST", defaults.SCHEDULER_PERSIST)
        self._worker = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._changes: dict[str, tuple[str, Any]] = {}
        self._batch: list[str] = []
        """What was sent last, while its answer is missing."""
        self._number = 0
        self._ended = threading.Event()
        self._flusher: threading.Thread | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        return cls(spider.crawler, spider)

    def _get_key(self, spider: Spider | None = None) -> str:
        """The hash of a spider, by default of the crawler's."""
        owner = spider or self.spider or self._crawler.spider or self._crawler.spidercls
        return str(self.stats_key % {"spider": owner.name})

    def cluster_stats(self) -> dict[str, Any]:
        """What all workers have sent so far, with the types that they had; times as seconds."""
        found = self.server.hgetall(self._get_key())
        return {_text(name): json.loads(value) for name, value in found.items()}

    def set_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        super().set_value(key, value)
        self._note("set", key, value)

    def set_stats(self, stats: dict[str, Any], spider: Spider | None = None) -> None:
        super().set_stats(stats)
        for key, value in stats.items():
            self._note("set", key, value)

    def inc_value(
        self, key: str, count: int = 1, start: int = 0, spider: Spider | None = None
    ) -> None:
        first = key not in self._stats
        super().inc_value(key, count, start)
        self._note("add", key, start + count if first else count)

    def max_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        super().max_value(key, value)
        self._note("max", key, self._stats[key])

    def min_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        super().min_value(key, value)
        self._note("min", key, self._stats[key])

    def clear_stats(self, spider: Spider | None = None) -> None:
        for key in list(self._stats):
            self._note("del", key, None)
        super().clear_stats()

    def open_spider(self, spider: Spider | None = None) -> None:
        self._flusher = threading.Thread(target=self._flush_often, name="stats", daemon=True)
        self._flusher.start()

    def close_spider(self, spider: Spider | None = None, reason: str | None = None) -> None:
        if spider is None:
            super().close_spider(reason=reason)
        else:  # Scrapy 2.13 asks for it, later ones warn of it
            super().close_spider(spider, reason)
        if self._flusher is None:
            return
        self._ended.set()
        self._flusher.join(timeout=2 * FLUSH_SECONDS)

    def _note(self, verb: str, key: str, value: Any) -> None:
        with self._lock:
            before = self._changes.get(key)
            if verb == "add" and before is not None and before[0] in ("add", "set"):
                self._changes[key] = before[0], before[1] + value
            else:
                self._changes[key] = verb, value

    def _flush_often(self) -> None:
        while not self._ended.wait(FLUSH_SECONDS):
            self.flush()
        self.flush(leaving=True)

    def flush(self, *, leaving: bool = False) -> None:
        """Send what has changed. While the store is away it is kept for the next time."""
        key = self._get_key()
        try:
            if self._batch:
                self._send(key, leaving=False)
            self._number += 1
            self._batch = self._taken()
            self._send(key, leaving=leaving)
        except (RedisError, OSError) as error:
            event(log, "stats_wait", level=logging.WARNING, error=str(error))

    def _taken(self) -> list[str]:
        with self._lock:
            changes, self._changes = self._changes, {}
        return [
            word
            for key, (verb, value) in changes.items()
            for word in (verb, key, json.dumps(value, default=_stored))
        ]

    def _send(self, key: str, *, leaving: bool) -> None:
        head = (self._worker, self._number, SILENT_MS, int(leaving), int(not self.persist))
        self.server.eval(MERGE, 2, key, workers_key(key), *head, *self._batch)
        self._batch = []


def workers_key(key: str) -> str:
    """Where the workers stand that send to a hash."""
    return f"{key}:workers"


def _stored(value: Any) -> Any:
    """What JSON does not know, as scrapy-redis stores it: times as seconds, the rest as text."""
    return value.timestamp() if isinstance(value, datetime) else str(value)


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
