"""What nodes say of live values: awaited after a change, or asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from orbweb.cli import show
from orbweb.cli.acts import Asked, say_undo
from orbweb.cli.config_words import change_text, headline, line_record, undo
from orbweb.cli.store import ask
from orbweb.cli.watch import SHORT, living
from orbweb.config.place import Place
from orbweb.config.resolve import Identity
from orbweb.config.values import Line, LiveValues
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import RunState
from orbweb.settings import Settings
from orbweb.spiders.live_admin import Done, LiveAdmin, NodeAck

LOOK_SECONDS = 0.1


FAILED = 1
"""Exit code when a node has not taken a change."""


@dataclass(frozen=True, slots=True)
class Living:
    """A node at work."""

    identity: Identity
    spider: str


async def nodes_at_work(admin: Admin) -> list[Living]:
    """The nodes of all runs that are at work now."""
    found = []
    for info in await admin.runs():
        if info.status.state is RunState.DONE:
            continue
        for node in living(await admin.nodes(info)):
            its = node.said
            identity = Identity(info.job, info.run, node.node, str(its.get("host", "")))
            found.append(Living(identity, str(its.get("spider", info.job))))
    return found


async def tell(
    admin: Admin,
    done: Done,
    nodes: Sequence[Living],
    asked: Asked,
    wait: float,
    *,
    as_json: bool,
) -> int:
    """Show what has changed and what the nodes say of it."""
    meant = [node for node in nodes if _concerns(done.line, node)]
    live = LiveAdmin(admin.config)
    acks = await _acks_of(live, meant, done.version, wait)
    missing = [node for node in meant if node.identity.node not in acks]
    failed = {
        node: text for node, ack in acks.items() if (text := _failure(ack, done.line)) is not None
    }
    code = FAILED if failed or (missing and wait) else 0
    if as_json:
        record = line_record(done.line)
        record["nodes"] = [_node_record(node, acks, failed, done.line) for node in meant]
        show.as_json(record)
        return code
    print(headline(done.line))
    for change in done.line.changes:
        print(f"  {change_text(change, done.line.at_ms)}")
    for node in meant:
        print(f"  {_node_text(node, acks, failed, done.line)}")
    if not meant:
        show.note("no node that it concerns is at work; it holds for those that are started")
    say_undo(asked, undo(done))
    return code


def _concerns(line: Line, node: Living) -> bool:
    return any(node.identity.is_meant(Place.read(change.one.place)) for change in line.changes)


async def _acks_of(
    live: LiveAdmin, nodes: Sequence[Living], version: int, wait: float
) -> dict[str, NodeAck]:
    """What these nodes say of the version, or of a later one, within the time."""
    wanted = {node.identity.node for node in nodes}
    deadline = time.monotonic() + wait
    while True:
        acks = {
            ack.node: ack
            for ack in await live.acks()
            if ack.node in wanted and ack.said.version >= version
        }
        if len(acks) == len(wanted) or time.monotonic() >= deadline:
            return acks
        await asyncio.sleep(LOOK_SECONDS)


def _failure(ack: NodeAck, line: Line) -> str | None:
    """Why the node could not take what has changed; None when it has."""
    texts = [ack.said.keys.get(change.one.place, "") for change in line.changes]
    return next((text for text in texts if text), None)


def _node_text(
    node: Living, acks: Mapping[str, NodeAck], failed: Mapping[str, str], line: Line
) -> str:
    name = f"{node.identity.node[:SHORT]}  {node.spider}"
    ack = acks.get(node.identity.node)
    if ack is None:
        return f"{name}  no word yet (orbweb config acks)"
    took = f"{max(0, ack.at_ms - line.at_ms) / 1000:.2f} s"
    if node.identity.node in failed:
        return f"{name}  {took}  not taken, the old value holds: {failed[node.identity.node]}"
    return f"{name}  {took}  {'ok' if _holds_there(node, line) else 'not in the canary'}"


def _holds_there(node: Living, line: Line) -> bool:
    tried = [change.after.canary for change in line.changes if change.after is not None]
    return any(each is None or each.takes(node.identity.node) for each in tried) or not tried


def _node_record(
    node: Living, acks: Mapping[str, NodeAck], failed: Mapping[str, str], line: Line
) -> dict[str, Any]:
    ack = acks.get(node.identity.node)
    return {
        "node": node.identity.node,
        "job": node.identity.job,
        "run": node.identity.run,
        "acknowledged": ack is not None,
        "seconds": None if ack is None else max(0, ack.at_ms - line.at_ms) / 1000,
        "error": failed.get(node.identity.node),
        "meant": _holds_there(node, line),
    }


def acks(settings: Settings, *, as_json: bool) -> None:
    """What each node says."""

    async def look(admin: Admin) -> tuple[LiveValues, int, list[NodeAck], set[str]]:
        live = LiveAdmin(admin.config)
        values, at_ms = await live.read()
        alive = {node.identity.node for node in await nodes_at_work(admin)}
        return values, at_ms, await live.acks(), alive

    values, at_ms, found, alive = ask(settings, look)
    found = [ack for ack in found if ack.node in alive]
    if as_json:
        records = [{"node": a.node, "at_ms": a.at_ms, **msgspec.to_builtins(a.said)} for a in found]
        show.as_json({"version": values.version, "nodes": records})
        return
    print(f"version {values.version}")
    if not found:
        print("no node is at work")
        return
    show.as_table(
        ("NODE", "JOB", "RUN", "VERSION", "SAID", "STATE"),
        [
            (
                ack.node[:SHORT],
                ack.said.job,
                ack.said.run,
                f"v{ack.said.version}",
                f"{show.duration((at_ms - ack.at_ms) / 1000)} ago",
                _ack_state(ack, values.version),
            )
            for ack in found
        ],
    )


def _ack_state(ack: NodeAck, version: int) -> str:
    wrong = [f"{place}: {text}" for place, text in ack.said.keys.items() if text]
    wrong += [f"{source} is away: {text}" for source, text in ack.said.sources.items()]
    if wrong:
        return "; ".join(wrong)
    return "ok" if ack.said.version >= version else "behind"
