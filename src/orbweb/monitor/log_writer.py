"""Writes the crawl log of one node on a thread, so that neither disk nor compression slows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO

from orbweb.log import get_logger
from orbweb.monitor.crawl_line import CrawlLine, encode_line
from orbweb.monitor.log_folder import LogFolder

FLUSH_SECONDS = 0.2
"""Lines wait so long for others; they are what a SIGKILL loses."""

TIDY_SECONDS = 60.0

MOST_WAITING = 100_000
"""Lines that may wait for a slow disk; what comes beyond is counted and lost."""

BATCH = 5000

log = get_logger("orbweb.log")


class CrawlLogWriter:
    """See `CrawlLog`. Begin with `start`, end with `close`, which writes what is left.

    What is written is in the system's cache at once, so only a power cut or the loss of the machine
    takes it back. A disk that is full or gone costs lines, never the crawl: they are counted in
    `lost`, and said once each time that it begins and once when it is over.
    """

    def __init__(
        self,
        folder: LogFolder,
        job: str,
        node: str,
        *,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self.lost = 0
        """Lines that were not written."""
        self._folder = folder
        self._job = job
        self._node = node
        self._wall_ms = wall_ms
        self._queue: SimpleQueue[CrawlLine | None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orbweb-crawl-log", daemon=True)
        self._live: tuple[Path, BinaryIO] | None = None
        self._size = 0
        self._begun_ms = 0
        self._tidied_ms: int | None = None
        self._failing = False
        self._overflowing = False
        self._said_lost = 0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def write(self, line: CrawlLine) -> None:
        """See `CrawlLog`."""
        if self._queue.qsize() < MOST_WAITING:
            self._queue.put(line)
            return
        self.lost += 1
        if not self._overflowing:
            self._overflowing = True
            log.warning("the crawl log cannot be written as fast as it grows: lines are left out")

    def close(self) -> None:
        """Write what waits and pack the segment. May be called twice."""
        self._closing.set()
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        if self.lost > self._said_lost:
            self._said_lost = self.lost
            log.warning("%d lines of the crawl log were lost", self.lost)

    # -- on the thread

    def _run(self) -> None:
        while not self._closing.is_set():
            lines = self._gather()
            if lines:
                self._put(lines)
            self._care()
        while lines := self._waiting():
            self._put(lines)
        self._rotate()
        self._try(lambda: self._folder.tidy(self._wall_ms()))

    def _gather(self) -> list[CrawlLine]:
        """Wait for a line, then for those that follow at once."""
        try:
            first = self._queue.get(timeout=TIDY_SECONDS)
        except Empty:
            return []
        self._closing.wait(FLUSH_SECONDS)
        return ([] if first is None else [first]) + self._waiting()

    def _waiting(self) -> list[CrawlLine]:
        lines: list[CrawlLine] = []
        while len(lines) < BATCH:
            try:
                line = self._queue.get_nowait()
            except Empty:
                self._overflowing = False
                break
            if line is not None:
                lines.append(line)
        return lines

    def _put(self, lines: Sequence[CrawlLine]) -> None:
        text = b"".join(map(encode_line, lines))
        if not self._try(lambda: self._append(text)):
            self.lost += len(lines)
        elif self._failing:
            self._failing = False
            self._said_lost = self.lost
            log.warning("the crawl log is written again; %d lines were lost", self.lost)

    def _append(self, text: bytes) -> None:
        if self._live is None:
            self._begun_ms = self._wall_ms()
            self._live = self._folder.begin(self._job, self._node, self._begun_ms)
            self._size = 0
        file = self._live[1]
        written = 0
        try:
            while written < len(text):
                written += file.write(text[written:]) or 0
        except OSError:
            file.truncate(self._size)  # half a batch would end in half a line
            raise
        self._size += written

    def _care(self) -> None:
        """Begin another segment when this one is large or old; clear away old ones at times."""
        now, keeping = self._wall_ms(), self._folder.keeping
        too_large = 0 < keeping.segment_bytes <= self._size
        too_old = 0 < keeping.segment_seconds * 1000 <= now - self._begun_ms
        if self._live is not None and (too_large or too_old):
            self._rotate()
        if self._tidied_ms is None or now - self._tidied_ms >= TIDY_SECONDS * 1000:
            self._tidied_ms = now
            self._try(lambda: self._folder.tidy(now))

    def _rotate(self) -> None:
        if self._live is None:
            return
        path, file = self._live
        self._live = None
        self._try(lambda: self._folder.pack(path))
        file.close()

    def _try(self, act: Callable[[], None]) -> bool:
        """Whether an act on the disk went well. What a disk can do is no reason to end a crawl."""
        try:
            act()
        except OSError as error:
            if not self._failing:
                self._failing = True
                log.warning("the crawl log in %s cannot be written: %s", self._folder.path, error)
            return False
        return True
