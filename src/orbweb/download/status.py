"""Which statuses are pages, which are worth another try, and how long the site asks to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from orbweb.download.base import Failed
from orbweb.errors import HttpStatusError
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response

_RETRY_AFTER_STATUSES = frozenset({429, 503})


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
        wait = self._wait(response) if retry else None
        if wait is not None and wait > self.retry_after_max:
            error.args = (
                f"{error}: Retry-After of {wait:.0f} s is longer than RETRY_AFTER_MAX "
                f"({self.retry_after_max:.0f} s)",
            )
            retry, wait = False, None
        return Failed(request, Reason.STATUS_REJECTED, error, retry, wait, response)

    def pause(self, response: Response) -> float | None:
        """Seconds for which the host is to be left alone, as a 429 or a 503 asks for it.

        At most `retry_after_max`; None when nothing is asked for.
        """
        wait = self._wait(response)
        return None if wait is None else min(wait, self.retry_after_max)

    def _wait(self, response: Response) -> float | None:
        value = response.headers.get("retry-after")
        asks = response.status_code in _RETRY_AFTER_STATUSES
        if value is None or not asks or self.retry_after_max <= 0:
            return None
        return retry_after_seconds(value, response.headers.get("date"), self.wall_clock)


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
