"""The journal: what steps hand in, and links that are not taken, as lines of the crawl log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from orbweb.errors import OrbwebError
from orbweb.frontier.base import Ack, Lease, Nack, NackResult
from orbweb.model.fingerprint import fingerprint, request_id
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.url import host_of
from orbweb.monitor.crawl_line import CrawlLine, CrawlLog, LineKind, time_text
from orbweb.monitor.trace import Marks, Trace, Tracer

if TYPE_CHECKING:
    from orbweb.model.response import Response

KNOWN_SKIPS = 50_000
"""Links not taken that a node remembers: one of a site's menu is one line, not thousands."""

LONGEST_ERROR = 500
"""Characters of an error in a line; the dead letter has all that is kept."""


@dataclass(slots=True)
class Attempt:
    """What is known so far of the work on one lease."""

    lease: Lease
    request: Request | None = None
    status: int = 0
    size_bytes: int = 0
    ms: int = 0
    to: Request | str | None = None
    """Where a redirect led: a request of its own, or the URL of the page."""
    links: int = 0
    error: str = ""
    proxy: str = ""
    marks: Marks | None = None
    """None: nobody traces it."""

    def mark(self, phase: str, at: float) -> None:
        """A phase has begun."""
        if self.marks is not None:
            self.marks.append((phase, at))

    def answered(self, request: Request, response: Response | None, seconds: float) -> None:
        """The last answer has come, or the attempt has ended without one after so long."""
        self.request = request
        self.ms = round(seconds * 1000)
        if response is None:
            return
        self.status, self.size_bytes = response.status_code, len(response.content)
        self.proxy = response.proxy
        if response.elapsed is not None:
            self.ms = round(response.elapsed * 1000)
        if response.history:
            self.to = response.url


class Journal:
    """Writes one line for each outcome that the store has taken."""

    def __init__(
        self,
        log: CrawlLog | None,
        *,
        job: str,
        run: str,
        node: str,
        wall_ms: Callable[[], int],
        drop_params: frozenset[str] = frozenset(),
        tracer: Tracer | None = None,
    ) -> None:
        self._log = log
        self._tracer = tracer
        self._who = (job, run, node)
        self._wall_ms = wall_ms
        self._drop_params = drop_params
        self._attempts: dict[tuple[str, str], Attempt] = {}
        self._skips: OrderedDict[tuple[str, Reason], None] = OrderedDict()

    def settle(self, attempt: Attempt, outcome: Ack | Nack) -> None:
        """An outcome is on its way to the store."""
        if self._log is not None or attempt.marks is not None:
            self._attempts[outcome.id, outcome.token] = attempt

    def acked(self, ack: Ack, kept: bool) -> None:
        """The store has answered; what it did not take is another node's to tell."""
        attempt = self._attempts.pop((ack.id, ack.token), None)
        if attempt is None or not kept:
            return
        self._trace(attempt, ack.reason, ack.error)
        if attempt.request is None and not ack.error:  # an errand of a task: no page
            return
        if ack.error:
            kind = LineKind.FAILED
        elif ack.reason == Reason.DONE:
            kind = LineKind.DONE
        else:
            kind = LineKind.REDIRECTED if ack.reason == Reason.REDIRECTED else LineKind.DROPPED
        error = ack.error or attempt.error
        self._write(attempt, kind, ack.reason, error=error, items=ack.items, links=attempt.links)

    def nacked(self, nack: Nack, result: NackResult) -> None:
        """See `acked`. A request that is given back untouched has no outcome."""
        attempt = self._attempts.pop((nack.id, nack.token), None)
        if attempt is None or result is NackResult.LOST:
            return
        self._trace(attempt, nack.reason, nack.error)
        if result is NackResult.DEAD:
            self._write(attempt, LineKind.FAILED, nack.reason, error=nack.error)
        elif nack.counted:
            wait = nack.backoff_ms
            self._write(attempt, LineKind.RETRY, nack.reason, error=nack.error, wait_ms=wait)

    def skipped(self, request: Request, reason: Reason, text: str) -> None:
        """A link or a seed is not taken. May be called from any thread."""
        known = (request.url, reason)
        if self._log is None or known in self._skips:
            return
        self._skips[known] = None
        if len(self._skips) > KNOWN_SKIPS:
            self._skips.popitem(last=False)
        self._log.write(
            CrawlLine(
                time_text(self._wall_ms()),
                *self._who,
                kind=LineKind.SKIPPED,
                reason=reason,
                id=self._page_of(request),
                url=request.url,
                host=_host(request.url),
                method=request.method,
                parent=request.parent_id,
                depth=request.depth,
                callback=request.callback_name,
                error=text[:LONGEST_ERROR],
            )
        )

    def _trace(self, attempt: Attempt, reason: str, error: str) -> None:
        if self._tracer is None or attempt.marks is None:
            return
        lease, request = attempt.lease, attempt.request
        self._tracer.ended(
            Trace(
                id=lease.id,
                host=lease.host,
                url=request.url if request is not None else "",
                method=request.method if request is not None else "",
                status=attempt.status,
                attempt=lease.retries + 1,
                reason=reason,
                error=error or attempt.error,
                marks=attempt.marks,
            )
        )

    def _write(
        self,
        attempt: Attempt,
        kind: LineKind,
        reason: str,
        *,
        error: str = "",
        items: int = 0,
        links: int = 0,
        wait_ms: int = 0,
    ) -> None:
        if self._log is None:
            return
        lease, request = attempt.lease, attempt.request
        page = self._page_of(request) if request is not None else ""
        to, to_id = self._led_to(attempt.to, request)
        self._log.write(
            CrawlLine(
                time_text(self._wall_ms()),
                *self._who,
                kind=kind,
                reason=reason,
                id=lease.id,
                url=request.url if request is not None else "",
                host=lease.host,
                method=request.method if request is not None else "GET",
                status=attempt.status,
                bytes=attempt.size_bytes,
                ms=attempt.ms,
                parent=request.parent_id if request is not None else "",
                attempt=lease.retries + 1,
                depth=request.depth if request is not None else 0,
                items=items,
                links=links,
                callback=request.callback_name if request is not None else "",
                page=page if page != lease.id else "",
                to=to,
                to_id=to_id if to_id not in (lease.id, page) else "",
                wait_ms=wait_ms,
                proxy=attempt.proxy,
                error=error[:LONGEST_ERROR],
            )
        )

    def _led_to(self, to: Request | str | None, request: Request | None) -> tuple[str, str]:
        if to is None or request is None:
            return "", ""
        target = Request(to) if isinstance(to, str) else to
        return target.url, self._page_of(target)

    def _page_of(self, request: Request) -> str:
        """The id that a request has unless it asks not to be deduplicated."""
        return page_id(request, self._drop_params)


def page_id(request: Request, drop_params: frozenset[str] = frozenset()) -> str:
    """The id under which a request is known; one that cannot be has an id of its text."""
    if request.problem is None:
        try:
            return request_id(fingerprint(request, drop_params))
        except OrbwebError:
            pass
    text = f"{request.method} {request.url}".encode(errors="surrogatepass")
    return blake2b(text, digest_size=8, person=b"no request").hexdigest()


def _host(url: str) -> str:
    try:
        return host_of(url)
    except OrbwebError:
        return ""
