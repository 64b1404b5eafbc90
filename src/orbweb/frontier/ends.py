"""How a run of several shards ends, and what it looks like as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from orbweb.frontier.base import RunState, Status

SUMMED = (
    *("pending", "queued", "leased", "delayed", "dead", "hosts", "items"),
    *("retried", "reaped", "fenced", "repaired", "away", "version"),
)
"""Counts of which every shard has a part. `seeds` and all else are known in shard 0 alone."""


def ending(
    looked: Sequence[Status],
    again: Sequence[Status] | None = None,
    *,
    state: RunState = RunState.RUNNING,
) -> bool:
    """Whether the run may be over, by one look at its shards; with two, whether it is.

    The shards are looked at one after the other, so one look may miss a request that goes from one
    that is looked at late to one that was looked at early. Two looks miss nothing: if all shards
    are empty in both, and in none has anything entered between its two looks, then all were empty
    at one instant between the first look and the second, and what is pending nowhere can add
    nothing (F. Mattern, Algorithms for distributed termination detection, 1987).
    """
    if looked[0].state is not state or any(each.pending for each in looked):
        return False
    if again is None:
        return True
    return not any(each.pending for each in again) and [each.version for each in looked] == [
        each.version for each in again
    ]


def merged(looked: Sequence[Status]) -> Status:
    """The run as a whole: sums, and from shard 0 what only it knows."""
    reasons: Counter[str] = Counter()
    for each in looked:
        reasons.update(each.reasons)
    sums = {name: sum(getattr(each, name) for each in looked) for name in SUMMED}
    return replace(looked[0], reasons=dict(reasons), **sums)
