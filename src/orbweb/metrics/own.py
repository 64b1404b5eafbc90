"""What a node tells of itself where others do not ask the store: its metrics, as it is now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from orbweb.frontier.admin import read_beat
from orbweb.metrics.exporter import tell_version
from orbweb.metrics.exposition import Exposition
from orbweb.metrics.node import Speaker, tell_counts, tell_node
from orbweb.monitor.counts import Counts


@dataclass(frozen=True, slots=True)
class OtelOptions:
    """Where and how much to send."""

    endpoint: str
    """Such as http://127.0.0.1:4318; `/v1/metrics` and `/v1/traces` are appended."""
    headers: Mapping[str, str]
    interval_seconds: float
    """Between two tellings of the metrics."""
    ratio: float
    """Part of the attempts that are traced: 0 none, 1 all."""
    attributes: Mapping[str, str]
    """What is told of the node itself, with everything."""


def node_metrics(who: Speaker, beat: bytes, counts: Counts) -> Exposition:
    """A node's metrics, as it is now."""
    text = Exposition()
    tell_version(text)
    tell_node(text, who, time.time(), read_beat(beat))
    tell_counts(text, who, counts)
    return text
