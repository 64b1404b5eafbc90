"""Reads a crawl log: what is known of an id, the latest lines first, and lines as they come."""

from __future__ import annotations

import heapq
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orbweb.monitor.crawl_line import CrawlLine, decode_line
from orbweb.monitor.log_folder import LogFolder, Segment
from orbweb.monitor.log_pack import PackedLog

KEY_FIELDS = (b"id", b"page", b"to_id")
POLL_SECONDS = 0.2

Wanted = Callable[[CrawlLine], bool]


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Which lines are wanted: those that fit every part that is given."""

    job: str | None = None
    run: str | None = None
    node: str | None = None
    """Beginning of its name."""
    url: str | None = None
    """Part of it; with `*`, which stands for any text, a pattern for the whole."""
    host: str | None = None
    """It, or a domain above it."""
    status: str | None = None
    """`404`, or `5xx`."""
    reasons: frozenset[str] = frozenset()
    """Reasons or kinds of lines."""
    since: str = ""
    until: str = ""
    """Times as lines have them; empty = no limit."""

    def fits(self, line: CrawlLine) -> bool:
        return (
            self.job in (None, line.job)
            and self.run in (None, line.run)
            and (self.node is None or line.node.startswith(self.node))
            and (not self.reasons or line.reason in self.reasons or line.kind in self.reasons)
            and (self.status is None or _is_status(line.status, self.status))
            and (self.host is None or _is_host(line.host, self.host))
            and (self.url is None or _is_url(line.url, self.url))
            and line.time >= self.since
            and (not self.until or line.time < self.until)
        )


class LogReader:
    """Reads the segments of a folder, packed and live, whoever writes them meanwhile."""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder

    def find(self, key: str, job: str | None = None) -> list[CrawlLine]:
        """All lines under an id, in the order of their time.

        Packed segments are asked by their index, live ones are searched as a whole; the time taken
        grows with the number of segments, not with that of lines.
        """
        found: list[CrawlLine] = []
        for segment in self._folder.segments(job):
            with suppress(FileNotFoundError, ValueError):
                texts = _packed(segment, key) if segment.packed else _live(segment, key)
                found += (line for line in map(decode_line, texts) if line and key in line.keys)
        return sorted(found, key=lambda line: line.time)

    def backwards(self, wanted: LineFilter) -> Iterator[CrawlLine]:
        """The lines that fit, the latest first. Segments are opened when their time has come."""
        ends = [(_end_of(segment), segment) for segment in self._folder.segments(wanted.job)]
        waiting = sorted(end for end in ends if end[0] >= wanted.since)
        heap: list[tuple[_Later, int, CrawlLine, Iterator[CrawlLine]]] = []
        count = 0
        while waiting or heap:
            while waiting and (not heap or waiting[-1][0] >= heap[0][2].time):
                lines = _backwards(waiting.pop()[1])
                count += 1
                _push(heap, count, lines)
            if not heap:
                continue
            _, number, line, lines = heapq.heappop(heap)
            if line.time < wanted.since:
                continue
            if wanted.fits(line):
                yield line
            _push(heap, number, lines)

    def follow(
        self, wanted: LineFilter, *, pause: Callable[[float], None] = time.sleep
    ) -> Iterator[CrawlLine]:
        """Lines that fit, as they are written from now on; without end."""
        tails: dict[str, _Tail] = {}
        try:
            yield from self._follow(tails, wanted, pause)
        finally:
            for tail in tails.values():
                tail.close()

    def _follow(
        self, tails: dict[str, _Tail], wanted: LineFilter, pause: Callable[[float], None]
    ) -> Iterator[CrawlLine]:
        known: set[str] | None = None
        while True:
            segments = {each.name: each for each in self._folder.segments(wanted.job)}
            new = [each for name, each in segments.items() if known is None or name not in known]
            lines: list[CrawlLine] = []
            for segment in new:
                with suppress(FileNotFoundError):
                    if not segment.packed:
                        tails[segment.name] = _Tail(segment.path, at_end=known is None)
                    elif known is not None:  # it came and was packed since the last look
                        lines += _backwards(segment)
            known = {*segments}
            lines += [line for tail in tails.values() for line in tail.read()]
            for name in [name for name in tails if name not in segments or segments[name].packed]:
                lines += tails.pop(name).close()
            lines.sort(key=lambda line: line.time)
            yield from filter(wanted.fits, lines)
            pause(POLL_SECONDS)


class _Tail:
    """The end of a live segment; what is open is read to its end, also when it is removed."""

    def __init__(self, path: Path, *, at_end: bool) -> None:
        self._file = path.open("rb")
        self._rest = b""
        if at_end:
            self._file.seek(0, os.SEEK_END)

    def read(self) -> list[CrawlLine]:
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        return list(filter(None, map(decode_line, whole)))

    def close(self) -> list[CrawlLine]:
        last = self.read()
        self._file.close()
        return last


class _Later:
    """Orders the heap: later times first."""

    __slots__ = ("time",)

    def __init__(self, at: str) -> None:
        self.time = at

    def __lt__(self, other: _Later) -> bool:
        return self.time > other.time


def _push(
    heap: list[tuple[_Later, int, CrawlLine, Iterator[CrawlLine]]],
    number: int,
    lines: Iterator[CrawlLine],
) -> None:
    line = next(lines, None)
    if line is not None:
        heapq.heappush(heap, (_Later(line.time), number, line, lines))


def _packed(segment: Segment, key: str) -> list[bytes]:
    with PackedLog(segment.path) as packed:
        return [text for number in packed.frames_of(key) for text in packed.frame(number)]


def _live(segment: Segment, key: str) -> list[bytes]:
    """Lines that name the key in one of its fields. Children, which name it as parent, do not."""
    found: dict[int, bytes] = {}
    text = segment.path.read_bytes()  # bytes are searched far faster than a map of the file
    word = f'":"{key}"'.encode()
    at = text.find(word)
    while at >= 0:
        start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        if end < 0:
            break
        if text[text.rfind(b'"', start, at) + 1 : at] in KEY_FIELDS:
            found[start] = text[start:end]
        at = text.find(word, at + len(word))
    return list(found.values())


def _backwards(segment: Segment) -> Iterator[CrawlLine]:
    with suppress(FileNotFoundError, ValueError):
        if not segment.packed:
            texts = segment.path.read_bytes().splitlines()
            yield from filter(None, map(decode_line, reversed(texts)))
            return
        with PackedLog(segment.path) as packed:
            yield from filter(None, map(decode_line, packed.backwards()))


def _end_of(segment: Segment) -> str:
    """A time that no line of the segment is later than; live ones have no end yet."""
    if not segment.packed:
        return "~"
    with suppress(FileNotFoundError):
        return time.strftime("%Y-%m-%dT%H:%M:%S~", time.gmtime(segment.path.stat().st_mtime))
    return ""


def _is_status(status: int, wanted: str) -> bool:
    return re.fullmatch(wanted.lower().replace("x", r"\d"), str(status)) is not None


def _is_host(host: str, wanted: str) -> bool:
    return host == wanted or host.endswith(f".{wanted}") or host.partition(":")[0] == wanted


def _is_url(url: str, wanted: str) -> bool:
    if "*" in wanted:
        return re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), url) is not None
    return wanted in url
