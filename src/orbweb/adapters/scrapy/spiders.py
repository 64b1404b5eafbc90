"""Spiders that read their start requests from Redis, by scrapy-redis's names.

With Orbweb's scheduler an entry leaves its key only in the step in which it enters the frontier, so
the spider is handed batches and never pops. With any other scheduler it pops as scrapy-redis does.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from redis.exceptions import ResponseError
from scrapy import Request, signals
from scrapy.exceptions import DontCloseSpider
from scrapy.spiders import CrawlSpider, Spider

from orbweb.adapters.scrapy import connection, defaults
from orbweb.adapters.scrapy.room import room_of
from orbweb.adapters.scrapy.start_data import (
    OTHER_FIELDS,
    StartEntryError,
    read_entry,
    request_from_entry,
)
from orbweb.adapters.scrapy.starts import StartSource, is_refused_key, not_kept, refusal

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    Base = Spider
else:
    Base = object

NOT_CALLED = ("next_requests", "schedule_next_requests", "spider_idle")
"""Methods by which scrapy-redis pops: Orbweb's scheduler has no use for them."""


class RedisMixin(Base):
    """Start requests from a Redis list, set or sorted set. For use before any class of spiders.

    With `SitemapSpider` an entry is the address of a sitemap or of a robots.txt.
    """

    redis_key: Any = None
    """Where entries are read: a name, in which `%(name)s` is the spider's, or a list of them in
    order of rank. Default: `REDIS_START_URLS_KEY`."""
    redis_batch_size: Any = None
    """Entries taken at once. Default: `REDIS_START_URLS_BATCH_SIZE`, or else
    `CONCURRENT_REQUESTS`."""
    redis_encoding: Any = None
    """Default: `REDIS_START_URLS_ENCODING`, or else `REDIS_ENCODING`."""
    redis_key_check_interval: Any = None
    """Seconds after which a key of higher rank is looked for while this one still has entries.
    Orbweb's scheduler looks before every batch."""
    max_idle_time: Any = None
    """Seconds without work after which the spider closes, 0 = never. Default:
    `MAX_IDLE_TIME_BEFORE_CLOSE`."""

    server: Any = None
    """The project's Redis, blocking. Set by `setup_redis`."""
    spider_idle_start_time = 0
    """When the spider last had work, seconds since 1970."""

    _redis_keys: list[str] | None = None
    _last_priority_scan: float = 0
    _reading = False
    """`start` of this class has begun."""

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.setup_redis(crawler)
        return spider

    def setup_redis(self, crawler: Crawler | None = None) -> None:
        """Read the settings; done once. Raises `ValueError` that names a wrong one."""
        if self.server is not None:
            return
        crawler = crawler or getattr(self, "crawler", None)
        if crawler is None:
            raise ValueError("crawler is required")
        settings = crawler.settings
        if self.redis_key is None:
            self.redis_key = settings.get("REDIS_START_URLS_KEY", defaults.START_URLS_KEY)
        self.redis_key, self._redis_keys = self._normalize_redis_key(self.redis_key)
        if self.redis_batch_size is None:
            self.redis_batch_size = settings.get("REDIS_START_URLS_BATCH_SIZE") or settings.getint(
                "CONCURRENT_REQUESTS", defaults.REDIS_CONCURRENT_REQUESTS
            )
        self.redis_batch_size = _integer("redis_batch_size", self.redis_batch_size)
        if self.redis_encoding is None:
            self.redis_encoding = settings.get("REDIS_START_URLS_ENCODING") or settings.get(
                "REDIS_ENCODING", defaults.REDIS_ENCODING
            )
        if self.redis_key_check_interval is None:
            self.redis_key_check_interval = settings.get(
                "REDIS_KEY_CHECK_INTERVAL", defaults.REDIS_KEY_CHECK_INTERVAL
            )
        self.redis_key_check_interval = _integer(
            "redis_key_check_interval", self.redis_key_check_interval or 0
        )
        if self.max_idle_time is None:
            self.max_idle_time = settings.get("MAX_IDLE_TIME_BEFORE_CLOSE", defaults.MAX_IDLE_TIME)
        self.max_idle_time = _integer("max_idle_time", self.max_idle_time)
        self._other_fields = settings.get("ORBWEB_START_FIELDS", "auto")
        if self._other_fields not in OTHER_FIELDS:
            raise ValueError(
                f"ORBWEB_START_FIELDS is one of {', '.join(OTHER_FIELDS)}, "
                f"not {self._other_fields!r}"
            )
        self.server = connection.from_settings(settings)
        self._choose_commands(settings)
        self._prepare(crawler)

    def _choose_commands(self, settings: Any) -> None:
        if settings.getbool("REDIS_START_URLS_AS_SET", defaults.START_URLS_AS_SET):
            self.fetch_data, self.count_size = self.server.spop, self.server.scard
        elif settings.getbool("REDIS_START_URLS_AS_ZSET", defaults.START_URLS_AS_ZSET):
            self.fetch_data, self.count_size = self.pop_priority_queue, self.server.zcard
        else:
            self.fetch_data, self.count_size = self.pop_list_queue, self.server.llen

    def _prepare(self, crawler: Crawler) -> None:
        allowed = getattr(self, "allowed_domains", None)
        if isinstance(allowed, Iterator):  # it could be read only once
            self.allowed_domains = list(allowed)
        if type(self).start is not RedisMixin.start:
            self.start = self._own_start_then_redis  # type: ignore[method-assign]
        self.spider_idle_start_time = int(time.time())
        several = "keys" if self._redis_keys else "key"
        self.logger.info(
            "Reading start URLs from redis %s '%s' (batch size: %s, encoding: %s)",
            several,
            self._redis_keys or self.redis_key,
            self.redis_batch_size,
            self.redis_encoding,
        )
        crawler.signals.connect(self._worked, signal=signals.response_received)
        crawler.signals.connect(self.spider_idle, signal=signals.spider_idle)

    def start_source(self) -> StartSource | None:
        """What Orbweb's scheduler needs to know to hand out start entries."""
        self.setup_redis()
        keys = tuple(self._redis_keys or (self.redis_key,))
        return StartSource(keys, self.redis_batch_size, float(self.max_idle_time))

    # -- with Orbweb's scheduler

    async def start(self) -> AsyncIterator[Any]:
        """Requests of the spider's own `start_requests`, if it has one, then those from Redis."""
        self._reading = True
        self.setup_redis()
        if type(self).start_requests is not RedisMixin.start_requests:
            for request in self.start_requests():
                yield request
        room = room_of(self.crawler)
        if room is None:
            return
        self._warn_of_methods_not_called()
        async for batch in room.start_batches():
            for entry in batch.entries:
                try:
                    async for request in self._requests_of(entry):
                        yield request
                except Exception as error:
                    self._say_refused(batch.key, entry, error)
                    batch.refuse(entry, error)
            self.logger.debug("Read %s entries from '%s'", len(batch.entries), batch.key)

    async def _own_start_then_redis(self) -> AsyncIterator[Any]:
        """For spiders that override `start`: entries from Redis follow if it did not read them."""
        async for one in type(self).start(self):
            yield one
        if not self._reading:
            async for one in RedisMixin.start(self):
                yield one

    async def _requests_of(self, entry: bytes) -> AsyncIterator[Request]:
        made = self.make_request_from_data(entry)
        if inspect.isawaitable(made):
            made = await made
        if hasattr(made, "__aiter__"):
            async for request in made:
                yield request
        else:
            for request in self._as_requests(made, entry):
                yield request

    def _warn_of_methods_not_called(self) -> None:
        for name in NOT_CALLED:
            if getattr(type(self), name) is not getattr(RedisMixin, name):
                self.logger.warning(
                    "%s.%s() is not called: Orbweb's scheduler takes start entries from Redis in "
                    "the step in which they enter the frontier. What is made of an entry is "
                    "decided by make_request_from_data()",
                    type(self).__name__,
                    name,
                )

    # -- what is made of an entry

    def make_request_from_data(self, data: Any) -> Any:
        """The request of a start entry: a URL, or a JSON object with `url` and further fields.

        Projects may override it, also with a coroutine or a generator. It may return or yield one
        request, several, or nothing. What it raises costs this entry only: that is kept in
        `<key>:bad` with the reason. See `docs/migrate-from-scrapy-redis.md` for the fields.
        """
        record = read_entry(data, self.redis_encoding or defaults.REDIS_ENCODING)
        return request_from_entry(
            record,
            self,
            other_fields=getattr(self, "_other_fields", "auto"),
            callback=getattr(self, "_parse_sitemap", None),
        )

    def _as_requests(self, made: Any, entry: Any) -> Iterator[Request]:
        if made and not isinstance(made, Iterable):
            made = [made]
        found = 0
        for request in made or ():
            yield request
            found += 1
            self.logger.info("start req url:%s", request.url)
        if not found:
            self.logger.debug("Request not made from data: %s", entry)

    def _say_refused(self, key: str, entry: Any, error: Exception) -> None:
        self.logger.error(
            "Start entry %r is kept in '%s:bad': %s",
            entry,
            key,
            error,
            exc_info=None if isinstance(error, StartEntryError) else error,
        )

    # -- with any other scheduler: scrapy-redis's way

    def start_requests(self) -> Iterator[Request]:
        """The first batch of requests; with Orbweb's scheduler none, as `start` yields all."""
        crawler = getattr(self, "crawler", None)
        if crawler is not None and room_of(crawler) is not None:
            return iter(())
        return self.next_requests()

    def pop_list_queue(self, redis_key: str, batch_size: int) -> list[Any]:
        """Remove entries from the left end of a list."""
        with self.server.pipeline() as pipe:
            pipe.lrange(redis_key, 0, batch_size - 1)
            pipe.ltrim(redis_key, batch_size, -1)
            entries, _ = pipe.execute()
        return list(entries)

    def pop_priority_queue(self, redis_key: str, batch_size: int) -> list[Any]:
        """Remove the entries with the highest scores from a sorted set."""
        with self.server.pipeline() as pipe:
            pipe.zrevrange(redis_key, 0, batch_size - 1)
            pipe.zremrangebyrank(redis_key, -batch_size, -1)
            entries, _ = pipe.execute()
        return list(entries)

    def next_requests(self) -> Iterator[Request]:
        """Remove a batch of entries and yield their requests; a bad entry is kept apart."""
        self._maybe_check_priority_scan()
        found = 0
        for entry in self.fetch_data(self.redis_key, self.redis_batch_size):
            try:
                for request in self._as_requests(self.make_request_from_data(entry), entry):
                    yield request
                    found += 1
            except Exception as error:
                self._refuse(entry, error)
        if found:
            self.logger.debug("Read %s requests from '%s'", found, self.redis_key)

    def _refuse(self, entry: Any, error: Exception) -> None:
        self._say_refused(self.redis_key, entry, error)
        key = f"{self.redis_key}:bad"
        try:
            self.server.rpush(key, refusal(entry, error))
        except ResponseError as why:
            if not is_refused_key(why):
                raise
            self.logger.warning("%s", not_kept(key, 1, why))
        self.crawler.stats.inc_value("orbweb/start_entries/refused")

    def schedule_next_requests(self) -> None:
        """Give a batch of requests to the engine."""
        self._maybe_check_priority_scan()
        for request in self.next_requests():
            self.crawler.engine.crawl(request)

    def spider_idle(self) -> None:
        """Look for entries, and keep the spider open unless it has been idle for too long."""
        if room_of(self.crawler) is not None:
            return
        self._maybe_check_priority_scan()
        if self._any_key_has_items():
            self.spider_idle_start_time = int(time.time())
        self.schedule_next_requests()
        idle_time = int(time.time()) - self.spider_idle_start_time
        if self.max_idle_time == 0 or idle_time < self.max_idle_time:
            raise DontCloseSpider

    def _worked(self) -> None:
        self.spider_idle_start_time = int(time.time())

    # -- several keys

    def _normalize_redis_key(self, redis_key: Any) -> tuple[str, list[str] | None]:
        several = isinstance(redis_key, list | tuple)
        keys = [str(key) % {"name": self.name} for key in (redis_key if several else [redis_key])]
        if not all(key.strip() for key in keys):
            raise ValueError("redis_key must not be empty")
        if not several:
            return keys[0], None
        unique = list(dict.fromkeys(key.strip() for key in keys))
        if not unique:
            raise ValueError("redis_key list is empty after normalization")
        return unique[0], unique

    def _any_key_has_items(self) -> bool:
        return any(self.count_size(key) > 0 for key in self._redis_keys or [self.redis_key])

    def _select_priority_key(self) -> str | None:
        keys = self._redis_keys or [self.redis_key]
        return next((key for key in keys if self.count_size(key) > 0), None)

    def _maybe_check_priority_scan(self) -> None:
        """Go on with the key of highest rank that has entries, when it is time to look for it."""
        if not self._redis_keys:
            return
        now = time.time()
        interval = self.redis_key_check_interval
        due = interval and now - self._last_priority_scan >= interval
        if due:
            self._last_priority_scan = now
        if due or self.count_size(self.redis_key) == 0:
            self.redis_key = self._select_priority_key() or self.redis_key


class RedisSpider(RedisMixin, Spider):
    """See `RedisMixin`."""


class RedisCrawlSpider(RedisMixin, CrawlSpider):
    """See `RedisMixin`. The rules apply to the pages of start requests too."""


def _integer(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an integer, not {value!r}") from error
