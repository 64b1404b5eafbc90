"""Which rules do not hold now: from facts and what was seen before to findings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from orbweb.alarms.facts import Facts, NodeFacts, RunFacts, number_of
from orbweb.alarms.finding import Finding, View, alive, going, of_run
from orbweb.alarms.past import FOUND, Past
from orbweb.alarms.rules import RULES, Limits

LEAST_REFUSED = 5
"""So many refused answers, or names that are not found, make a rate worth a word."""

LEAST_CHECKED = 100
"""Items below which their repetitions say nothing."""

GIVEN_UP_MS = 86_400_000
"""A node that has been silent for longer is no longer told of."""

START_SLACK_MS = 2000
"""Nodes say when they started in whole seconds of their own clock."""

LEAD = 0.15
"""Most of a limit by which a silence may be found before it."""

NO_SPACE = ("Errno 28", "No space left", "disk is full", "DiskFull")
"""What errors of a full disk say."""


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


# -- nodes


def _silent(view: View, limit: float) -> Iterator[Finding]:
    """A node that has not spoken, unless another one has taken its place.

    The limit is when people know: it is found so much earlier as it takes to tell them.
    """
    limit -= min(view.limits.telling_seconds, LEAD * limit)
    watched_ms = view.at_ms - view.past.watched_since_ms
    for run in going(view.facts):
        gone = [node for node in run.nodes if not node.ended and _is_silent(node, view, limit)]
        for node in _not_replaced(gone, run.nodes, view.at_ms):
            silent = min(node.silent_ms, watched_ms) / 1000
            yield of_run(run, "node_silent", node.node[:8], silent, node.place)


def _not_replaced(
    gone: list[NodeFacts], nodes: tuple[NodeFacts, ...], at_ms: int
) -> list[NodeFacts]:
    """Those for which no node has started since they fell silent, each standing for one."""
    left = sorted(gone, key=lambda node: node.silent_ms)
    for starter in sorted(nodes, key=lambda node: -node.number("started")):
        age_ms = at_ms - starter.number("started") * 1000
        for node in left:
            if node is not starter and node.silent_ms > age_ms - START_SLACK_MS:
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
    else:
        view.past.series.pop(name, None)
    return silent and node.silent_ms < GIVEN_UP_MS


def _zombies(view: View, limit: float) -> Iterator[Finding]:
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


def _cpu(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        for node in alive(run, 60_000):
            cpu = _vital(node, "cpu") / 100
            if cpu > limit:
                yield of_run(run, "cpu", node.node[:8], cpu, node.place)


def _disk(view: View, limit: float) -> Iterator[Finding]:
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


def _sink_down(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        worst: dict[str, tuple[float, str]] = {}
        for node in alive(run, 60_000):
            for name, seconds, error in _sinks(node):
                worst[name] = max(worst.get(name, (0.0, "")), (seconds, error))
        for name, (seconds, error) in worst.items():
            if seconds >= limit:
                yield of_run(run, "sink_down", name, seconds, error)


# -- runs


def _backlog(view: View, limit: float) -> Iterator[Finding]:
    """Too much waits, and more than some minutes ago."""
    hold_ms = view.limits.holds["backlog"] * 1000
    for run in going(view.facts):
        before = view.past.note(
            f"backlog {run.job}:{run.run}", view.at_ms, [run.waiting], max(hold_ms, 60_000)
        )
        if run.waiting > limit and run.waiting > before[0]:
            yield of_run(run, "backlog", "", run.waiting, f"+{run.waiting - before[0]:.0f}")


def _no_progress(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        name = f"pages {run.job}:{run.run}:{run.epoch}"
        idle = run.paused or run.stopping or not run.waiting + run.leased
        if idle or not alive(run, 60_000):
            view.past.series.pop(name, None)
            continue
        stood = view.past.unchanged_ms(name, view.at_ms, run.pages) / 1000
        if stood >= limit:
            whys = Counter(str(node.said.get("limited_by", "?")) for node in run.nodes)
            yield of_run(run, "no_progress", "", stood, whys.most_common(1)[0][0])


def _failures(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        counts = [run.pages, run.dead, run.retried]
        name = f"ends {run.job}:{run.run}:{run.epoch}"
        pages, dead, retried = view.past.grown(
            name, view.at_ms, counts, 5 * view.window_ms, run.started_at_ms
        )
        total = pages + dead + retried
        if total >= view.limits.least_requests and (dead + retried) / total > limit:
            rate = (dead + retried) / total
            yield of_run(run, "failure_rate", "", rate, f"{dead + retried:.0f} / {total:.0f}")


def _failed_requests(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        if run.dead >= limit:
            yield of_run(run, "failed_requests", "", run.dead)


def _blocked(view: View, limit: float) -> Iterator[Finding]:
    """By host, over all nodes: answers that refuse us."""
    for run in going(view.facts):
        hosts: Counter[str] = Counter()
        answers: Counter[str] = Counter()
        for node in alive(run, 60_000):
            told = node.said.get("refused")
            for host, pair in told.items() if isinstance(told, dict) else ():
                if not isinstance(pair, list | tuple) or len(pair) != 2:
                    continue
                name = f"refused {node.node} {host}"
                counts = [number_of(count) for count in pair]
                born = view.at_ms - node.age_ms
                new, total = view.past.grown(name, view.at_ms, counts, view.window_ms, born)
                hosts[host] += int(new)
                answers[host] += int(total)
        for host, refused in hosts.items():
            if refused >= LEAST_REFUSED and refused / answers[host] > limit:
                detail = f"{refused} / {answers[host]}"
                yield of_run(run, "blocked", host, refused / answers[host], detail)


def _dns(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        failed = total = 0.0
        host = ""
        for node in alive(run, 60_000):
            counts = [node.number("dns"), node.number("attempts")]
            name = f"dns {node.node}"
            born = view.at_ms - node.age_ms
            new, attempts = view.past.grown(name, view.at_ms, counts, view.window_ms, born)
            failed, total = failed + new, total + attempts
            host = str(node.said.get("dns_host", "")) or host
        if failed >= LEAST_REFUSED and failed / total > limit:
            yield of_run(
                run, "dns_failure", "", failed / total, f"{host}: {failed:.0f} / {total:.0f}"
            )


def _nothing_done(view: View, limit: float) -> Iterator[Finding]:
    """By job: its latest run has no page or far fewer items, or a start found its run finished."""
    told: set[str] = set()
    latest: dict[str, RunFacts] = {}
    for run in sorted(view.facts.runs, key=lambda run: -run.started_at_ms):
        if run.done or run.pages:
            latest.setdefault(run.job, run)
    for run in latest.values():
        recent = view.at_ms - run.finished_at_ms < limit * 1000
        if run.done and recent and (run.few or not run.pages):
            told.add(run.job)
            yield Finding("nothing_done", run.job, "", "", run.pages, run.few, run.owner)
    for idle in view.facts.idle:
        later = latest.get(idle.job)
        over = later is not None and later.started_at_ms > idle.at_ms
        if idle.job not in told and not over and view.at_ms - idle.at_ms < limit * 1000:
            told.add(idle.job)
            yield Finding("nothing_done", idle.job, "", "", 0, f"run {idle.run or '(default)'}")


def _schedule(view: View, limit: float) -> Iterator[Finding]:
    for each in view.facts.schedules:
        late = (view.at_ms - each.due_ms) / 1000
        if each.due_ms and late >= limit:
            away = (view.at_ms - each.told_ms) / 1000 > max(60.0, limit)
            cause = "no master" if away else each.cause or "not opened"
            yield Finding("schedule_missed", each.job, "", "", late, cause)


def _duplicates(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        if run.checked >= LEAST_CHECKED and run.duplicates > limit:
            yield of_run(run, "duplicates", "", run.duplicates, f"{run.checked}")


def _missing(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        for text in run.missing:
            yield of_run(run, "field_missing", text.partition(":")[0], 0, text)


def _fill(view: View, limit: float) -> Iterator[Finding]:
    for run in view.facts.runs:
        if run.fill >= limit:
            yield of_run(run, "dedup_fill", "", run.fill)


# -- what concerns no run


def _memory(view: View, limit: float) -> Iterator[Finding]:
    most = view.facts.max_memory
    if most and view.facts.used_memory / most >= limit:
        used = view.facts.used_memory / most
        yield Finding("store_memory", value=used, detail=f"{most / 2**20:.0f} MiB")


def _consumers(view: View, limit: float) -> Iterator[Finding]:
    """A consumer that is silent without a good-bye, or holds messages that it cannot store."""
    watched = (view.at_ms - view.past.watched_since_ms) / 1000
    for each in view.facts.consumers:
        if each.said.get("ended") or each.silent_ms > GIVEN_UP_MS:
            continue
        place = f"{each.said.get('host', '?')}:{each.said.get('pid', '?')}"
        silent = min(each.silent_ms / 1000, watched)
        busy = number_of(each.said.get("busy"))
        if silent >= limit:
            detail = f"{place}: silent"
            yield Finding("consumer_stuck", "", "", str(each.id)[:8], silent, detail)
        elif busy >= limit:
            detail = f"{place}: {each.said.get('error') or 'a batch is not stored'}"
            yield Finding("consumer_stuck", "", "", str(each.id)[:8], busy, detail)


def _drift(view: View, limit: float) -> Iterator[Finding]:
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


def _source(view: View, limit: float) -> Iterator[Finding]:
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


Condition = Callable[[View, float], Iterator[Finding]]

CONDITIONS: dict[str, Condition] = {
    "node_silent": _silent,
    "zombie": _zombies,
    "backlog": _backlog,
    "no_progress": _no_progress,
    "nothing_done": _nothing_done,
    "schedule_missed": _schedule,
    "failure_rate": _failures,
    "failed_requests": _failed_requests,
    "blocked": _blocked,
    "dns_failure": _dns,
    "duplicates": _duplicates,
    "field_missing": _missing,
    "dedup_fill": _fill,
    "sink_down": _sink_down,
    "disk_full": _disk,
    "cpu": _cpu,
    "store_memory": _memory,
    "consumer_stuck": _consumers,
    "config_drift": _drift,
    "source_unreachable": _source,
}
"""What each rule looks for. `store_unreachable` has none: there are no facts then (`outage.py`)."""
