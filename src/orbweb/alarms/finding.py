"""What a look at the fleet finds wrong, and what the conditions of the rules look at. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from orbweb.alarms.facts import Facts, NodeFacts, RunFacts
from orbweb.alarms.past import Past
from orbweb.alarms.rules import Limits


class Finding(NamedTuple):
    """A rule that does not hold for something, at this instant."""

    rule: str
    job: str = ""
    run: str = ""
    subject: str = ""
    """What of the run: a node, a host, a pipeline; empty = the run, or the fleet."""
    value: float = 0.0
    """What was measured, in the unit of the rule's threshold."""
    detail: str = ""
    """The rest, in words of the thing itself: an error's text, a URL."""
    owner: str = ""
    hidden: bool = False
    """Its cause has an alarm of its own: it begins none."""


class View(NamedTuple):
    """What a condition looks at."""

    facts: Facts
    past: Past
    limits: Limits

    @property
    def at_ms(self) -> int:
        return self.facts.at_ms

    @property
    def window_ms(self) -> float:
        return self.limits.window_seconds * 1000


def of_run(run: RunFacts, rule: str, subject: str, value: float, detail: str = "") -> Finding:
    """A finding about a run, or a part of it."""
    return Finding(rule, run.job, run.run, subject, value, detail, run.owner)


def going(facts: Facts) -> Iterator[RunFacts]:
    """Runs that have not ended."""
    return (run for run in facts.runs if not run.done)


def alive(run: RunFacts, most_silent_ms: float) -> list[NodeFacts]:
    """Nodes that spoke lately and have not said good-bye."""
    return [node for node in run.nodes if node.silent_ms < most_silent_ms and not node.ended]
