"""Conditions of rules about runs, batches, consumers and the store. Pure.

Each takes the limit of its rule, in its unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from orbweb.alarms.conditions_nodes import GIVEN_UP_MS
from orbweb.alarms.facts import RunFacts, number_of
from orbweb.alarms.finding import Finding, View, alive, going, of_run

LEAST_REFUSED = 5
"""So many refused answers, or names that are not found, make a rate worth a word."""

LEAST_CHECKED = 100
"""Items below which their repetitions say nothing."""


def backlog(view: View, limit: float) -> Iterator[Finding]:
    """Too much waits, and more than some minutes ago."""
    hold_ms = view.limits.holds["backlog"] * 1000
    for run in going(view.facts):
        before = view.past.note(
            f"backlog {run.job}:{run.run}", view.at_ms, [run.waiting], max(hold_ms, 60_000)
        )
        if run.waiting > limit and run.waiting > before[0]:
            yield of_run(run, "backlog", "", run.waiting, f"+{run.waiting - before[0]:.0f}")


def no_progress(view: View, limit: float) -> Iterator[Finding]:
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


def failures(view: View, limit: float) -> Iterator[Finding]:
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


def failed_requests(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        if run.dead >= limit:
            yield of_run(run, "failed_requests", "", run.dead)


def blocked(view: View, limit: float) -> Iterator[Finding]:
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


def dns(view: View, limit: float) -> Iterator[Finding]:
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


def nothing_done(view: View, limit: float) -> Iterator[Finding]:
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


def lost(view: View, limit: float) -> Iterator[Finding]:
    """A node found its run gone, and no later one of its name has begun."""
    begun = {(run.job, run.run): run.started_at_ms for run in view.facts.runs}
    for each in view.facts.lost:
        later = begun.get((each.job, each.run), 0) > each.at_ms
        if not later and view.at_ms - each.at_ms < limit * 1000:
            name = each.run or "(default)"
            yield Finding("run_lost", each.job, each.run, "", 0, f"run {name}")


def schedule(view: View, limit: float) -> Iterator[Finding]:
    for each in view.facts.schedules:
        late = (view.at_ms - each.due_ms) / 1000
        if each.due_ms and late >= limit:
            away = (view.at_ms - each.told_ms) / 1000 > max(60.0, limit)
            cause = "no master" if away else each.cause or "not opened"
            yield Finding("schedule_missed", each.job, "", "", late, cause)


def duplicates(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        if run.checked >= LEAST_CHECKED and run.duplicates > limit:
            yield of_run(run, "duplicates", "", run.duplicates, f"{run.checked}")


def missing(view: View, limit: float) -> Iterator[Finding]:
    for run in going(view.facts):
        for text in run.missing:
            yield of_run(run, "field_missing", text.partition(":")[0], 0, text)


def fill(view: View, limit: float) -> Iterator[Finding]:
    for run in view.facts.runs:
        if run.fill >= limit:
            yield of_run(run, "dedup_fill", "", run.fill)


def memory(view: View, limit: float) -> Iterator[Finding]:
    most = view.facts.max_memory
    if most and view.facts.used_memory / most >= limit:
        used = view.facts.used_memory / most
        yield Finding("store_memory", value=used, detail=f"{most / 2**20:.0f} MiB")


def consumers(view: View, limit: float) -> Iterator[Finding]:
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
