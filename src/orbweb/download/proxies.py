"""The pool of proxies: which one the next request of a host goes through, and which rest."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orbweb.download.proxy_lists import ProxyFile, parse_proxies
from orbweb.errors import NoProxyFree
from orbweb.log import event, get_logger
from orbweb.model.proxy import Proxy

PATIENCE_SECONDS = 0.5
"""A request keeps its fetch slot for so long while it waits for a proxy; then it is given back."""

LOOK_SECONDS = 1.0
"""Least time between two looks at the file."""

RECENT_SECONDS = 3.0
"""A host counts as waiting for so long after a request of it found no proxy."""

MOST_NOTES = 1000
"""Choices that are remembered, to tell whether there are too few proxies."""

MOST_RESTS = 100_000
"""Pairs of proxy and host that are remembered; beyond that those that are over are forgotten."""

log = get_logger("orbweb.proxies")


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How long a proxy that has failed for a host rests from it. Times in seconds."""

    cooldown_seconds: float = 60.0
    """After the first failure; it doubles with each further one in a row."""
    longest_seconds: float = 900.0
    statuses: frozenset[int] = frozenset({403, 429})
    """Statuses of an answer after which the proxy rests from that host."""
    suspect_after: int = 3
    """So many exchanges in a row that broke off, by whoever's fault, count as a failure."""


@dataclass(slots=True)
class _Record:
    """How a proxy has done at one host."""

    until: float = 0.0
    failures: int = 0
    suspicions: int = 0


