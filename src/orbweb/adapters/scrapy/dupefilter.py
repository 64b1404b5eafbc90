"""A duplicate filter that is a set in Redis, by scrapy-redis's name and rules.

Orbweb's scheduler does not ask it: there a request and its mark enter the frontier in one step.
It is for Scrapy's own scheduler, for sets that exist, and for projects that derive from it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from typing import Any, Self

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.settings import BaseSettings
from w3lib.url import canonicalize_url

from orbweb.adapters.scrapy import defaults
from orbweb.adapters.scrapy.connection import get_redis_from_settings

logger = logging.getLogger(__name__)


def set_fingerprint(request: Request) -> str:
    """40 hex characters under which scrapy-redis remembers a request: method, URL and body."""
    parts = {
        "method": request.method,
        "url": canonicalize_url(request.url),
        "body": (request.body or b"").hex(),
    }
    return hashlib.sha1(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class RFPDupeFilter(BaseDupeFilter):
    """See the module. A request is new when its fingerprint was not in the set `key`."""

    logger = logger

    def __init__(self, server: Any, key: str, debug: bool = False) -> None:
        """`debug`: log every request that is filtered, not only the first."""
        self.server = server
        self.key = key
        self.debug = debug
        self.logdupes = True
        self.fingerprinter: Any = None
        """Of the project, where it names one in `REQUEST_FINGERPRINTER_CLASS`."""

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        """A filter with a set of its own, `dupefilter:<timestamp>`."""
        key = defaults.DUPEFILTER_KEY % {"timestamp": int(time.time())}
        return cls(get_redis_from_settings(settings), key, settings.getbool("DUPEFILTER_DEBUG"))

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        made = cls.from_settings(crawler.settings)
        made.fingerprinter = _own_fingerprinter(crawler)
        return made

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """A filter with the set that all workers of the spider share."""
        settings = spider.settings
        key = settings.get("SCHEDULER_DUPEFILTER_KEY", defaults.SCHEDULER_DUPEFILTER_KEY)
        debug = settings.getbool("DUPEFILTER_DEBUG")
        made = cls(get_redis_from_settings(settings), key % {"spider": spider.name}, debug)
        made.fingerprinter = _own_fingerprinter(spider.crawler)
        return made

    def request_seen(self, request: Request) -> bool:
        """Remember the request; whether it was remembered before."""
        return bool(self.server.sadd(self.key, self.request_fingerprint(request)) == 0)

    def request_fingerprint(self, request: Request) -> str:
        """Hex characters from the project's fingerprinter, or else `set_fingerprint`."""
        if self.fingerprinter is not None:
            return bytes(self.fingerprinter.fingerprint(request)).hex()
        return set_fingerprint(request)

    def close(self, reason: str = "") -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all requests."""
        self.server.delete(self.key)

    def log(self, request: Request, spider: Spider) -> None:
        """Say that a request was filtered."""
        if self.debug:
            self.logger.debug(
                "Filtered duplicate request: %(request)s",
                {"request": request},
                extra={"spider": spider},
            )
        elif self.logdupes:
            self.logger.debug(
                "Filtered duplicate request %(request)s - no more duplicates will be shown "
                "(see DUPEFILTER_DEBUG to show all duplicates)",
                {"request": request},
                extra={"spider": spider},
            )
            self.logdupes = False


def _own_fingerprinter(crawler: Crawler) -> Any:
    named = (crawler.settings.getpriority("REQUEST_FINGERPRINTER_CLASS") or 0) > 0
    return crawler.request_fingerprinter if named else None
