"""The fleet as metrics: from what the store knows of its runs, nodes and hosts."""

from __future__ import annotations

from collections.abc import Sequence

from orbweb.frontier.admin import node_state
from orbweb.frontier.base import RunState, Status
from orbweb.frontier.hosts import Host, RunRules
from orbweb.frontier.overview import RunView, StoreView
from orbweb.frontier.waiting import gap_of
from orbweb.metrics import catalogue as of
from orbweb.metrics.exposition import Exposition
from orbweb.metrics.node import Speaker, tell_node
from orbweb.model.reasons import Reason
from orbweb.monitor.counts import OTHER, Counts, total_told

ALIVE_MS = 60_000
"""A node that spoke within this time counts as alive (the second seed's threshold)."""

SKIPPED = frozenset(
    {reason for reason in Reason if reason.phase == "not taken"}
    | {Reason.CONTENT_TYPE, Reason.CANCELLED, Reason.DUPLICATE_REDIRECT}
)
"""Reasons of links and pages that were left out on purpose."""

OUTCOMES: dict[str, str] = {
    Reason.DONE: "done",
    Reason.REDIRECTED: "redirected",
    Reason.TASK_DONE: "task_done",
    **dict.fromkeys(
        (Reason.START_ENTRIES, Reason.TASK_STARTED, Reason.TASK_FAILED, Reason.TASK_TOLD), "other"
    ),
    **dict.fromkeys(SKIPPED, "dropped"),
}
"""What became of a request, by its reason; of every other reason it was given up."""


def tell_fleet(text: Exposition, view: StoreView, now: float) -> None:
    """Add all metrics of the fleet; `now` in seconds since 1970, by this machine's clock."""
    text.add(of.STORE_UP, 1)
    text.add(of.STORE_ANSWER, round(view.answer_seconds, 6))
    for address, facts in view.servers.items():
        text.add(of.STORE_MEMORY, facts.used_memory, address)
        if facts.max_memory:
            text.add(of.STORE_MEMORY_MAX, facts.max_memory, address)
    text.add(of.LEFT_OUT, view.left_out)
    for (channel, result), number in sorted(view.deliveries.items()):
        text.add(of.DELIVERIES, number, channel, result)
    for run in view.runs:
        _tell_run(text, run)
    for run in view.runs:
        for node in run.nodes:
            who = Speaker(node.node, run.info.job, run.info.run)
            tell_node(text, who, now - node.silent_ms / 1000, node.said)
    queued = sum(run.info.status.queued for run in view.runs)
    _tell_hosts(text, view.hosts, queued)


def _tell_run(text: Exposition, view: RunView) -> None:
    info, status = view.info, view.info.status
    run = (info.job, info.run)
    text.add(of.STATE, 1, *run, status.word)
    text.add(of.STARTED, status.started_at_ms / 1000, *run)
    if status.state is RunState.DONE:
        text.add(of.FINISHED, status.finished_at_ms / 1000, *run)
    for state, number in (
        ("queued", status.queued),
        ("delayed", status.delayed),
        ("leased", status.leased),
        ("outbox", status.away),
        ("dead", status.dead),
    ):
        text.add(of.FRONTIER, number, *run, state)
    text.add(of.HOSTS, status.hosts, *run)
    text.add(of.TASKS, status.tasks, *run)
    text.add(of.SEEDING, int(status.seeding), *run)
    working = [
        node
        for node in view.nodes
        if node.silent_ms < ALIVE_MS and node_state(node.said) == "working"
    ]
    text.add(of.NODES, len(working), *run)
    _tell_requests(text, run, status)
    _tell_counts(text, run, total_told(view.counts))
    text.add(of.STORED, status.items, *run)
    text.add(of.BAD_ITEMS, view.failed_items, *run)
    if view.seen is not None:
        text.add(of.SEEN, view.seen.count, *run)
        if view.seen.capacity:
            text.add(of.CAPACITY, view.seen.capacity, *run)
        text.add(of.FILL, round(view.seen.fill, 6), *run)


def _tell_requests(text: Exposition, run: tuple[str, str], status: Status) -> None:
    outcomes = dict.fromkeys(("done", "redirected", "dropped", "failed", "task_done", "other"), 0)
    for reason, number in sorted(status.reasons.items()):
        outcome = OUTCOMES.get(reason, "failed")
        outcomes[outcome] += number
        if outcome == "failed":
            text.add(of.FAILED, number, *run, reason)
        elif outcome == "dropped":
            text.add(of.SKIPPED, number, *run, reason)
    for outcome, number in outcomes.items():
        text.add(of.REQUESTS, number, *run, outcome)
    text.add(of.RETRIES, status.retried, *run)
    text.add(of.RECLAIMED, status.reaped, *run)
    text.add(of.FENCED, status.fenced, *run)
    text.add(of.REPAIRED, status.repaired, *run)


def _tell_counts(text: Exposition, run: tuple[str, str], counts: Counts) -> None:
    for metric, numbers in ((of.RETRIED, counts.retried), (of.RESPONSES, counts.statuses)):
        for name, number in sorted(numbers.items()):
            text.add(metric, number, *run, name)
    text.add_histogram(of.DOWNLOAD, counts.download, *run)
    text.add_histogram(of.SIZE, counts.size, *run)
    text.add_histogram(of.WAIT, counts.wait, *run)
    text.add_histogram(of.STORE_CALL, counts.store, *run)
    text.add(of.OUTAGES, counts.outages, *run)
    text.add(of.PERMITS, counts.permits, *run)
    text.add(of.LATE, counts.late, *run)
    text.add(of.LOST, counts.lost, *run)
    for item, outcomes in sorted(counts.items.items()):
        for outcome in ("stored", "filtered", "failed"):
            text.add(of.ITEMS, outcomes.get(outcome, 0), *run, item, outcome)
    for item, number in sorted(counts.looked.items()):
        text.add(of.EXAMINED, number, *run, item)
        for field, filled in sorted(counts.filled.get(item, {}).items()):
            text.add(of.MISSING, number - filled, *run, item, field)
    text.add(of.COMPARED, counts.checked, *run)
    text.add(of.REPEATED, counts.repeated, *run)


def _tell_hosts(
    text: Exposition, hosts: Sequence[tuple[Host, Sequence[RunRules]]], queued: int
) -> None:
    for host, rules in hosts:
        name = host.name
        text.add(of.DOMAIN_BACKLOG, host.backlog, name)
        text.add(of.DOMAIN_FETCHES, host.taken, name)
        text.add(of.DOMAIN_ANSWERS, host.good, name, "good")
        text.add(of.DOMAIN_ANSWERS, host.bad, name, "bad")
        text.add(of.DOMAIN_IN_WORK, host.slots, name)
        asking = [rule for rule, waits in zip(rules, host.queued, strict=True) if waits]
        gap = gap_of(host, asking or rules)
        if gap.ms:
            text.add(of.RATE_LIMIT, round(1000 / gap.ms, 4), name)
        text.add(of.CLAMPED, host.clamped, name)
        is_open = host.opens > 0 and host.open_until > host.clock_ms
        text.add(of.CIRCUIT, int(is_open), name)
    if hosts:
        shown = sum(host.backlog for host, _ in hosts)
        text.add(of.DOMAIN_BACKLOG, max(0, queued - shown), OTHER)
