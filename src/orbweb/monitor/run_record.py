"""What is kept of a run for longer than the run itself: how it was made, and what it came to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from orbweb.monitor.crawl_line import CrawlLine, LineKind

MOST_HOSTS = 200
"""Hosts that a node counts by name; the others are counted together."""

OTHERS = "(others)"

T = TypeVar("T")

_COUNTED = frozenset(LineKind) - {LineKind.SKIPPED}


class Code(msgspec.Struct, frozen=True, omit_defaults=True):
    """The code of a spider. What is not known is empty."""

    file: str = ""
    """As `orbweb run` names it."""
    digest: str = ""
    """Of the spider's file, see `code_version`."""
    commit: str = ""


class RunMade(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run was made with. Values are those that are not the defaults, secrets masked."""

    run: str
    spider: str
    version: str
    """Of this package."""
    code: Code = Code()
    settings: dict[str, str] = {}
    """What the node's own files, environment and command line said."""
    live: dict[str, str] = {}
    """What live values said instead."""

    @property
    def held(self) -> dict[str, str]:
        """By name what held when it was made."""
        return {**self.settings, **self.live}


class RunFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run had come to when a node left it."""

    state: str
    why: str = ""
    started_at_ms: int = 0
    ended_at_ms: int = 0
    pages: int = 0
    items: int = 0
    failed: int = 0
    retried: int = 0
    reasons: dict[str, int] = {}
    outputs: tuple[str, ...] = ()


class HostCount(msgspec.Struct, omit_defaults=True):
    """What came of the requests at one host."""

    pages: int = 0
    items: int = 0
    failed: int = 0


class PageTally(msgspec.Struct, omit_defaults=True):
    """Counts of outcomes; those of nodes add up to those of the run."""

    hosts: dict[str, HostCount] = {}
    statuses: dict[str, int] = {}
    """By status code. Attempts without an answer have none."""

    def see(self, line: CrawlLine) -> None:
        """Count an outcome. Links that were not taken have none."""
        if line.kind not in _COUNTED:
            return
        if line.status:
            code = str(line.status)
            self.statuses[code] = self.statuses.get(code, 0) + 1
        if line.kind in (LineKind.DONE, LineKind.FAILED):
            host = self._host(line.host)
            host.pages += line.kind == LineKind.DONE
            host.failed += line.kind == LineKind.FAILED
            host.items += line.items

    def add(self, other: PageTally) -> None:
        """Add what another node has counted."""
        for code, count in other.statuses.items():
            self.statuses[code] = self.statuses.get(code, 0) + count
        for name, host in other.hosts.items():
            mine = self._host(name)
            mine.pages += host.pages
            mine.items += host.items
            mine.failed += host.failed

    @property
    def classes(self) -> dict[str, int]:
        """Answers by the class of their status: `2xx` and so on."""
        found: dict[str, int] = {}
        for code, count in sorted(self.statuses.items()):
            name = f"{code[:1]}xx"
            found[name] = found.get(name, 0) + count
        return found

    def _host(self, name: str) -> HostCount:
        if name not in self.hosts and len(self.hosts) >= MOST_HOSTS:
            name = OTHERS
        return self.hosts.setdefault(name, HostCount())


def total_pages(counts: Iterable[bytes]) -> PageTally:
    """The sum of what nodes have said; what another version wrote is left out."""
    tally = PageTally()
    for each in counts:
        if (one := read_as(PageTally, each)) is not None:
            tally.add(one)
    return tally


def written(record: RunMade | RunFigures | PageTally) -> bytes:
    """The record as it is kept in the store."""
    return msgspec.json.encode(record)


def read_as(kind: type[T], text: bytes) -> T | None:
    """A record of this kind; None for what another version wrote."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None
