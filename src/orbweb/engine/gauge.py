"""The gauge: what a node can say of its work at any moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from orbweb.download.proxies import ProxyPool
from orbweb.engine.answers import Answers
from orbweb.engine.knobs import Knobs
from orbweb.engine.options import EngineOptions
from orbweb.engine.pump import Pump
from orbweb.engine.report import Progress
from orbweb.engine.session import Session
from orbweb.engine.stats import Stats
from orbweb.monitor.counts import Counts
from orbweb.pipelines.buffer import ItemBuffer

RATE_SECONDS = 10.0

STUCK_SECONDS = 2.0
"""When nothing was sampled for so long, the event loop stands still."""

MOST_HOSTS = 10
"""Hosts without a proxy that a beat names."""

MOST_BYTES = 4000
"""Length of a beat. What is too much is left out of its counts, the most numerous names first."""

TOLD_NAMES = 20
"""Names of one kind (reasons, fields of an item) that a beat tells of: the most frequent ones."""


@dataclass(frozen=True, slots=True)
class Dials:
    """What the gauge reads."""

    options: EngineOptions
    knobs: Knobs
    stats: Stats
    pump: Pump
    session: Session
    buffer: ItemBuffer
    place: Mapping[str, str | int]
    vitals: Callable[[], Mapping[str, Any]]
    counted: Callable[[], Counts]
    """All that the node has counted."""
    is_seeding: Callable[[], bool]
    seeding_waits: Callable[[], bool]
    is_stopping: Callable[[], bool]
    answers: Answers
    source_error: Callable[[], str]
    """Why the source of tasks does not answer now."""
    proxies: ProxyPool | None = None
    config: Callable[[], Mapping[str, str | int]] = dict
    """What the node says of its live values."""


class Gauge:
    """Reads the engine's parts; `sample` is called at every tick of the engine's loop."""

    def __init__(self, dials: Dials, clock: Callable[[], float]) -> None:
        self._words = b""
        self._ended = False
        self._dials = dials
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self) -> None:
        """Remember how far the node has come, and describe it."""
        now = self._clock()
        self._samples.append((now, self._dials.stats.get("request_ok")))
        while now - self._samples[0][0] > RATE_SECONDS:
            self._samples.popleft()
        self._words = self._describe()

    def last_words(self) -> bytes:
        """The last description of the node, for its heartbeat. Any thread may ask.

        When the event loop stands still, it says for how long (`stuck`, in seconds).
        """
        words = self._words
        stuck = self._clock() - self._samples[-1][0] if self._samples else 0.0
        if stuck < STUCK_SECONDS or not words:
            return words
        return words[:-1] + f', "stuck": {stuck:.1f}}}'.encode()

    def goodbye(self) -> bytes:
        """The description of a node that ends of its own will; no other follows it."""
        self._ended = True
        self._words = self._describe()
        return self._words

    def progress(self) -> Progress:
        """A snapshot for the progress line."""
        dials, counts = self._dials, self._dials.stats
        return Progress(
            elapsed_seconds=counts.elapsed,
            pages=counts.get("request_ok"),
            pages_per_second=self._rate(),
            items=counts.get("item"),
            failed=counts.get("request_failed"),
            retried=counts.get("retry"),
            skipped={name: count for name, count in counts.reasons.items() if name != "done"},
            pending=dials.pump.answer.pending,
            held=dials.pump.held,
            fetching=dials.pump.fetching,
            seeding=dials.is_seeding(),
            seeding_waits=dials.seeding_waits(),
            limited_by=self._limited_by(),
        )

    def _describe(self) -> bytes:
        dials, counts = self._dials, self._dials.stats.as_dict()
        beat = {
            **dials.place,
            "spider": dials.options.spider,
            "elapsed": round(dials.stats.elapsed, 1),
            "pages": counts["request_ok"],
            "failed": counts["request_failed"],
            "items": counts["item"],
            "held": dials.pump.held,
            "fetching": dials.pump.fetching,
            "rate": round(self._rate(), 2),
            "limited_by": self._limited_by(),
            "stopping": dials.is_stopping(),
            "ended": self._ended,
            "lost": dials.stats.counts.lost,
            "sinks": dials.buffer.waits(),
            "tasks_error": dials.source_error(),
            **dials.answers.told(),
            **dials.config(),
            "vitals": dials.vitals(),
            **self._of_proxies(),
        }
        return with_counts(beat, dials.counted())

    def _of_proxies(self) -> dict[str, object]:
        pool = self._dials.proxies
        if pool is None or not pool.is_on:
            return {}
        return {"proxies": pool.counts(), "no_proxy": pool.waiting()[:MOST_HOSTS]}

    def _rate(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (began, before), (now, pages) = self._samples[0], self._samples[-1]
        return (pages - before) / (now - began) if now > began else 0.0

    def _limited_by(self) -> str:
        dials = self._dials
        pump, answer = dials.pump, dials.pump.answer
        if dials.session.outage_since is not None:
            return "store"
        if pump.saturated or dials.buffer.full:
            return "sink"
        if dials.proxies is not None and dials.proxies.is_short:
            return "proxies"
        if pump.fetching >= dials.knobs.concurrency:
            return "concurrency"
        if answer.pending - pump.held > dials.is_seeding():
            return "hosts"
        return "seeding" if dials.is_seeding() else "nothing"


def with_counts(beat: dict[str, Any], counts: Counts) -> bytes:
    """A beat as JSON with as much of the counts as fits; the store has all of them."""
    told = msgspec.to_builtins(counts)
    for name in ("looked", "filled"):
        told.pop(name, None)
    told["missing"] = {
        f"{table}.{field}": number
        for table, fields in counts.missing().items()
        for field, number in fields.items()
    }
    for name in ("outcomes", "retried", "missing"):
        told[name] = _most(told.get(name, {}))
    text = msgspec.json.encode({**beat, "counts": told})
    for name in ("missing", "items", "outcomes", "retried"):
        if len(text) <= MOST_BYTES:
            break
        told.pop(name, None)
        text = msgspec.json.encode({**beat, "counts": told})
    return text


def _most(numbers: dict[str, int]) -> dict[str, int]:
    return dict(sorted(numbers.items(), key=lambda pair: -pair[1])[:TOLD_NAMES])
