"""Which failures have the same cause: by reason, error, line of the spider, and host. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

MOST_CAUSES = 2000
"""When there are more causes, those of further hosts count together, whatever the host."""

ANY_HOST = "*"
"""Stands for the hosts that count together."""

_PLACE = re.compile(r" \((\S+:\d+) in (\S+)\)$")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>)]+", re.IGNORECASE)
_NUMBER = re.compile(r"\b(?=\w*\d)[0-9a-f]{8,}\b|0x[0-9a-f]+|\d{4,}|\d+\.\d+", re.IGNORECASE)


class Cause(NamedTuple):
    """What failures have in common."""

    reason: str
    error: str
    """The first line of the error without what differs from page to page: addresses, numbers."""
    place: str
    """The line of the spider, as `shop.py:31 in parse`; empty when none raised it."""
    host: str

    @property
    def id(self) -> str:
        """A short name that is the same wherever and whenever the cause is met."""
        return blake2b("\n".join(self).encode(), digest_size=4).hexdigest()


@dataclass(slots=True)
class Group:
    """How often a cause was met, and when (wall ms)."""

    cause: Cause
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, at_ms: int) -> None:
        self.first_ms = min(self.first_ms or at_ms, at_ms)
        self.last_ms = max(self.last_ms, at_ms)
        self.count += 1


@lru_cache(maxsize=4096)
def cause_of(reason: str, error: str, host: str) -> Cause:
    """The cause of one failure. Short numbers, such as a status, make another cause."""
    found = _PLACE.search(error)
    place = f"{found[1]} in {found[2]}" if found else ""
    first = (error[: found.start()] if found else error).partition("\n")[0]
    plain = _NUMBER.sub("N", _URL.sub("URL", first)).removesuffix(" for URL")
    return Cause(reason, plain.removeprefix("URL: "), place, host)


class Groups:
    """Causes with their counts, in memory that does not grow with the number of failures."""

    def __init__(self, most: int = MOST_CAUSES) -> None:
        self._most = most
        self._by_cause: dict[Cause, Group] = {}

    def add(self, cause: Cause, at_ms: int) -> tuple[Group, bool]:
        """Count a failure; tells its group, and whether it is the first one there."""
        group = self._by_cause.get(cause)
        if group is None and len(self._by_cause) >= self._most:
            cause = cause._replace(error="other errors", place="", host=ANY_HOST)
            group = self._by_cause.get(cause)
        is_new = group is None
        if group is None:
            group = self._by_cause[cause] = Group(cause)
        group.add(at_ms)
        return group, is_new

    def largest_first(self) -> list[Group]:
        return sorted(self._by_cause.values(), key=lambda group: (-group.count, group.cause))
