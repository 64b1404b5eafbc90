"""The text format of Prometheus: declared metrics, samples of them, and the text.

The format is that of "Prometheus text-based exposition format 0.0.4". A client library would bring
a registry of counters that live in this process; what is told here lives in the store, so all that
would be used of it is this page.
"""

from __future__ import annotations

import math
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


class Sample(NamedTuple):
    """One number."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float

    def line(self) -> str:
        """As it stands in the text."""
        inside = ",".join(f'{label}="{_quoted(text)}"' for label, text in self.labels)
        labels = f"{{{inside}}}" if inside else ""
        return f"{self.name}{labels} {number_text(self.value)}"


class Exposition:
    """Gathers samples and writes them as text, each metric in one block."""

    def __init__(self) -> None:
        self._samples: dict[Metric, list[Sample]] = {}

    @property
    def names(self) -> list[str]:
        """Metrics of which there is a sample."""
        return [metric.name for metric in self._samples]

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """One sample; `labels` are the values of the metric's labels, in their order."""
        pairs = tuple(zip(metric.labels, labels, strict=True))
        self._add(metric, Sample(metric.name, pairs, value))

    def add_histogram(self, metric: Metric, histogram: Histogram, *labels: str) -> None:
        """A histogram: how many were at most so large, for each bound; their sum and number."""
        name, pairs = metric.name, tuple(zip(metric.labels, labels, strict=True))
        classes = histogram.classes or [0] * (len(metric.bounds) + 1)
        below = 0
        for bound, number in zip((*metric.bounds, math.inf), classes, strict=True):
            below += number
            within = (*pairs, ("le", number_text(bound)))
            self._add(metric, Sample(f"{name}_bucket", within, below))
        self._add(metric, Sample(f"{name}_sum", pairs, histogram.sum))
        self._add(metric, Sample(f"{name}_count", pairs, below))

    def text(self) -> str:
        """All of it, in the order in which metrics were first added."""
        lines: list[str] = []
        for metric, samples in self._samples.items():
            lines.append(f"# HELP {metric.name} {_escaped(metric.text)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines += [sample.line() for sample in samples]
        return "\n".join(lines) + "\n"

    def records(self) -> list[dict[str, Any]]:
        """The same as plain values, for JSON."""
        return [
            {"name": name, "kind": str(metric.kind), "labels": dict(labels), "value": value}
            for metric, samples in self._samples.items()
            for name, labels, value in samples
        ]

    def _add(self, metric: Metric, sample: Sample) -> None:
        self._samples.setdefault(metric, []).append(sample)


def number_text(value: float) -> str:
    """A number as the format has it: whole numbers without a point, `+Inf` for no end."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
