"""What a download gives, and the seam behind which pages are fetched. Values; no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orbweb.errors import RequestError
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response


class DownloadError(RequestError):
    """A request got no usable answer: `reason` says why, `retry` whether another try may help."""

    def __init__(self, reason: Reason, text: str, *, retry: bool | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.retry = reason.retryable if retry is None else retry


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page that passed the status policy; `response` is None for `auto_request=False`.

    `response.history` lists the URLs that redirected, first one first.
    """

    request: Request
    response: Response | None


@dataclass(frozen=True, slots=True)
class Dropped:
    """The request is finished without a page, by a rule and not by a failure."""

    request: Request
    reason: Reason
    error: Exception


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed. `str(error)` says what happened, for the log and the dead letter.

    `retry_after` is the wait that the site asked for, in seconds; None leaves it to the backoff.
    `response` is the answer that was refused, if there was one.
    """

    request: Request
    reason: Reason
    error: Exception
    retry: bool
    retry_after: float | None = None
    response: Response | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """A middleware asks for another try, with this request; it costs one retry."""

    request: Request


Outcome = Fetched | Dropped | Failed | Again


class Downloader(Protocol):
    """Sends one request and reads one answer.

    Redirects are answers like any other: who calls follows them.
    """

    async def fetch(self, request: Request) -> Response:
        """Give the answer with its whole body, whatever its status.

        Raises `DownloadError`, `ResponseTooLargeError` and `ContentTypeRejectedError`.
        """

    async def close(self) -> None:
        """Close the connections. May be called twice."""
