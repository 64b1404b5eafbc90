"""A node as metrics: from what it says of itself in its heartbeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from orbweb.frontier.admin import node_state
from orbweb.metrics import catalogue as of
from orbweb.metrics.exposition import Exposition
from orbweb.monitor.counts import Counts

SHORT = 12
"""Characters of a node's id that stand in its label: as many as make it unique."""


class Speaker(NamedTuple):
    """Who says it."""

    node: str
    spider: str
    run: str

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.node[:SHORT], self.spider, self.run


def tell_node(text: Exposition, who: Speaker, spoke_at: float, beat: Mapping[str, Any]) -> None:
    """Add a node's metrics; `spoke_at` in seconds since 1970. What it did not say is left out."""
    labels = who.labels
    text.add(of.BEAT, round(spoke_at, 3), *labels)
    place = (str(beat.get("host", "")), str(beat.get("pid", "")))
    text.add(of.NODE_INFO, 1, *labels, *place, node_state(beat))
    text.add(of.NODE_LIMIT, 1, *labels, str(beat.get("limited_by", "")) or "nothing")
    for metric, name in (
        (of.NODE_PAGES, "pages"),
        (of.NODE_ITEMS, "items"),
        (of.NODE_FAILED, "failed"),
        (of.NODE_HELD, "held"),
        (of.NODE_FETCHING, "fetching"),
        (of.CONFIG_VERSION, "config"),
    ):
        if (number := _number(beat.get(name))) is not None:
            text.add(metric, number, *labels)
    _tell_vitals(text, labels, _part(beat, "vitals"))
    for sink, told in _part(beat, "sinks").items():
        seconds = _number(told[0]) if isinstance(told, list) and told else None
        if seconds is not None:
            text.add(of.SINK_WAITING, seconds, *labels, sink)


def _tell_vitals(text: Exposition, labels: tuple[str, str, str], vitals: Mapping[str, Any]) -> None:
    for metric, name, unit in (
        (of.NODE_CPU, "cpu", 0.01),
        (of.NODE_MEMORY, "rss", 1),
        (of.NODE_MEMORY_MAX, "mem_total", 1),
        (of.NODE_RECEIVED, "received", 1),
        (of.NODE_SENT, "sent", 1),
        (of.NODE_DISK, "disk_total", 1),
        (of.NODE_DISK_FREE, "disk_free", 1),
    ):
        if (number := _number(vitals.get(name))) is not None:
            text.add(metric, round(number * unit, 4), *labels)


def _part(beat: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a heartbeat; empty where a node of another version says something else there."""
    found = beat.get(name)
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def tell_counts(text: Exposition, who: Speaker, counts: Counts) -> None:
    """Add what only a node's own target tells: all that it has counted."""
    labels = who.labels
    for metric, numbers in (
        (of.NODE_REQUESTS, counts.outcomes),
        (of.NODE_RETRIES, counts.retried),
        (of.NODE_RESPONSES, counts.statuses),
    ):
        for name, number in sorted(numbers.items()):
            text.add(metric, number, *labels, name)
    text.add_histogram(of.NODE_DOWNLOAD, counts.download, *labels)
    text.add_histogram(of.NODE_SIZE, counts.size, *labels)
    text.add_histogram(of.NODE_WAIT, counts.wait, *labels)
    text.add_histogram(of.NODE_STORE_CALL, counts.store, *labels)
