"""Which statuses are pages, which are worth another try, and how long the site asks to wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from orbweb.download.base import Failed, Meeting
from orbweb.errors import HttpStatusError
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response

_TOO_MANY = 429
_RETRY_AFTER_STATUSES = frozenset({_TOO_MANY, 503})


@dataclass(frozen=True, slots=True)
class StatusPolicy:
    """2xx and 3xx are pages; `retry` statuses are tried again; all others end the request."""

    check: bool = True
    """False: every status is a page."""
    retry: frozenset[int] = frozenset({408, 429, 500, 502, 503, 504, 522, 524})
    accept: frozenset[int] = frozenset()
    """Further statuses that are pages; wins over `retry`."""
    retry_after_max: float = 3600.0
    """Longest Retry-After that is waited for, in seconds; 0 = the header is ignored.

    A longer one ends the request: coming back earlier than asked would not be polite.
    """
    wall_clock: Callable[[], float] = time.time
    """Seconds since 1970; used only for a Retry-After date in an answer without a Date header."""

    def refusal(self, request: Request, response: Response) -> Failed | None:
        """None for a page, else how the attempt failed."""
        status = response.status_code
        if 200 <= status < 400 or not self.check or status in self.accept:
            return None
        error = HttpStatusError(status, response.url)
        retry = status in self.retry
        wait = self._wait(status, response.headers) if retry else None
        if wait is not None and wait > self.retry_after_max:
            error.args = (
                f"{error}: Retry-After of {wait:.0f} s is longer than RETRY_AFTER_MAX "
                f"({self.retry_after_max:.0f} s)",
            )
            retry, wait = False, None
        return Failed(request, Reason.STATUS_REJECTED, error, retry, wait, response)

    def meeting(self, host: str, status: int, headers: Mapping[str, str]) -> Meeting:
        """What an answer says of its host; a wait that it asks for is cut to `retry_after_max`.

        `headers` finds a name in whatever case it is written.
        """
        wait = self._wait(status, headers)
        return Meeting(
            host,
            healthy=status < 500 and status != _TOO_MANY,
            refused=status in _RETRY_AFTER_STATUSES and wait is None,
            retry_after=None if wait is None else min(wait, self.retry_after_max),
        )

    def _wait(self, status: int, headers: Mapping[str, str]) -> float | None:
        value = headers.get("retry-after")
        asks = status in _RETRY_AFTER_STATUSES
        if value is None or not asks or self.retry_after_max <= 0:
            return None
        return retry_after_seconds(value, headers.get("date"), self.wall_clock)


def retry_after_seconds(
    value: str, date: str | None, wall_clock: Callable[[], float] = time.time
) -> float | None:
    """Seconds to wait, from either form of Retry-After (RFC 9110, 10.2.3); None if unreadable.

    A date is read against the server's own `date`, so clocks that disagree do no harm.
    """
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:12])
    until = _timestamp(value)
    if until is None:
        return None
    now = _timestamp(date) if date else None
    return max(0.0, until - (wall_clock() if now is None else now))


def _timestamp(value: str) -> float | None:
    try:
        parsed: datetime = parsedate_to_datetime(value)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
