"""What is kept of an origin's robots.txt: one value, and its form in the store."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from orbweb.model.reasons import Reason

_VERSION = b"1"
_REASONS = frozenset(Reason)
_ORIGIN = re.compile(r"(https?)://([^/?#]*@)?([^/?#]+)", re.ASCII | re.IGNORECASE)


def origin_of(url: str) -> str | None:
    """Under which name a URL's origin has its entry; None for what has no robots.txt."""
    found = _ORIGIN.match(url)
    return None if found is None else f"{found[1]}://{found[3]}".lower()


class EntryKind(StrEnum):
    """What is known of an origin's robots.txt; the letter is its form in the store."""

    ALLOW = "A"
    RULES = "R"
    UNREACHABLE = "U"


class RobotsEntry(NamedTuple):
    """The answer of one fetch: the file itself for `RULES`, why for `UNREACHABLE`."""

    kind: EntryKind
    body: bytes = b""

    @classmethod
    def of_failure(cls, reason: Reason, text: str) -> RobotsEntry:
        """The file cannot be had now. A `reason` other than that tells what is wrong with a host
        that nobody can connect to."""
        return cls(EntryKind.UNREACHABLE, f"{reason}\n{text}".encode("utf-8", "replace"))

    @property
    def failure(self) -> tuple[Reason, str]:
        """Why the file of an `UNREACHABLE` one cannot be had, as a word and for people."""
        whole = self.body.decode("utf-8", "replace")
        first, _, text = whole.partition("\n")
        return (Reason(first), text) if first in _REASONS else (Reason.ROBOTS_UNREACHABLE, whole)

    def encode(self) -> bytes:
        """The form in the store: a version, the kind, the body."""
        return _VERSION + self.kind.encode() + self.body

    @classmethod
    def decode(cls, stored: bytes) -> RobotsEntry | None:
        """None for what another version wrote: it is fetched again."""
        kind = stored[1:2].decode("latin-1")
        if stored[:1] != _VERSION or kind not in tuple(EntryKind):
            return None
        return cls(EntryKind(kind), stored[2:])
