"""robots.txt (RFC 9309): who may fetch what, asked of each origin once for the whole fleet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from orbweb.download.base import DownloadError, Gate
from orbweb.download.redirects import REDIRECT_STATUSES, redirect_target
from orbweb.download.robots_entry import EntryKind, RobotsEntry, origin_of
from orbweb.download.robots_rules import Rules
from orbweb.download.send import Sender
from orbweb.errors import OrbwebError, RequestError, StoreUnavailable
from orbweb.log import get_logger
from orbweb.model.proxy import Proxy
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import host_of

log = get_logger(__name__)

ROBOTS_MAX_BYTES = 500 * 1024
"""What of a robots.txt is read (RFC 9309, 2.5): give the robots' `Downloader` this limit."""

NO_CONNECTION = frozenset({Reason.DNS, Reason.CONNECTION, Reason.TLS})
"""What is wrong with a host that nobody can connect to: its pages would fail for the same."""

ROBOTS_FAILED = NO_CONNECTION | {Reason.ROBOTS_UNREACHABLE}
"""Why a page fails whose robots.txt cannot be had."""

_HOSTS_WARNED_OF = 20
_NO_ENTRY = b"0"
_NO_ENTRY_SECONDS = 0.001
_MAX_REDIRECTS = 5
_MAX_ORIGINS = 20_000
_LONGEST_TTL_SECONDS = 86_400.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0


class RobotsStore(Protocol):
    """What a fleet knows of robots.txt files; entries are opaque bytes.

    Every call is one atomic step. All raise `StoreUnavailable` when the store does not answer.
    """

    async def get(self, origin: str) -> bytes | None:
        """The entry of an origin; None when there is none or it has expired."""

    async def begin(self, origin: str, holder: str, seconds: float) -> bool:
        """Claim the fetch of an origin's file for so long; False when another holder has it."""

    async def put(self, origin: str, entry: bytes, ttl_seconds: float) -> None:
        """Keep an entry for so long, and end the claim on its fetch."""


