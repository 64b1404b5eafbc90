"""Which rules do not hold now: from facts and what was seen before to findings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orbweb.alarms import conditions_nodes as nodes
from orbweb.alarms import conditions_runs as runs
from orbweb.alarms.facts import Facts
from orbweb.alarms.finding import Finding, View
from orbweb.alarms.past import Past
from orbweb.alarms.rules import RULES, Limits


def findings(facts: Facts, past: Past, limits: Limits) -> list[Finding]:
    """All that is wrong now. Notes in `past` what the next look needs."""
    past.look(facts.at_ms)
    view = View(facts, past, limits)
    found = []
    for rule, condition in CONDITIONS.items():
        if limits.of(rule) > 0:
            found += list(condition(view, limits.of(rule)))
    return _hide(found)


def _hide(found: list[Finding]) -> list[Finding]:
    there = {(each.rule, each.job, each.run) for each in found}
    whole = {each.rule for each in found if not each.job}
    return [
        each._replace(
            hidden=any(
                cause in whole or (cause, each.job, each.run) in there
                for cause in RULES[each.rule].hidden_by
            )
        )
        for each in found
    ]


Condition = Callable[[View, float], Iterator[Finding]]

CONDITIONS: dict[str, Condition] = {
    "node_silent": nodes.silent,
    "zombie": nodes.zombies,
    "backlog": runs.backlog,
    "no_progress": runs.no_progress,
    "nothing_done": runs.nothing_done,
    "run_lost": runs.lost,
    "schedule_missed": runs.schedule,
    "failure_rate": runs.failures,
    "failed_requests": runs.failed_requests,
    "blocked": runs.blocked,
    "dns_failure": runs.dns,
    "duplicates": runs.duplicates,
    "field_missing": runs.missing,
    "dedup_fill": runs.fill,
    "sink_down": nodes.sink_down,
    "disk_full": nodes.disk,
    "cpu": nodes.cpu,
    "store_memory": runs.memory,
    "consumer_stuck": runs.consumers,
    "config_drift": nodes.drift,
    "source_unreachable": nodes.source,
}
"""What each rule looks for. `store_unreachable` has none: there are no facts then (`outage.py`)."""
