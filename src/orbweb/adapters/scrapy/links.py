"""How requests that Scrapy schedules enter the frontier: filtered, and with their page."""

from __future__ import annotations

import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.statscollectors import StatsCollector

from orbweb.adapters.scrapy.codec import RequestCodec
from orbweb.adapters.scrapy.entry import Entry, Filter
from orbweb.adapters.scrapy.outbox import Add, Emit, Note
from orbweb.adapters.scrapy.seeding import Seed, SeedRefused
from orbweb.adapters.scrapy.wishes import HERE
from orbweb.adapters.scrapy.work import Work
from orbweb.errors import UnserialisableError
from orbweb.frontier.base import Ack
from orbweb.log import get_logger
from orbweb.model.reasons import Reason

EMIT_CHUNK = 1000
"""A page with more links than this lets them enter before its end, this many in one step."""

MOST_KNOWN = 200_000
"""Fingerprints that are known to be in the store, so that it need not be asked."""

log = get_logger("orbweb.scrapy")
dupes = logging.getLogger("scrapy.dupefilters")


class Links:
    """Takes requests in. Which page gave a request is told by `found`, before it is scheduled.

    A request that no page gave enters by itself, before the end of any page that ends later: so if
    a page gave it after all, in a way that nobody saw, it is in the store before that page is done.
    """

    def __init__(
        self,
        entry: Entry,
        filter: Filter,
        codec: RequestCodec,
        put: Callable[[Note], None],
        keep: Callable[[Request, Work | None], None],
        stats: StatsCollector,
        *,
        debug: bool,
    ) -> None:
        """`put` hands something to the store; `keep` a request to this worker, as it cannot travel.

        `debug`: log every request that is filtered or kept, not only the first of each.
        """
        self.epoch = ""
        self._entry = entry
        self._filter = filter
        self._codec = codec
        self._put = put
        self._keep = keep
        self._stats = stats
        self._debug = debug
        self._pages: WeakKeyDictionary[Request, Work] = WeakKeyDictionary()
        self._seeds: WeakKeyDictionary[Request, int] = WeakKeyDictionary()
        self._loose: Request | None = None
        self._known: set[int] = set()
        self._kept: set[int] = set()
        self._said: set[str] = set()

    # -- who found it

    def found(self, request: Request, work: Work) -> None:
        """A page, or a batch of start entries, gives this request, which is scheduled next."""
        self._pages[request] = work

    def seeded(self, request: Request, ordinal: int) -> None:
        """`start()` has yielded this request as its `ordinal`-th."""
        self._seeds[request] = ordinal

    # -- entering

    def enter(self, request: Request) -> bool:
        """Take a request in; False when it is filtered."""
        self.settle_loose()
        work = self._pages.pop(request, None)
        if work is None and request not in self._seeds and _may_continue(request):
            self._loose = request
            return True
        is_seed = request in self._seeds
        taken = self._enter(request, work)
        if not taken and (work is not None or is_seed):
            self.left_out(request, work, Reason.DUPLICATE_REQUEST)
        return taken

    def is_waited_for(self, request: Request) -> bool:
        """Whether it was found, or seeded, and has not been scheduled."""
        return request in self._pages or request in self._seeds

    def left_out(self, request: Request, work: Work | None, reason: Reason) -> None:
        """Count a request that is not taken: with its page or its start entries; as a seed if it is
        of none."""
        self._seeds.pop(request, None)
        self._pages.pop(request, None)
        if work is not None:
            work.root.skipped[reason] += 1
        else:
            self._put(SeedRefused(reason))

    def settle_loose(self) -> None:
        """Let a request enter by itself that might have taken the place of another."""
        request, self._loose = self._loose, None
        if request is not None:
            self._enter(request, None)

    def end(self, work: Work) -> None:
        """Scrapy is done with a request. What a middleware put in its place goes with it."""
        old, new = work.request, self._loose
        if old is None or new is None or not _continues(new, old):
            self.settle_loose()
            return
        self._loose = None
        retried = new.meta.get("retry_times", 0) > old.meta.get("retry_times", 0)
        work.root.fail(Reason.RETRY_WAIT if retried else Reason.REDIRECTED, "")
        if not self._enter(new, work):
            work.skipped[Reason.DUPLICATE_REDIRECT] += 1

    def acked(self, ack: Ack) -> None:
        """Links of a page are in the store."""
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        prints = (child.fingerprint for child in ack.children)
        self._known.update(print_ for print_ in prints if print_ is not None)

    def doubt(self) -> None:
        """The store may have lost its last writes: nothing is known to be there any more."""
        self._known.clear()

    def _enter(self, request: Request, work: Work | None) -> bool:
        page = work.root if work is not None else None
        print_ = self._entry.fingerprint(request)
        if not request.dont_filter and self._is_filtered(request, print_, page):
            self._say_filtered(request)
            return False
        payload = self._payload(request)
        if payload is None:
            if print_ is not None:
                self._kept.add(print_)
            self._keep(request, page)
            self._count("memory")
            return True
        ordinal = self._seeds.pop(request, None)
        if ordinal is not None:
            origin = (self.epoch, "seed", str(ordinal))
            self._put(Seed(self._entry.admit(request, payload, print_, *origin, seed=True)))
        elif page is None or page.lease is None:
            self._put(Add(self._entry.admit(request, payload, print_)))
        else:
            origin = (page.lease.id, "link", str(page.yielded))
            page.yielded += 1
            page.children.append(self._entry.admit(request, payload, print_, *origin))
            if print_ is not None:
                page.seen.add(print_)
            if len(page.children) >= EMIT_CHUNK:
                self._emit(page)
        self._count("redis")
        return True

    def _payload(self, request: Request) -> bytes | None:
        """The request for the store; None when this worker is to do it itself."""
        if request.meta.get(HERE):
            return None
        try:
            return self._codec.encode(request)
        except UnserialisableError as error:
            self._say_kept(request, error)
            return None

    def _emit(self, page: Work) -> None:
        assert page.lease is not None
        page.emitted += 1
        children, page.children = page.children, []
        self._put(Emit(page.lease.held, page.emitted, children))

    def _is_filtered(self, request: Request, print_: int | None, page: Work | None) -> bool:
        local = self._filter.local
        if local is not None and local.request_seen(request):
            return True
        if print_ is None:
            return False
        return (
            print_ in self._known
            or print_ in self._kept
            or (page is not None and print_ in page.seen)
        )

    def _count(self, where: str) -> None:
        self._stats.inc_value(f"scheduler/enqueued/{where}")
        self._stats.inc_value("scheduler/enqueued")

    def _say_filtered(self, request: Request) -> None:
        self._stats.inc_value("dupefilter/filtered")
        if self._is_new("filtered"):
            more = (
                "" if self._debug else " - no more duplicates will be shown (see DUPEFILTER_DEBUG)"
            )
            dupes.debug("Filtered duplicate request: %s%s", request, more)

    def _say_kept(self, request: Request, error: UnserialisableError) -> None:
        self._stats.inc_value("scheduler/unserializable")
        if self._is_new("kept"):
            log.warning(
                "%s cannot travel to other workers, so this one does it itself: %s - such requests "
                "are counted in scheduler/unserializable%s",
                request,
                error,
                "" if self._debug else ", and not logged any more",
            )

    def _is_new(self, what: str) -> bool:
        if what in self._said and not self._debug:
            return False
        self._said.add(what)
        return True


def _may_continue(request: Request) -> bool:
    """Whether it looks like one that a retry or redirect middleware has put in place of another."""
    meta = request.meta
    return "retry_times" in meta or "redirect_times" in meta


def _continues(new: Request, old: Request) -> bool:
    if new.meta.get("retry_times", 0) == old.meta.get("retry_times", 0) + 1:
        return new.url == old.url
    redirected: list[str] = new.meta.get("redirect_urls", [])
    return bool(redirected) and redirected[-1] == old.url