class MemoryRobotsStore:
    """See `RobotsStore`: for one process. `now` is a clock in seconds, `loop.time` for example."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._entries: dict[str, tuple[bytes, float]] = {}
        self._claims: dict[str, tuple[str, float]] = {}

    async def get(self, origin: str) -> bytes | None:
        """See `RobotsStore`."""
        entry, until = self._entries.get(origin, (None, 0.0))
        if entry is None or until <= self._now():
            self._entries.pop(origin, None)
            return None
        return entry

    async def begin(self, origin: str, holder: str, seconds: float) -> bool:
        """See `RobotsStore`."""
        held_by, until = self._claims.get(origin, (holder, 0.0))
        if held_by != holder and until > self._now():
            return False
        self._claims[origin] = (holder, self._now() + seconds)
        return True

    async def put(self, origin: str, entry: bytes, ttl_seconds: float) -> None:
        """See `RobotsStore`."""
        self._claims.pop(origin, None)
        self._entries[origin] = (entry, self._now() + ttl_seconds)


@dataclass(frozen=True, slots=True)
class RobotsOptions:
    """How robots.txt is read. Times in seconds."""

    user_agent: str
    """The product token whose group of rules holds for us."""
    ttl_seconds: float = 3600.0
    """How long a file holds; 0 and anything longer mean 24 h, the most that RFC 9309 allows."""
    unreachable_seconds: float = 30.0
    """How long the whole fleet leaves an origin alone whose robots.txt could not be had."""
    local_seconds: float = 300.0
    """How long a process trusts its own copy before it asks the store again."""
    crawl_delay_max: float = 60.0
    """The longest crawl-delay that is kept to."""
    claim_seconds: float = 60.0
    """How long one node may take to fetch a file before another takes over."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a URL is not to be fetched now: for good (`robots_disallowed`) or for a time."""

    reason: Reason
    text: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of one origin; `rules` None allows all, `failure` forbids all."""

    rules: Rules | None
    crawl_delay: float
    failure: tuple[Reason, str] | None
    until: float
    last_day: float
    """Until when it may serve a page that had to wait for its turn (RFC 9309: a day)."""


class Robots:
    """Answers whether a URL may be fetched.

    No file (4xx) allows everything; a server that fails (5xx, 429, no connection) allows nothing
    for a while. Requests of one process that wait for the same file share one fetch. While the
    store is away, a file that this process does not know yet is waited for.
    """

    def __init__(
        self,
        sender: Sender,
        store: RobotsStore,
        options: RobotsOptions,
        *,
        holder: str,
        rng: random.Random,
    ) -> None:
        self._sender = sender
        self._store = store
        self._options = options
        self._holder = holder
        self._rng = rng
        self._known: dict[str, _Known] = {}
        self._owed: set[str] = set()
        self._loading: dict[str, asyncio.Event] = {}
        self._warned: set[str] = set()

    async def refusal(self, url: str, gate: Gate, proxy: Proxy | None = None) -> Refusal | None:
        """None when `url` may be fetched. URLs that are not http or https may.

        A file that nobody knows is fetched through the gate, and through the proxy of the page's
        request if that names one.
        """
        origin = origin_of(url)
        if origin is None:
            return None
        known = self._fresh(origin) or await self._shared_load(origin, gate, proxy)
        if known.failure:
            wait = max(0.0, known.until - asyncio.get_running_loop().time())
            return Refusal(*known.failure, wait)
        if known.rules is None or known.rules.allow(url):
            return None
        text = f"{origin}/robots.txt disallows {url} for {self._options.user_agent!r}"
        return Refusal(Reason.ROBOTS_DISALLOWED, text)

    async def sitemaps(self, url: str, gate: Gate) -> tuple[str, ...]:
        """The sitemaps that the file of this URL's origin names.

        Raises `DownloadError` when the file cannot be had now.
        """
        origin = origin_of(url)
        if origin is None:
            return ()
        known = self._fresh(origin) or await self._shared_load(origin, gate, None)
        if known.failure:
            raise DownloadError(*known.failure)
        return () if known.rules is None else known.rules.sitemaps

    def rename(self, user_agent: str) -> None:
        """Be another product from now on: files that are known are read anew for it."""
        if user_agent != self._options.user_agent:
            self._options = replace(self._options, user_agent=user_agent)
            self._known.clear()
            self._owed.clear()

    def put_off(self, url: str) -> None:
        """Its page must wait for its turn at the host. The file serves the next page, however old.

        Else a file that holds for a shorter time than the host's gap would take every turn.
        """
        origin = origin_of(url)
        if origin in self._known:
            self._owed.add(origin)

    def _fresh(self, origin: str) -> _Known | None:
        known = self._known.get(origin)
        if known is None:
            return None
        now = asyncio.get_running_loop().time()
        is_owed = origin in self._owed and not known.failure and now < known.last_day
        self._owed.discard(origin)
        return known if is_owed or now < known.until else None

    async def _shared_load(self, origin: str, gate: Gate, proxy: Proxy | None) -> _Known:
        while (loading := self._loading.get(origin)) is not None:
            await loading.wait()
            if (known := self._fresh(origin)) is not None:
                return known
        self._loading[origin] = done = asyncio.Event()
        try:
            known = await self._load(origin, gate, proxy)
            if not known.failure:
                await gate.crawl_delay(host_of(origin), self._delay_of_host(origin, known))
            self._keep(origin, known)
            return known
        finally:
            del self._loading[origin]
            done.set()

    async def _load(self, origin: str, gate: Gate, proxy: Proxy | None) -> _Known:
        """From the store; else fetch it, unless another node is at it: then wait for its answer."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                stored = await self._store.get(origin)
                entry = RobotsEntry.decode(stored) if stored is not None else None
                if entry is not None:
                    return self._known_from(origin, entry)
                if await self._store.begin(origin, self._holder, self._options.claim_seconds):
                    break
            except StoreUnavailable as error:
                log.debug("robots.txt of %s waits for the store: %s", origin, error)
            await asyncio.sleep(pause * (0.5 + self._rng.random()))
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        entry = None
        try:
            entry = await self._ask(origin, gate, proxy)
        finally:
            await self._tell(origin, entry)
        if entry.kind is EntryKind.UNREACHABLE:
            self._warn(origin, entry)
        return self._known_from(origin, entry)

    def _warn(self, origin: str, entry: RobotsEntry) -> None:
        """Say at once what else shows only when the last try of a request has failed."""
        if origin in self._warned or len(self._warned) > _HOSTS_WARNED_OF:
            return
        self._warned.add(origin)
        if len(self._warned) > _HOSTS_WARNED_OF:
            log.warning("robots.txt of further hosts cannot be had: `orbweb failed` has them all")
            return
        reason, text = entry.failure
        log.warning(
            "%s: %s (%s). Nothing is fetched there now; it is tried again in %g s",
            host_of(origin),
            text,
            reason,
            self._options.unreachable_seconds,
        )

    async def _tell(self, origin: str, entry: RobotsEntry | None) -> None:
        """Give the fleet the entry; without one, the right to fetch it."""
        stored, seconds = _NO_ENTRY, _NO_ENTRY_SECONDS
        if entry is not None:
            stored, seconds = entry.encode(), self._ttl(entry)
        try:
            await self._store.put(origin, stored, seconds)
        except StoreUnavailable as error:
            log.debug("robots.txt of %s is known to this process only: %s", origin, error)

    def _ttl(self, entry: RobotsEntry) -> float:
        options = self._options
        if entry.kind is EntryKind.UNREACHABLE:
            return options.unreachable_seconds
        return min(options.ttl_seconds or _LONGEST_TTL_SECONDS, _LONGEST_TTL_SECONDS)

    def _known_from(self, origin: str, entry: RobotsEntry) -> _Known:
        is_file = entry.kind is EntryKind.RULES
        rules = Rules(entry.body, self._options.user_agent) if is_file else None
        now = asyncio.get_running_loop().time()
        return _Known(
            rules=rules,
            crawl_delay=self._crawl_delay(origin, rules),
            failure=entry.failure if entry.kind is EntryKind.UNREACHABLE else None,
            until=now + min(self._options.local_seconds, self._ttl(entry)),
            last_day=now + _LONGEST_TTL_SECONDS,
        )

    def _delay_of_host(self, origin: str, known: _Known) -> float:
        """A host may have two files, for http and for https: the longer delay holds."""
        scheme, _, rest = origin.partition(":")
        other = self._known.get(f"{'http' if scheme == 'https' else 'https'}:{rest}")
        return known.crawl_delay if other is None else max(known.crawl_delay, other.crawl_delay)

    def _keep(self, origin: str, known: _Known) -> None:
        if len(self._known) >= _MAX_ORIGINS:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._owed.discard(oldest)
        self._known[origin] = known

    def _crawl_delay(self, origin: str, rules: Rules | None) -> float:
        delay = rules.crawl_delay if rules is not None else None
        most = self._options.crawl_delay_max
        if delay is None or not delay > 0:
            return 0.0
        if delay > most:
            log.warning(
                "robots.txt of %s asks for a crawl-delay of %g s; ROBOTS_CRAWL_DELAY_MAX is %g s",
                origin,
                delay,
                most,
            )
        return min(delay, most)

    async def _ask(self, origin: str, gate: Gate, proxy: Proxy | None) -> RobotsEntry:
        try:
            response = await self._follow(f"{origin}/robots.txt", gate, proxy)
        except RequestError as error:
            reason = error.reason if isinstance(error, DownloadError) else None
            text = f"the site does not answer: {error}"
            return _failed(text, reason if reason in NO_CONNECTION else None)
        status = response.status_code
        if status >= 500 or status == 429:
            return _failed(f"HTTP {status} for {response.url}")
        if 200 <= status < 300 and response.content.strip():
            return RobotsEntry(EntryKind.RULES, _within_limit(response.content))
        return RobotsEntry(EntryKind.ALLOW)

    async def _follow(self, url: str, gate: Gate, proxy: Proxy | None) -> Response:
        response = await self._fetch(url, gate, proxy)
        for _ in range(_MAX_REDIRECTS):
            if response.status_code not in REDIRECT_STATUSES or not response.headers.get(
                "location"
            ):
                break
            response = await self._fetch(redirect_target(response), gate, proxy)
        return response

    async def _fetch(self, url: str, gate: Gate, proxy: Proxy | None) -> Response:
        request = Request(url, proxy=proxy.address) if proxy is not None else Request(url)
        try:
            return await self._sender.send(request, gate.elsewhere(host_of(url)))
        except OrbwebError:
            raise
        except Exception as error:
            text = f"{url}: {type(error).__name__}: {error}"
            raise DownloadError(Reason.HTTP_ERROR, text) from error


def _within_limit(body: bytes) -> bytes:
    """The whole lines within the limit: half a rule might mean something else."""
    if len(body) < ROBOTS_MAX_BYTES:
        return body
    return body[:ROBOTS_MAX_BYTES].rpartition(b"\n")[0]


def _failed(text: str, reason: Reason | None = None) -> RobotsEntry:
    text = f"robots.txt cannot be had: {text}"
    return RobotsEntry.of_failure(reason or Reason.ROBOTS_UNREACHABLE, text)
