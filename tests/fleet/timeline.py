"""Virtual time: one heap of events, in milliseconds with fractions."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class Timeline:
    """The clock of a simulated fleet; `run` jumps from event to event."""

    def __init__(self, start_ms: float = 1_000_000.0) -> None:
        self.now = start_ms
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()

    def at(self, when: float, act: Callable[..., None], *args: Any) -> None:
        """Call `act(*args)` at `when`, or now if that has passed."""
        heapq.heappush(self._events, (max(when, self.now), next(self._order), act, args))

    def after(self, ms: float, act: Callable[..., None], *args: Any) -> None:
        self.at(self.now + ms, act, *args)

    def run(self, until: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Run until `stop()` or the time; `stop` is asked after each event."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, act, args = heapq.heappop(events)
            act(*args)
            if stop():
                return
        self.now = max(self.now, until)
