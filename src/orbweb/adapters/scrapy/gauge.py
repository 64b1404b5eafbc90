"""What a worker says of itself with each sign of life; `orbweb nodes` shows it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from orbweb.frontier.base import Ack
from orbweb.model.reasons import Reason
from orbweb.monitor.vitals import VitalSigns

RATE_SECONDS = 10.0


class Gauge:
    """Counts what was finished. Written in the crawl's loop, read by the room's thread."""

    def __init__(self, spider: str, traffic: Callable[[], tuple[int, int]]) -> None:
        """`traffic`: bytes received and sent so far."""
        self.pulse = 0
        """Grows as long as the crawl's loop moves."""
        self._spider = spider
        self._place = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": int(time.time()),
        }
        self._vitals = VitalSigns(traffic, Path.cwd())
        self._began = time.monotonic()
        self._pages = 0
        self._failed = 0
        self._items = 0
        self._samples: deque[tuple[float, int]] = deque()

    def acked(self, ack: Ack) -> None:
        """A request was finished."""
        self._items += ack.items
        self._failed += bool(ack.error)
        self._pages += ack.reason == Reason.DONE and not ack.error

    def describe(self, held: int, fetching: int, *, stopping: bool) -> bytes:
        """The worker in a few words, as JSON."""
        now = time.monotonic()
        self._samples.append((now, self._pages))
        while now - self._samples[0][0] > RATE_SECONDS and len(self._samples) > 2:
            self._samples.popleft()
        (began, before), (_, pages) = self._samples[0], self._samples[-1]
        said = {
            **self._place,
            "spider": self._spider,
            "elapsed": round(now - self._began, 1),
            "pages": self._pages,
            "failed": self._failed,
            "items": self._items,
            "held": held,
            "fetching": fetching,
            "rate": round((pages - before) / (now - began), 2) if now > began else 0.0,
            "limited_by": "",
            "stopping": stopping,
            "vitals": self._vitals.read(),
        }
        return json.dumps(said).encode()
