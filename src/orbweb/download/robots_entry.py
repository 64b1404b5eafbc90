"""What is kept of an origin's robots.txt: one value, and its form in the store."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

_VERSION = b"1"
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
    """The answer of one fetch: the file itself for `RULES`, the error's text for `UNREACHABLE`."""

    kind: EntryKind
    body: bytes = b""

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
