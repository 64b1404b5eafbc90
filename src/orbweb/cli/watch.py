"""What `jobs`, `status` and `nodes` print."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from orbweb.cli import show
from orbweb.cli.store import ask
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin, NodeInfo, RunInfo, node_state
from orbweb.frontier.base import RunState, Status
from orbweb.model.reasons import Reason
from orbweb.settings import Settings
from orbweb.spiders.progress import left_out, reasons_text

SAID = ("host", "pid", "pages", "rate", "items", "failed", "held", "limited_by")
"""What a table shows of that which nodes say of themselves."""
SHORT = 8
"""Characters of a node's id that a table shows."""
SILENT_MS = 10_000
"""A node that spoke within this time counts as alive."""
MOST_NAMES = 5
"""Runs that are named of several."""


def jobs(settings: Settings, *, as_json: bool) -> None:
    """All runs in the store, the latest started first."""

    async def look(admin: Admin) -> list[tuple[RunInfo, str]]:
        return [(info, await state_of(admin, info)) for info in await admin.runs()]

    found = ask(settings, look)
    if as_json:
        show.as_json([run_record(info) for info, _ in found])
        return
    if not found:
        print("no runs in this store")
        return
    show.as_table(
        ("JOB", "RUN", "STATE", "WAITING", "DONE", "ITEMS", "FAILED", "STARTED"),
        [
            (
                info.job,
                run_name(info.run),
                state,
                unfinished(info.status),
                info.status.reasons.get(Reason.DONE, 0),
                info.status.items,
                info.status.dead,
                show.moment(info.status.started_at_ms),
            )
            for info, state in found
        ],
    )


def status(settings: Settings, job: str, run: str | None, *, as_json: bool) -> None:
    """Counts of one run, its skips by reason and its nodes."""

    async def look(admin: Admin) -> tuple[RunInfo, list[NodeInfo]]:
        info = await meant_run(admin, job, run)
        return info, await admin.nodes(info)

    info, found = ask(settings, look)
    if as_json:
        show.as_json({**run_record(info), "nodes": [node_record(node) for node in found]})
        return
    counts = info.status
    alone = is_alone(counts, found)
    state = state_name(counts, alone=alone)
    print(f"{info.job} · run {run_name(info.run)} · {state} · {_times(counts)}")
    print(
        f"  waiting  {show.number(counts.queued)} queued on {show.counted(counts.hosts, 'host')},"
        f" {show.number(counts.delayed)} delayed, {show.number(counts.leased)} in work"
    )
    print(
        f"  done     {show.counted(counts.reasons.get(Reason.DONE, 0), 'page')},"
        f" {show.counted(counts.items, 'item')}"
    )
    print(f"  retries  {show.number(counts.retried)}")
    print(f"  skipped  {reasons_text(left_out(counts.reasons), most=99)}")
    failed = f"  (orbweb failed list {info.job})" if counts.dead else ""
    print(f"  failed   {show.number(counts.dead)}{failed}")
    if counts.reaped:
        print(f"  reaped   {show.counted(counts.reaped, 'request')} of lost nodes")
    print(f"  nodes    {len(found)}{_node_names(found)}")
    if alone:
        show.note(f"next: {go_on(info)}")


def nodes(settings: Settings, job: str, run: str | None, *, as_json: bool) -> None:
    """The worker processes of a run."""

    async def look(admin: Admin) -> tuple[RunInfo, list[NodeInfo]]:
        info = await meant_run(admin, job, run)
        return info, await admin.nodes(info)

    info, found = ask(settings, look)
    if as_json:
        show.as_json([node_record(node) for node in found])
        return
    if not found:
        print("no node spoke lately")
        return
    show.as_table(
        ("NODE", "STATE", "LAST SIGN", *(name.upper().replace("_", " ") for name in SAID)),
        [
            (
                node.node[:SHORT],
                node_word(info.status, node),
                f"{show.duration(node.silent_ms / 1000)} ago",
                *(_said_word(node, name) for name in SAID),
            )
            for node in found
        ],
    )


