"""The text format of Prometheus: declared metrics, samples of them, and the text.

The format is that of "Prometheus text-based exposition format 0.0.4". A client library would bring
a registry of counters that live in this process; what is told here lives in the store, so all that
would be used of it is this page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from orbweb.monitor.counts import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Kind(StrEnum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: declared once, in `catalogue.py`."""

    name: str
    kind: Kind
    text: str
    """One sentence: what it counts or measures."""
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Of a histogram: upper bounds of its classes."""


Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One number, as a line of the text."""

    name: str
    labels: Labels
    value: float

    def line(self) -> str:
        """As it stands in the text."""
        inside = ",".join(f'{label}="{_quoted(text)}"' for label, text in self.labels)
        labels = f"{{{inside}}}" if inside else ""
        return f"{self.name}{labels} {number_text(self.value)}"


class Exposition:
    """Gathers what is told of metrics, and writes it as text, each metric in one block."""

    def __init__(self) -> None:
        self.points: dict[Metric, list[tuple[Labels, float | Histogram]]] = {}
        """What is told of each metric: labels with their values, and a number or a histogram."""

    @property
    def names(self) -> list[str]:
        """Metrics of which something is told."""
        return [metric.name for metric in self.points]

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """One number; `labels` are the values of the metric's labels, in their order."""
        self._add(metric, labels, value)

    def add_histogram(self, metric: Metric, histogram: Histogram, *labels: str) -> None:
        """A histogram with the metric's bounds."""
        self._add(metric, labels, histogram)

    def text(self) -> str:
        """All of it, in the order in which metrics were first added."""
        lines: list[str] = []
        for metric in self.points:
            lines.append(f"# HELP {metric.name} {_escaped(metric.text)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines += [sample.line() for sample in self._samples(metric)]
        return "\n".join(lines) + "\n"

    def records(self) -> list[dict[str, Any]]:
        """The same as plain values, for JSON."""
        return [
            {"name": name, "kind": str(metric.kind), "labels": dict(labels), "value": value}
            for metric in self.points
            for name, labels, value in self._samples(metric)
        ]

    def _add(self, metric: Metric, labels: tuple[str, ...], point: float | Histogram) -> None:
        pairs = tuple(zip(metric.labels, labels, strict=True))
        self.points.setdefault(metric, []).append((pairs, point))

    def _samples(self, metric: Metric) -> Iterator[Sample]:
        for labels, point in self.points[metric]:
            if isinstance(point, Histogram):
                yield from _histogram(metric, labels, point)
            else:
                yield Sample(metric.name, labels, point)


def _histogram(metric: Metric, labels: Labels, histogram: Histogram) -> Iterator[Sample]:
    """How many were at most so large, for each bound; their sum and number."""
    name, below = metric.name, 0
    bounds = (*metric.bounds, math.inf)
    for bound, number in zip(bounds, histogram.padded(len(bounds)), strict=True):
        below += number
        yield Sample(f"{name}_bucket", (*labels, ("le", number_text(bound))), below)
    yield Sample(f"{name}_sum", labels, histogram.sum)
    yield Sample(f"{name}_count", labels, below)


def number_text(value: float) -> str:
    """A number as the format has it: whole numbers without a point, `+Inf` for no end."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
