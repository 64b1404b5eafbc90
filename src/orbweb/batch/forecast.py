"""How far a batch is, and when it will have come to its end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from orbweb.sources.base import TaskCounts

WINDOW_MS = 600_000
"""The speed is that of the last ten minutes."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """A batch at one instant. Times are milliseconds since 1970."""

    counts: TaskCounts
    per_second: float
    """Rows that came to an end, of late."""
    ends_ms: int | None
    """When it will have ended at this speed; None while that is not to be said."""


class Forecast:
    """Counts of one batch as they come, and what they let expect."""

    def __init__(self, opened_ms: int) -> None:
        self._seen = deque([(opened_ms, 0)])

    def look(self, now_ms: int, counts: TaskCounts) -> Outlook:
        """Take in the counts of now, and say what is to be expected."""
        self._seen.append((now_ms, counts.settled))
        while len(self._seen) > 2 and self._seen[1][0] <= now_ms - WINDOW_MS:
            self._seen.popleft()
        then_ms, settled = self._seen[0]
        passed_ms = now_ms - then_ms
        speed = max(0, counts.settled - settled) / passed_ms if passed_ms > 0 else 0.0
        left = counts.total - counts.settled
        if not left:
            return Outlook(counts, speed * 1000, now_ms)
        return Outlook(counts, speed * 1000, now_ms + round(left / speed) if speed else None)
