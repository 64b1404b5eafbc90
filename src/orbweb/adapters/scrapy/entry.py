"""From a Scrapy request to a request of the frontier: its identity, host and priority."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.dupefilters import RFPDupeFilter as ScrapyDupeFilter
from scrapy.settings import BaseSettings
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.request import RequestFingerprinter

from orbweb.adapters.scrapy.dupefilter import RFPDupeFilter, set_fingerprint
from orbweb.adapters.scrapy.identity import signed
from orbweb.adapters.scrapy.wishes import EXACT
from orbweb.errors import ConfigError
from orbweb.frontier.base import PRIORITY_LIMIT, NewRequest
from orbweb.log import get_logger
from orbweb.model.fingerprint import derived_fingerprint, request_id
from orbweb.model.url import BadUrlError, host_of

log = get_logger("orbweb.scrapy")

Fingerprint = Callable[[Request], int | None]
"""A signed 64-bit number; None: the request is not to be deduplicated."""

MOST_PRINTS = 50_000

ORDERS = ("priority", "fifo", "lifo")


class Entry:
    """How requests enter. Its own number is in every id that no page gives."""

    def __init__(self, fingerprint: Fingerprint, order: str, node: str) -> None:
        """`order`: of requests of one host, see `order_of`."""
        self._fingerprint = fingerprint
        self._order = order
        self._node = node
        self._count = 0

    def fingerprint(self, request: Request) -> int | None:
        """What the request is remembered by; None when it is not to be filtered."""
        return None if request.dont_filter else self._fingerprint(request)

    def admit(
        self, request: Request, payload: bytes, print_: int | None, *origin: str, seed: bool = False
    ) -> NewRequest:
        """The request for the frontier.

        `origin` (who found it, and as its how manieth) names one that is not deduplicated: the
        same page found again gives it the same id. `seed`: one that entered before does not enter
        again, whatever became of it.
        """
        seen = print_
        if print_ is not None:
            id = request_id(print_)
        else:
            if not origin:
                self._count += 1
                origin = (self._node, str(self._count))
            number = derived_fingerprint(*origin, request.method, request.url)
            id, seen = request_id(number), number if seed else None
        sure = bool(request.meta.get(EXACT))
        return NewRequest(id, self.host(request), self.priority(request), seen, payload, sure)

    def host(self, request: Request) -> str:
        """Unit of politeness and of taking turns."""
        try:
            return host_of(request.url)
        except BadUrlError:  # data:, file:, s3:// and what else Scrapy has handlers for
            return request.url.partition(":")[0]

    def priority(self, request: Request) -> int:
        """Smaller comes first."""
        if self._order == "fifo":
            return 0
        wanted = request.priority if self._order == "priority" else request.meta.get("depth", 0)
        return max(-PRIORITY_LIMIT, min(PRIORITY_LIMIT, -int(wanted)))


def order_of(settings: BaseSettings) -> str:
    """In which order `SCHEDULER_QUEUE_CLASS` gives out the requests of a host.

    `priority`: larger first, then as they came. `fifo`: as they came. `lifo`: deepest first.
    """
    named = settings.get("SCHEDULER_QUEUE_CLASS")
    if not named:
        return "priority"
    order = getattr(load_object(named), "order", None)
    if order not in ORDERS:
        raise ConfigError(
            f"SCHEDULER_QUEUE_CLASS is {named}, which does not say its order. Right would be a "
            "class of orbweb.adapters.scrapy.queue, or one with the attribute order = 'priority', "
            "'fifo' or 'lifo'"
        )
    return str(order)


class Filter:
    """What `DUPEFILTER_CLASS` and `ORBWEB_FINGERPRINT` mean for the frontier.

    The frontier itself remembers what was seen, so that a request and its mark enter in one step.
    The project's class says what makes two requests the same; one that only says "seen" or "not
    seen" is asked on top, in this worker.
    """

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        kind = load_object(settings["DUPEFILTER_CLASS"])
        self.local: BaseDupeFilter | None = None
        self._fingerprinter = crawler.request_fingerprinter
        self._is_plain = type(self._fingerprinter) is RequestFingerprinter
        self._prints: dict[str, int] = {}
        """Of URLs met before, as the links of a site's menu come again on every page."""
        self._made: Any = None
        if kind is BaseDupeFilter:
            self.fingerprint: Fingerprint = _nothing
            return
        if settings.get("ORBWEB_FINGERPRINT") == "scrapy-redis":
            self.fingerprint = lambda request: signed(bytes.fromhex(set_fingerprint(request)))
            return
        self.fingerprint = self._by_project
        if kind is ScrapyDupeFilter:
            return
        make = getattr(kind, "from_spider", None)
        made = make(crawler.spider) if make else build_from_crawler(kind, crawler)
        if type(made).__module__.startswith("orbweb."):
            return
        self._made = made
        if hasattr(made, "request_fingerprint"):
            self.fingerprint = self._by_filter
        if kind.request_seen not in (RFPDupeFilter.request_seen, ScrapyDupeFilter.request_seen):
            self.local = made
            log.warning(
                "DUPEFILTER_CLASS: %s.request_seen() is asked for every request, in the loop of "
                "the crawl, and what it remembers is not stored in one step with the request. "
                "ORBWEB_DEDUP_FILTER offers Bloom and exact filters that are",
                kind.__name__,
            )

    def _by_project(self, request: Request) -> int:
        if not self._is_plain or request.method != "GET" or request.body:
            return signed(self._fingerprinter.fingerprint(request))
        print_ = self._prints.get(request.url)
        if print_ is None:
            print_ = signed(self._fingerprinter.fingerprint(request))
            if len(self._prints) >= MOST_PRINTS:
                self._prints.clear()
            if "verbatim_url" not in request.meta:
                self._prints[request.url] = print_
        return print_

    def _by_filter(self, request: Request) -> int:
        found = self._made.request_fingerprint(request)
        return signed(bytes.fromhex(found) if isinstance(found, str) else bytes(found))


def _nothing(request: Request) -> None:
    return None
