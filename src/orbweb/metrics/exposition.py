"""The text format of Prometheus: declared metrics, samples of them, and the text.

The format is that of "Prometheus text-based exposition format 0.0.4". A client library would bring
a registry of counters that live in this process; what is told here lives in the store, so all that
would be used of it is this page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

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


class Exposition:
    """Gathers samples and writes them as text, each metric in one block."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._metrics: dict[str, Metric] = {}

    @property
    def names(self) -> list[str]:
        """Metrics of which there is a sample."""
        return list(self._metrics)

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """One sample; `labels` are the values of the metric's labels, in their order."""
        pairs = list(zip(metric.labels, labels, strict=True))
        self._write(metric, metric.name, pairs, value)

    def add_histogram(self, metric: Metric, histogram: Histogram, *labels: str) -> None:
        """A histogram: how many were at most so large, for each bound; their sum and number."""
        pairs = list(zip(metric.labels, labels, strict=True))
        classes = histogram.classes or [0] * (len(metric.bounds) + 1)
        below = 0
        for bound, number in zip((*metric.bounds, math.inf), classes, strict=True):
            below += number
            self._write(
                metric, f"{metric.name}_bucket", [*pairs, ("le", number_text(bound))], below
            )
        self._write(metric, f"{metric.name}_sum", pairs, histogram.sum)
        self._write(metric, f"{metric.name}_count", pairs, below)

    def text(self) -> str:
        """All of it, in the order in which metrics were first added."""
        parts: list[str] = []
        for name, metric in self._metrics.items():
            parts += [f"# HELP {name} {_escaped(metric.text)}", f"# TYPE {name} {metric.kind}"]
            parts += self._lines[name]
        return "\n".join(parts) + "\n"

    def _write(
        self, metric: Metric, name: str, pairs: Sequence[tuple[str, str]], value: float
    ) -> None:
        if metric.name not in self._metrics:
            self._metrics[metric.name] = metric
            self._lines[metric.name] = []
        inside = ",".join(f'{label}="{_quoted(text)}"' for label, text in pairs)
        labels = f"{{{inside}}}" if inside else ""
        self._lines[metric.name].append(f"{name}{labels} {number_text(value)}")


def number_text(value: float) -> str:
    """A number as the format has it: whole numbers without a point, `+Inf` for no end."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
