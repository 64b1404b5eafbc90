"""The folder of a crawl log: names of its segments, who writes which, and how much is kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import quote, unquote

from orbweb.log import get_logger
from orbweb.monitor.crawl_line import time_text
from orbweb.monitor.log_pack import pack

if sys.platform != "win32":  # there every process clears away only what is its own
    import fcntl

LIVE, PACKED = ".jsonl", ".jsonl.zst"

log = get_logger("orbweb.log")


class Segment(NamedTuple):
    """One file: lines of one node from its beginning on."""

    path: Path
    job: str
    begun: str
    """When, as lines tell the time, without punctuation: names sort by it."""
    packed: bool

    @property
    def name(self) -> str:
        """Without its ending: the same before and after packing."""
        return self.path.name.removesuffix(PACKED).removesuffix(LIVE)


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long segments live. 0 = no limit."""

    segment_bytes: int = 50 * 2**20
    segment_seconds: float = 86_400.0
    total_bytes: int = 5 * 2**30
    """Of the folder; the oldest segments go first."""
    total_seconds: float = 10 * 86_400.0


class LogFolder:
    """Segments of all nodes that write here, which may be processes of several jobs.

    A live segment is locked by its writer, so whoever can lock one knows that its writer is gone.
    All calls may raise `OSError`.
    """

    def __init__(self, path: Path, keeping: Keeping | None = None) -> None:
        self.path = path
        self.keeping = keeping or Keeping()

    def segments(self, job: str | None = None) -> list[Segment]:
        """Of a job, or all; by their beginning. One that is just being packed appears once."""
        found: dict[str, Segment] = {}
        with suppress(FileNotFoundError):
            for entry in os.scandir(self.path):
                segment = segment_of(Path(entry.path))
                if segment and job in (None, segment.job):
                    known = found.get(segment.name)
                    if known is None or segment.packed:
                        found[segment.name] = segment
        return sorted(found.values(), key=lambda segment: (segment.begun, segment.name))

    def begin(self, job: str, node: str, at_ms: int) -> tuple[Path, BinaryIO]:
        """A new live segment, locked."""
        self.path.mkdir(parents=True, exist_ok=True)
        begun = _compact(time_text(at_ms))
        path = self.path / f"{quote(job, safe='')}~{begun}~{node[:8]}{LIVE}"
        file = path.open("ab", buffering=0)
        _lock(file)
        return path, file

    def pack(self, path: Path) -> None:
        """Pack a live segment that is not written any more; an empty one goes."""
        if path.stat().st_size:
            pack(path, path.with_name(path.name.removesuffix(LIVE) + PACKED))
        path.unlink(missing_ok=True)

    def tidy(self, at_ms: int) -> None:
        """Pack what dead writers have left, then remove what is too much or too old."""
        for path in self._abandoned():
            self.pack(path)
        total = 0
        oldest = at_ms / 1000 - self.keeping.total_seconds
        for segment in reversed(self.segments()):
            if not segment.packed:
                continue
            with suppress(FileNotFoundError):
                facts = segment.path.stat()
                total += facts.st_size
                too_much = 0 < self.keeping.total_bytes < total
                if too_much or (self.keeping.total_seconds and facts.st_mtime < oldest):
                    segment.path.unlink()

    def _abandoned(self) -> Iterator[Path]:
        """Live segments without a writer, each locked until the next one is asked for."""
        if sys.platform == "win32":
            return
        for path in sorted(self.path.glob(f"*{LIVE}")):
            with suppress(FileNotFoundError), path.open("rb") as file:
                if segment_of(path) and _lock(file) and path.exists():
                    yield path


def segment_of(path: Path) -> Segment | None:
    """The segment that a file is, by its name; None for other files."""
    for ending, packed in ((PACKED, True), (LIVE, False)):
        if path.name.endswith(ending) and not path.name.startswith("."):
            parts = path.name.removesuffix(ending).split("~")
            if len(parts) == 3:
                return Segment(path, unquote(parts[0]), parts[1], packed)
    return None


def _compact(time: str) -> str:
    return time.translate(str.maketrans("", "", "-:."))


def _lock(file: BinaryIO) -> bool:
    """True when nobody else holds the file. The lock ends with the process, however it ends."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
