"""Counts of one node, under the names that NetSpy gave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from orbweb.frontier.base import Ack, Nack, NackResult
from orbweb.model.reasons import Reason
from orbweb.monitor.counts import Counts

KEYS = (
    "request_ok",
    "request_failed",
    "retry",
    "parse_error",
    "dedup_dropped",
    "dropped",
    "robots_dropped",
    "content_type_dropped",
    "item",
    "item_dedup_dropped",
    "item_failed",
    "dedup_degraded",
)
_NO_PAGES = frozenset({Reason.REDIRECTED, Reason.TASK_STARTED, Reason.TASK_TOLD})
_DROPPED = {
    Reason.ROBOTS_DISALLOWED: "robots_dropped",
    Reason.CONTENT_TYPE: "content_type_dropped",
}


class Stats:
    """Counters by name. `incr`, `get` and `as_dict` are for users; the rest for the engine."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: Counter[str] = Counter(dict.fromkeys(KEYS, 0))
        self._started = clock()
        self.counts = Counts()
        """What nodes add up to the totals of the run."""

    @property
    def reasons(self) -> Counter[str]:
        """How requests ended on this node, and why links were not taken."""
        return Counter(self.counts.outcomes)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    def incr(self, key: str, count: int = 1) -> None:
        """Add to a counter, known or of your own."""
        self._counts[key] += count

    def get(self, key: str) -> int:
        """The value of a counter; 0 when nothing was counted."""
        return self._counts[key]

    def as_dict(self) -> dict[str, int]:
        """A copy of all counters."""
        return dict(self._counts)

    def summary(self) -> str:
        """One line for people: every counter that is not zero."""
        shown = [f"{key}={value}" for key, value in self._counts.items() if value]
        return " ".join(shown) or "nothing was done"

    def as_summary_dict(self) -> dict[str, float | int]:
        """The counters as NetSpy's summary line names them."""
        counts = self.as_dict()
        elapsed = self.elapsed
        rate = counts["request_ok"] / elapsed if elapsed > 0 else 0.0
        named = {"items" if key == "item" else key: counts[key] for key in KEYS}
        return {"elapsed": round(elapsed, 3), **named, "rate": round(rate, 2)}

    def skipped(self, reason: Reason, count: int = 1) -> None:
        """Links or seeds that were not taken."""
        self.counts.ended(reason, count)
        self.incr("dropped", count)

    def acked(self, ack: Ack) -> None:
        """A request that this node has finished."""
        self.counts.ended(ack.reason)
        self.incr("item", ack.items)
        for reason, count in ack.skipped:
            self.skipped(Reason(reason), count)
        if ack.error:
            self.gave_up(ack.reason)
        elif ack.reason == Reason.DONE:
            self.incr("request_ok")
        elif ack.reason not in _NO_PAGES:
            self.incr(_DROPPED.get(Reason(ack.reason), "dropped"))

    def nacked(self, nack: Nack, result: NackResult) -> None:
        """A request that this node has given back."""
        if result is NackResult.DEAD:
            self.counts.ended(nack.reason)
            self.gave_up(nack.reason)
        elif result is NackResult.REQUEUED and nack.counted:
            self.counts.again(nack.reason)
            self.incr("retry")

    def lost(self) -> None:
        """Another node has taken over a lease of this one."""
        self.counts.lost += 1
        self.incr("lease_lost")

    def gave_up(self, reason: str) -> None:
        """A request that became a dead letter."""
        self.incr("request_failed")
        if reason == Reason.CALLBACK_ERROR:
            self.incr("parse_error")