def run_record(info: RunInfo) -> dict[str, Any]:
    """A run as JSON."""
    return {"job": info.job, "run": info.run, "epoch": info.epoch, **asdict(info.status)}


def node_record(node: NodeInfo) -> dict[str, Any]:
    """A node as JSON: what it said lies beside what is known of it."""
    return {"node": node.node, "silent_ms": node.silent_ms, "said": node.said}


async def meant_run(
    admin: Admin, job: str, run: str | None, *, unfinished: bool = False
) -> RunInfo:
    """See `Admin.find`. When several runs have not ended and none is named, a note says which one
    it is."""
    info = await admin.find(job, run, unfinished=unfinished)
    if run is None and (going := await _several(admin, job)):
        show.note(f"{going}; this is {run_name(info.run)}. Another one: --run-id ID")
    return info


async def refuse_unclear_run(admin: Admin, job: str, run: str | None) -> None:
    """For acts without an undo: `ConfigError` when none of several unfinished runs is named."""
    if run is None and (going := await _several(admin, job)):
        raise ConfigError(f"{going}. Say which one: --run-id ID; {run_name('')} is --run-id ''")


async def _several(admin: Admin, job: str) -> str:
    """The runs of a job that have not ended, if they are more than one."""
    going = [info for info in await admin.runs(job) if info.status.state is not RunState.DONE]
    if len(going) < 2:
        return ""
    names = ", ".join(run_name(info.run) for info in going[:MOST_NAMES])
    more = f" and {len(going) - MOST_NAMES} more" if len(going) > MOST_NAMES else ""
    return f"{len(going)} runs of {job} have not ended: {names}{more}"


def run_name(run: str) -> str:
    """The name of a run for people; the run without a RUN_ID has none."""
    return run or "(default)"


def is_alone(counts: Status, nodes: list[NodeInfo]) -> bool:
    """Whether a run has not ended and nobody works on it."""
    return counts.state is not RunState.DONE and not living(nodes)


async def state_of(admin: Admin, info: RunInfo) -> str:
    """See `state_name`; asks for the nodes of a run that has not ended."""
    nodes = [] if info.status.state is RunState.DONE else await admin.nodes(info)
    return state_name(info.status, alone=is_alone(info.status, nodes))


def state_name(counts: Status, *, alone: bool) -> str:
    """A few words for what a run does; `alone`: no node works on it."""
    return "no node at work" if alone and not counts.paused else counts.word


def unfinished(counts: Status) -> int:
    """Requests of a run that wait or are in work."""
    return counts.queued + counts.delayed + counts.leased


def go_on(info: RunInfo) -> str:
    """How a run that has stopped is gone on with."""
    from orbweb.batch.work import RUN_PREFIX

    if info.run.startswith(RUN_PREFIX):
        return "start the spider again; it goes on with the batch that is open"
    named = f" with --run-id {info.run}" if info.run else ""
    return f"start the spider again{named}; it goes on where it stopped"


def living(nodes: list[NodeInfo]) -> list[NodeInfo]:
    """Those that spoke lately."""
    return [node for node in nodes if node.silent_ms < SILENT_MS]


def node_word(counts: Status, node: NodeInfo) -> str:
    """What a node of a run does: `working`, `stopping`, `silent` or `ended`."""
    state = "ended" if counts.state is RunState.DONE else node_state(node.said)
    return state if state == "ended" or living([node]) else "silent"


def _said_word(node: NodeInfo, name: str) -> Any:
    value = node.said.get(name, "")
    return str(value) if name == "pid" else value


def _times(counts: Status) -> str:
    started = f"started {show.moment(counts.started_at_ms)}"
    if counts.state is RunState.DONE and counts.finished_at_ms:
        took = show.duration((counts.finished_at_ms - counts.started_at_ms) / 1000)
        return f"{started}, took {took}"
    return started


def _node_names(nodes: list[NodeInfo]) -> str:
    if not nodes:
        return ""
    named = (f"{node.node[:SHORT]} {show.duration(node.silent_ms / 1000)} ago" for node in nodes)
    return ": " + ", ".join(named)
