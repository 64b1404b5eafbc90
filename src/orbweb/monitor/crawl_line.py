"""One line of the crawl log: what came of one attempt at a request, or of a link not taken."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from orbweb.log import writable


class LineKind(StrEnum):
    """What a line is about."""

    DONE = "done"
    """The page was crawled and its items are stored."""
    REDIRECTED = "redirected"
    """It leads to another host, where the page is a request of its own."""
    RETRY = "retry"
    """The attempt failed, another one follows."""
    FAILED = "failed"
    """The request was given up and is kept (`orbweb failed`)."""
    DROPPED = "dropped"
    """The request has ended by a rule, without a page: robots.txt, content type, validate()."""
    SKIPPED = "skipped"
    """A link or a seed that never became a request."""


class CrawlLine(msgspec.Struct, omit_defaults=True, frozen=True, gc=False):
    """What is known of one outcome. Empty fields are left out of the file."""

    time: str
    """UTC, ISO 8601, milliseconds: lines sort by it as text."""
    job: str
    run: str
    node: str
    kind: str
    reason: str
    id: str
    """Of the request; of a URL that cannot be a request, of its text."""
    url: str
    host: str = ""
    method: str = "GET"
    status: int = 0
    """Of the last answer; 0 when there was none."""
    bytes: int = 0
    """Of its body, decompressed."""
    ms: int = 0
    """From sending the request until the body was there; until it failed, when there was none."""
    parent: str = ""
    """Id of the request on whose page it was found; empty for a seed."""
    attempt: int = 1
    depth: int = 0
    items: int = 0
    """Stored in every pipeline."""
    links: int = 0
    """Found on the page and sent to the frontier, known ones among them."""
    callback: str = ""
    page: str = ""
    """The id that the URL itself stands for, where the request has another (`filter_repeat`)."""
    to: str = ""
    """Where a redirect led."""
    to_id: str = ""
    wait_ms: int = 0
    """How long the next attempt waits, of kind `retry`."""
    proxy: str = ""
    """Through which the answer came: host and port, without user and password."""
    error: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """All ids under which the line is looked for."""
        return tuple(key for key in (self.id, self.page, self.to_id) if key)


class CrawlLog(Protocol):
    """Where lines go. Neither waits nor raises: a log never holds up a crawl."""

    def write(self, line: CrawlLine) -> None:
        """Take a line; may be called from any thread."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CrawlLine).decode


def encode_line(line: CrawlLine) -> bytes:
    """The line as JSON, its end included. See `writable` for what is no Unicode."""
    try:
        return _encode(line) + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, in a URL that a page made up
        fields: dict[str, Any] = msgspec.structs.asdict(line)
        texts = {name: writable(v) for name, v in fields.items() if isinstance(v, str)}
        return _encode(msgspec.structs.replace(line, **texts)) + b"\n"


def decode_line(text: bytes) -> CrawlLine | None:
    """None for what is no line: the last one before a power cut may be half there."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def time_text(at_ms: int) -> str:
    """Milliseconds since 1970 as `2026-11-30T22:31:07.123Z`."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


def time_ms(text: str) -> int:
    """The opposite of `time_text`. Raises `ValueError`."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@lru_cache(maxsize=4)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
