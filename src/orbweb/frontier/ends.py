"""How a run of several shards ends, and a task in it; what the run looks like as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from orbweb.frontier.base import RunState, Status, TaskLook

SUMMED = (
    *("pending", "queued", "leased", "delayed", "dead", "hosts", "items"),
    *("retried", "reaped", "fenced", "repaired", "away", "version", "tasks"),
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
    if looked[0].state is not state or any(each.pending or each.tasks for each in looked):
        return False
    if again is None:
        return True
    return not any(each.pending or each.tasks for each in again) and [
        each.version for each in looked
    ] == [each.version for each in again]


def is_over(looked: Sequence[TaskLook], again: Sequence[TaskLook]) -> bool:
    """Whether nothing is left of a task, by two looks at all shards, for the same reason.

    What entered between the two looks at a shard has changed its `moved` there.
    """
    return not any(each.open for each in (*looked, *again)) and [each.moved for each in looked] == [
        each.moved for each in again
    ]


def first_fault(looked: Sequence[TaskLook]) -> str:
    """Why a task has failed: the reason of its first dead letter; empty when it has none."""
    faults = [each.fault.partition("\n") for each in looked if each.fault]
    return min(faults, key=lambda fault: int(fault[0]))[2] if faults else ""


def merged(looked: Sequence[Status]) -> Status:
    """The run as a whole: sums, and from shard 0 what only it knows."""
    reasons: Counter[str] = Counter()
    for each in looked:
        reasons.update(each.reasons)
    sums = {name: sum(getattr(each, name) for each in looked) for name in SUMMED}
    return replace(looked[0], reasons=dict(reasons), **sums)
