"""What a download gives, and the seam behind which pages are fetched. Values; no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

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


@dataclass(frozen=True, slots=True)
class Redirected:
    """The page is at `target`, at another host or not to be had at once: a request of its own."""

    request: Request
    target: Request


Outcome = Fetched | Dropped | Failed | Again | Redirected


class Meeting(NamedTuple):
    """What one send has met at a host."""

    host: str
    healthy: bool
    """False for timeouts, broken connections, 429 and 5xx, whatever it means for the page."""
    refused: bool = False
    """The answer asks for less (429, 503) without saying for how long."""
    retry_after: float | None = None
    """Seconds for which the answer asks to be left alone."""


class TurnMissed(Exception):
    """The host's turn has passed before the request was sent, and the next one is not at once."""


class Gate(Protocol):
    """Stands between the sends of one request and the host; what it raises ends the download.

    A send is whatever reaches a host: the page, each redirect, robots.txt, and what the client
    sends again because a kept connection was closed. A gate is used by one send at a time.
    """

    async def ready(self) -> None:
        """Wait until it is worth connecting for the next send."""

    async def enter(self) -> None:
        """Awaited when the connection is there, right before the first byte.

        Returns at the very time. Raises `TurnMissed` when that is not soon: begin with `ready`.
        """

    def sent(self) -> None:
        """Told right after the head has been written, with no wait in between."""

    async def met(self, meeting: Meeting) -> None:
        """Told when the answer has come, or the send has failed."""

    async def crawl_delay(self, host: str, seconds: float) -> None:
        """Told what robots.txt asks for, before anything else is sent; 0 for nothing."""

    def elsewhere(self, host: str) -> Gate:
        """The gate for one send to a host that is not the request's."""


class Downloader(Protocol):
    """Sends one request and reads one answer.

    Redirects are answers like any other: who calls follows them.
    """

    async def fetch(self, request: Request, gate: Gate | None = None) -> Response:
        """Give the answer with its whole body, whatever its status.

        Each time that the request is about to be sent it enters the gate, right before the first
        byte; what that raises passes through, and nothing is sent.
        Raises `DownloadError`, `ResponseTooLargeError` and `ContentTypeRejectedError`.
        """

    async def close(self) -> None:
        """Close the connections. May be called twice."""