class ProxyPool:
    """Proxies of one node, from a list and a file. Once it is on, nothing goes past it.

    What rests, rests from one host: others still get it. All methods are for one event loop;
    `replace`, `use_file`, `tune` and `switch` may be called while requests are under way, and hold
    from the next choice on. That a pool is empty does not switch it off: then all requests wait.
    """

    def __init__(
        self, options: PoolOptions | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        """`clock` gives monotonic seconds; the default is that of the running event loop."""
        self._options = options or PoolOptions()
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._on = False
        self._listed: tuple[Proxy, ...] = ()
        self._file: ProxyFile | None = None
        self._proxies: tuple[Proxy, ...] = ()
        self._next = 0
        self._looked_at = float("-inf")
        self._records: dict[tuple[Proxy, str], _Record] = {}
        self._waiting: dict[str, float] = {}
        self._given: deque[float] = deque(maxlen=MOST_NOTES)
        self._missed: deque[float] = deque(maxlen=MOST_NOTES)
        self._all_missed = 0
        self._changed = asyncio.Event()

    # -- what may change while a crawl runs

    @property
    def is_on(self) -> bool:
        """Whether requests without a proxy of their own go through the pool."""
        return self._on

    def switch(self, on: bool) -> None:
        """Let requests go through the pool, or straight to the hosts."""
        if on is not self._on:
            event(log, "proxies_on" if on else "proxies_off", proxies=len(self._proxies))
        self._on = on
        self._tell()

    def replace(self, addresses: Sequence[str], origin: str = "PROXY_LIST") -> None:
        """Take these proxies in the place of those given before; those of the file stay.

        What is known of a proxy that stays is kept. Raises `ConfigError` that names the entry,
        and then nothing has changed.
        """
        self._listed = parse_proxies(addresses, origin)
        self._merge()

    def use_file(self, path: Path | None) -> None:
        """Take the proxies of this file too, and look whether it has changed from time to time.

        Raises `ConfigError` when it cannot be read, and then nothing has changed. A file that is
        used already is only looked at: its proxies stay while it cannot be read.
        """
        used = self._file
        if path is None:
            self._file = None
        elif used is not None and used.path == path:
            used.look()
        else:
            self._file = ProxyFile(path)
        self._looked_at = self._now() if path is not None else float("-inf")
        self._merge()

    def tune(self, options: PoolOptions) -> None:
        """Let other rests hold from now on; those that have begun stay as they are."""
        self._options = options

    # -- what is asked for each request

    async def take(self, host: str) -> Proxy:
        """The next proxy that does not rest from the host, each in its turn.

        Waits a moment when there is none. Raises `NoProxyFree`.
        """
        if (proxy := self._free(host)) is not None:
            return proxy
        self._waiting[host] = self._now()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    proxy = await self._changes(host)
                    if proxy is not None:
                        return proxy
        except TimeoutError:
            self._waiting[host] = self._now()
            self._missed.append(self._now())
            self._all_missed += 1
            raise NoProxyFree(self._no_proxy(host)) from None

    def good(self, proxy: Proxy, host: str) -> None:
        """The host has answered through it."""
        self._records.pop((proxy, host), None)

    def suspect(self, proxy: Proxy, host: str, why: str) -> None:
        """An exchange broke off after it was sent: the host's fault, or the proxy's."""
        record = self._record(proxy, host)
        record.suspicions += 1
        if record.suspicions >= self._options.suspect_after:
            self.failed(proxy, host, why)

    def failed(self, proxy: Proxy, host: str, why: str) -> None:
        """The proxy is of no use for the host now: it rests from it."""
        options, record, now = self._options, self._record(proxy, host), self._now()
        record.suspicions = 0
        if record.until > now:  # several requests have met the same failure
            return
        longest = max(options.longest_seconds, options.cooldown_seconds)
        rest = min(options.cooldown_seconds * 2**record.failures, longest)
        record.failures = min(record.failures + 1, 30)
        record.until = now + rest
        event(log, "proxy_rests", proxy=proxy.id, host=host, seconds=round(rest, 1), why=why)

    @property
    def answers_refused(self) -> frozenset[int]:
        """Statuses after which a proxy rests."""
        return self._options.statuses

    # -- what people see

    def waiting(self) -> tuple[str, ...]:
        """Hosts for which no proxy was free just now."""
        if self._waiting:
            since = self._now() - RECENT_SECONDS
            self._waiting = {host: at for host, at in self._waiting.items() if at > since}
        return tuple(self._waiting)

    @property
    def is_short(self) -> bool:
        """Of the requests that asked just now at least half have found no proxy."""
        since = self._now() - RECENT_SECONDS
        for notes in (self._given, self._missed):
            while notes and notes[0] <= since:
                notes.popleft()
        return bool(self._missed) and len(self._missed) >= len(self._given)

    def counts(self) -> Mapping[str, int]:
        """Proxies, pairs of proxy and host that rest from each other, and requests that have found
        no proxy so far; empty when the pool is off."""
        if not self._on:
            return {}
        now = self._now()
        resting = sum(record.until > now for record in self._records.values())
        return {"all": len(self._proxies), "resting": resting, "missed": self._all_missed}

    # -- inside

    def _now(self) -> float:
        return self._clock()

    def _free(self, host: str) -> Proxy | None:
        self._look_at_file()
        proxies, now = self._proxies, self._now()
        for step in range(len(proxies)):
            at = (self._next + step) % len(proxies)
            record = self._records.get((proxies[at], host))
            if record is None or record.until <= now:
                self._next = at + 1
                self._given.append(now)
                self._waiting.pop(host, None)
                return proxies[at]
        return None

    async def _changes(self, host: str) -> Proxy | None:
        """A free proxy after the pool has changed or the first rest is over; None if taken."""
        pause = max(self._first_end(host) - self._now(), 0.001)
        changed = self._changed
        try:
            async with asyncio.timeout(pause):
                await changed.wait()
        except TimeoutError:
            pass
        return self._free(host)

    def _first_end(self, host: str) -> float:
        known = [self._records.get((proxy, host)) for proxy in self._proxies]
        ends = [record.until for record in known if record is not None]
        return min(ends, default=self._now() + LOOK_SECONDS)

    def _record(self, proxy: Proxy, host: str) -> _Record:
        record = self._records.get((proxy, host))
        if record is None:
            if len(self._records) >= MOST_RESTS:
                now = self._now()
                self._records = {k: r for k, r in self._records.items() if r.until > now}
            record = self._records[proxy, host] = _Record()
        return record

    def _look_at_file(self) -> None:
        now = self._now()
        if self._file is None or now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        if self._file.look():
            self._merge()

    def _merge(self) -> None:
        filed = self._file.proxies if self._file is not None else ()
        self._proxies = tuple(dict.fromkeys((*self._listed, *filed)))
        known = set(self._proxies)
        self._records = {k: r for k, r in self._records.items() if k[0] in known}
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _no_proxy(self, host: str) -> str:
        if not self._proxies:
            return f"{host}: the proxy pool is empty"
        return f"{host}: all {len(self._proxies)} proxies of the pool rest from it"
