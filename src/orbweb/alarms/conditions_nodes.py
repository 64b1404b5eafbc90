"""Conditions of rules about nodes, their machines and what they depend on. Pure.

Each takes the limit of its rule, in its unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from orbweb.alarms.facts import NodeFacts, number_of
from orbweb.alarms.finding import Finding, View, alive, going, of_run
from orbweb.alarms.past import FOUND

GIVEN_UP_MS = 86_400_000
"""A node that has been silent for longer is no longer told of."""

LEAD = 0.15
"""Most of a limit by which a silence may be found before it."""

NO_SPACE = ("Errno 28", "No space left", "disk is full", "DiskFull")
"""What errors of a full disk say."""


def silent(view: View, limit: float) -> Iterator[Finding]:
    """A node that has not spoken, unless another one has taken its place.

    The limit is when people know: it is found so much earlier as it takes to tell them.
    """
    limit -= min(view.limits.telling_seconds, LEAD * limit)
    watched_ms = view.at_ms - view.past.watched_since_ms
    for run in going(view.facts):
        gone = [node for node in run.nodes if not node.ended and _is_silent(node, view, limit)]
        for node in _not_replaced(gone, run.nodes):
            seconds = min(node.silent_ms, watched_ms) / 1000
            yield of_run(run, "node_silent", node.node[:8], seconds, node.place)


def _not_replaced(gone: list[NodeFacts], nodes: tuple[NodeFacts, ...]) -> list[NodeFacts]:
    """Those for which no node has begun since they fell silent, each standing for one.

    By how long nodes have been at work, not by their clocks: nodes that were started together
    stand for nobody.
    """
    left = sorted(gone, key=lambda node: node.silent_ms)
    for starter in sorted(nodes, key=lambda node: node.age_ms):
        for node in left:
            if node is not starter and node.silent_ms > starter.age_ms:
                left.remove(node)
                break
    return left


def _is_silent(node: NodeFacts, view: View, limit: float) -> bool:
    """Silence counts only while somebody listened, but what was found silent once stays so."""
    seen_ms = view.at_ms - view.past.watched_since_ms
    name = f"{FOUND} {node.node}"
    known = name in view.past.series and node.silent_ms >= limit * 1000
    silent = known or min(node.silent_ms, seen_ms) >= limit * 1000
    if silent:
        view.past.unchanged_ms(name, view.at_ms, 1.0)
    elif view.past.series.pop(name, None):
        view.past.unchanged_ms(f"woken {node.node}", view.at_ms, view.at_ms)
    return silent and node.silent_ms < GIVEN_UP_MS


def zombies(view: View, limit: float) -> Iterator[Finding]:
    """A node that speaks, but whose work stands still or is lost."""
    for run in going(view.facts):
        for node in run.nodes:
            if node.ended or node.silent_ms > GIVEN_UP_MS:
                continue
            stuck = node.number("stuck")
            if stuck >= limit:
                detail = f"{node.place}: the event loop stands still"
                yield of_run(run, "zombie", node.node[:8], stuck, detail)
                continue
            name = f"lost {node.node}"
            (lost,) = view.past.grown(name, view.at_ms, [node.number("lost")], 5 * view.window_ms)
            (late,) = view.past.grown(f"{name} now", view.at_ms, [node.number("lost")], limit * 500)
            if lost > late > 0:  # again and again, not once as after a stop of the process
                detail = f"{node.place}: {lost:.0f} leases lost to other nodes"
                yield of_run(run, "zombie", node.node[:8], limit, detail)


def cpu(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        for node in alive(run, 60_000):
            cpu = _vital(node, "cpu") / 100
            if cpu > limit:
                yield of_run(run, "cpu", node.node[:8], cpu, node.place)


def disk(view: View, limit: float) -> Iterator[Finding]:
    """By machine: its nodes see the same disk. A write that found no room counts too."""
    for run in going(view.facts):
        told = set()
        for node in alive(run, 60_000):
            machine = str(node.said.get("host", "?"))
            total, free = _vital(node, "disk_total"), _vital(node, "disk_free")
            used = 1 - free / total if total else 0.0
            full = next((error for _, _, error in _sinks(node) if _is_full(error)), "")
            if machine not in told and (used >= limit or full):
                told.add(machine)
                detail = full or f"{free / 2**30:.1f} GiB free"
                yield of_run(run, "disk_full", machine, max(used, limit), detail)


def _is_full(error: str) -> bool:
    return any(words in error for words in NO_SPACE)


def _vital(node: NodeFacts, name: str) -> float:
    vitals = node.said.get("vitals")
    value = vitals.get(name, 0) if isinstance(vitals, dict) else 0
    return number_of(value)


def _sinks(node: NodeFacts) -> Iterator[tuple[str, float, str]]:
    """Pipelines with a batch that is not stored: name, seconds, error."""
    sinks = node.said.get("sinks")
    for name, told in sinks.items() if isinstance(sinks, dict) else ():
        if isinstance(told, list) and len(told) == 2:
            yield str(name), number_of(told[0]), str(told[1])


def sink_down(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        worst: dict[str, tuple[float, str]] = {}
        for node in alive(run, 60_000):
            woken = view.past.series.get(f"woken {node.node}")
            if woken and view.at_ms - woken[-1][0] < limit * 1000:
                continue  # what stood still was the node
            for name, seconds, error in _sinks(node):
                worst[name] = max(worst.get(name, (0.0, "")), (seconds, error))
        for name, (seconds, error) in worst.items():
            if seconds >= limit:
                yield of_run(run, "sink_down", name, seconds, error)


def drift(view: View, limit: float) -> Iterator[Finding]:
    newest = view.facts.config_version
    for run in going(view.facts):
        for node in alive(run, 60_000):
            if "config" not in node.said:
                continue
            version = node.number("config")
            name = f"drift {node.node}"
            if version >= newest:
                view.past.series.pop(name, None)
                continue
            late = view.past.unchanged_ms(name, view.at_ms, newest) / 1000
            if late >= limit:
                detail = f"{node.place}: {version:.0f} < {newest}"
                yield of_run(run, "config_drift", node.node[:8], late, detail)


def source(view: View, limit: float) -> Iterator[Finding]:
    """A source of live values, or of tasks, that nodes cannot reach."""
    for run in going(view.facts):
        for what in ("config", "tasks"):
            errors = [str(node.said.get(f"{what}_error") or "") for node in alive(run, 60_000)]
            error = next((text for text in errors if text), "")
            name = f"source {what} {run.job}:{run.run}"
            if not error:
                view.past.series.pop(name, None)
                continue
            away = view.past.unchanged_ms(name, view.at_ms, 1.0) / 1000
            if away >= limit:
                yield of_run(run, "source_unreachable", what, away, error)
