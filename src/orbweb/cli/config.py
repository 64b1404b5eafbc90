"""What the commands on live values do: change, wait for the nodes' word, show, tell how to undo."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from orbweb.cli import show
from orbweb.cli.acts import Asked, because, ends, lasting, read_host, say_undo, unknown
from orbweb.cli.store import ask
from orbweb.cli.watch import SHORT, living, said
from orbweb.config.check import SWITCH_PREFIX, slower_text
from orbweb.config.place import Place, Scope
from orbweb.config.resolve import Identity
from orbweb.config.values import Canary, Change, Entry, Line, LiveValues
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import RunState
from orbweb.frontier.hosttable import Sort
from orbweb.settings import DECLARATIONS, Settings
from orbweb.settings.load import USER_PREFIX, masked
from orbweb.spiders.live_admin import Done, LiveAdmin, NodeAck

LOOK_SECONDS = 0.1
MOST_HOSTS = 1000
"""Among so many hosts a name like the one that is not known is looked for."""

FAILED = 1
"""Exit code when a node has not taken a change."""


@dataclass(frozen=True, slots=True)
class Where:
    """The options that say for whom a key is meant."""

    key: str
    job: str | None = None
    run: str | None = None
    host: str | None = None
    node: str | None = None

    def place(self) -> Place:
        """Raises `ConfigError` for options that exclude each other."""
        given = [each for each in (self.job, self.host, self.node) if each is not None]
        if len(given) > 1:
            raise ConfigError("--job, --host and --node exclude each other: a value has one scope")
        if self.run is not None and self.job is None:
            raise ConfigError("--run-id names a run of a job: add --job JOB")
        if "/" in self.key:
            raise ConfigError(f"{self.key!r} is no key: for whom it holds is said by options")
        head = ""
        if self.run is not None:
            head = f"run:{self.job}:{self.run}/"
        elif self.job is not None:
            head = f"job:{self.job}/"
        elif self.host is not None:
            head = f"host:{read_host(self.host)}/"
        elif self.node is not None:
            head = f"node:{self.node}/"
        return Place.read(f"{head}{self.key}")


@dataclass(frozen=True, slots=True)
class Living:
    """A node at work."""

    identity: Identity
    spider: str


# -- acts


def set_value(
    settings: Settings,
    where: Where,
    text: str,
    canary: str | None,
    asked: Asked,
    wait: float,
    *,
    as_json: bool,
) -> int:
    """Let a value hold. Returns the exit code."""
    place, for_ms = where.place(), asked.for_ms
    _need_reason(settings, asked)

    async def act(admin: Admin) -> int:
        nodes = await _living(admin)
        tried = _canary(canary, place, nodes)
        value: Any = _loose(text) if place.key.startswith("X_") else text
        done = await LiveAdmin(admin.config).set(
            place, value, asked.author, for_ms=for_ms, canary=tried, textual=True
        )
        code = await _tell(admin, done, nodes, asked, wait, as_json=as_json)
        await _say_ceiling(admin, place, done)
        await _say_unknown(admin, place, nodes)
        return code

    return ask(settings, act)


def unset(
    settings: Settings, where: Where, asked: Asked, wait: float, *, canary: bool, as_json: bool
) -> int:
    """Let nothing hold there any more. Returns the exit code."""
    place = where.place()
    _need_reason(settings, asked)
    return _act(
        settings,
        lambda live: live.unset(place, asked.author, canary=canary),
        asked,
        wait,
        as_json=as_json,
    )


def promote(settings: Settings, where: Where, asked: Asked, wait: float, *, as_json: bool) -> int:
    """Let a canary's value hold for all. Returns the exit code."""
    place = where.place()
    _need_reason(settings, asked)
    return _act(
        settings, lambda live: live.promote(place, asked.author), asked, wait, as_json=as_json
    )


def rollback(
    settings: Settings, version: int | None, asked: Asked, wait: float, *, as_json: bool
) -> int:
    """Let the values of an earlier version hold again. Returns the exit code."""
    _need_reason(settings, asked)
    return _act(
        settings, lambda live: live.rollback(version, asked.author), asked, wait, as_json=as_json
    )


def _act(
    settings: Settings,
    change: Callable[[LiveAdmin], Awaitable[Done]],
    asked: Asked,
    wait: float,
    *,
    as_json: bool,
) -> int:
    async def act(admin: Admin) -> int:
        nodes = await _living(admin)
        done = await change(LiveAdmin(admin.config))
        return await _tell(admin, done, nodes, asked, wait, as_json=as_json)

    return ask(settings, act)


def _need_reason(settings: Settings, asked: Asked) -> None:
    """Where others work with the same store they want to know why."""
    if settings["REDIS_URL"] and not asked.reason.strip():
        raise ConfigError("the store is shared, so others want to know why: add --reason TEXT")


def _canary(text: str | None, place: Place, nodes: Sequence[Living]) -> Canary | None:
    """`N` nodes of those at work, or a part of all: `25%`."""
    if text is None:
        return None
    bare = text.strip()
    number = bare.removesuffix("%").strip()
    try:
        amount = float(number)
    except ValueError:
        amount = -1.0
    if bare.endswith("%") and 0 < amount <= 100:
        return Canary(percent=amount)
    if bare.endswith("%") or amount < 1 or amount != int(amount):
        raise ConfigError(f"--canary {text!r}: a number of nodes or a part is wanted: 1 or 25%")
    meant = [node.identity.node for node in nodes if node.identity.is_meant(place)]
    if not meant:
        raise ConfigError(f"--canary {text}: no node that {place} concerns is at work now")
    return Canary(nodes=tuple(sorted(meant)[: int(amount)]))


def _loose(text: str) -> Any:
    """A value of the user's own: JSON where it is JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


async def _tell(
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
        record = _line_record(done.line)
        record["nodes"] = [_node_record(node, acks, failed, done.line) for node in meant]
        show.as_json(record)
        return code
    print(_headline(done.line))
    for change in done.line.changes:
        print(f"  {_change_text(change, done.line.at_ms)}")
    for node in meant:
        print(f"  {_node_text(node, acks, failed, done.line)}")
    if not meant:
        show.note("no node that it concerns is at work; it holds for those that are started")
    say_undo(asked, _undo(done))
    return code


def _undo(done: Done) -> list[str]:
    """The command that takes an act back."""
    line = done.line
    if line.verb == "set" and len(line.changes) == 1 and line.changes[0].one.canary is None:
        change = line.changes[0]
        place = Place.read(change.one.place)
        if change.before is None:
            return ["config", "unset", place.key, *_place_words(place), *_shared_reason(line)]
        before = change.before
        if masked(place.key, before.value) != before.value:  # a password is not shown
            return ["config", "rollback", str(line.version - 1), *_shared_reason(line)]
        return [
            *("config", "set", place.key, _typed(before.value), *_place_words(place)),
            *lasting(before.until_ms, line.at_ms),
            *(because(before.why) or _shared_reason(line)),
        ]
    return ["config", "rollback", str(line.version - 1), *_shared_reason(line)]


def _shared_reason(line: Line) -> list[str]:
    return ["--reason", "undo"] if line.why else []


def _place_words(place: Place) -> list[str]:
    if place.scope is Scope.GLOBAL:
        return []
    if place.scope is Scope.RUN:
        job, _, run = place.whose.partition(":")
        return ["--job", job, "--run-id", run]
    return [f"--{place.scope.word}", place.whose]


def _typed(value: Any) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return json.dumps(list(value))
    return value if isinstance(value, str) else json.dumps(value)


async def _say_ceiling(admin: Admin, place: Place, done: Done) -> None:
    """An approved rate is never passed, whatever a live value asks for."""
    if place.scope is not Scope.HOST or place.key != "DOWNLOAD_DELAY":
        return
    host = (await admin.hosts.look(place.whose)).host
    entry = done.line.changes[0].one
    if host.ceiling_ms is not None and entry.value * 1000 < host.ceiling_ms:
        show.note(slower_text(entry.value * 1000, host.ceiling_ms))
    elif host.limit is not None and entry.value * 1000 < host.limit.gap_ms:
        show.note(f"the limit that an operator has set holds too: orbweb limit {place.whose} off")


async def _say_unknown(admin: Admin, place: Place, nodes: Sequence[Living]) -> None:
    """A value for what nobody knows yet may be meant so; more often it is misspelt."""
    if place.scope is Scope.HOST and not await admin.hosts.knows(place.whose):
        _, rows = await admin.hosts.hosts(Sort.BACKLOG, MOST_HOSTS)
        unknown(f"host {place.whose}", place.whose, [row.host.name for row in rows])
    elif place.scope is Scope.JOB:
        jobs = {info.job for info in await admin.runs()}
        if place.whose not in jobs:
            unknown(f"job {place.whose}", place.whose, jobs)
    elif place.scope is Scope.NODE and not any(each.identity.is_meant(place) for each in nodes):
        names = {each.identity.node for each in nodes} | {each.identity.machine for each in nodes}
        unknown(f"node {place.whose} at work", place.whose, names)


# -- the nodes


async def _living(admin: Admin) -> list[Living]:
    """The nodes of all runs that are at work now."""
    found = []
    for info in await admin.runs():
        if info.status.state is RunState.DONE:
            continue
        for node in living(await admin.nodes(info)):
            its = said(node)
            identity = Identity(info.job, info.run, node.node, str(its.get("host", "")))
            found.append(Living(identity, str(its.get("spider", info.job))))
    return found


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


# -- looks


def list_values(settings: Settings, *, as_json: bool) -> None:
    """All values that hold now."""
    values, at_ms = ask(settings, lambda admin: LiveAdmin(admin.config).read())
    now = [entry for each in values.entries if (entry := each.at(at_ms)) is not None]
    if as_json:
        show.as_json({"version": values.version, "values": [_entry_record(each) for each in now]})
        return
    if not now:
        print(f"no live values (version {values.version}); settings hold: orbweb settings")
        return
    show.as_table(
        ("KEY", "SCOPE", "VALUE", "SINCE", "ENDS", "NODES", "BY", "WHY"),
        [
            (
                Place.read(entry.place).key,
                Place.read(entry.place).holder,
                _shown(entry),
                f"v{entry.version} {show.moment(entry.at_ms)}",
                show.moment(entry.until_ms) or "never",
                "all" if entry.canary is None else f"canary: {entry.canary.text()}",
                entry.by,
                entry.why,
            )
            for entry in now
        ],
    )


def get(settings: Settings, where: Where, *, as_json: bool) -> None:
    """What holds of a key at a place, the most specific first."""
    place = where.place()
    values, at_ms = ask(settings, lambda admin: LiveAdmin(admin.config).read())
    found = []
    for each in values.entries:
        entry, its = each.at(at_ms), Place.read(each.place)
        if entry is not None and its.key == place.key and _covers(its, place):
            found.append((its, entry))
    found.sort(key=lambda pair: (-pair[0].scope, pair[1].canary is None))
    is_own = place.key.startswith((SWITCH_PREFIX, USER_PREFIX))
    if not found and not is_own and place.key not in DECLARATIONS:
        raise ConfigError(f"unknown setting {place.key!r}; `orbweb settings` lists all")
    if as_json:
        base = masked(place.key, settings[place.key]) if place.key in settings else None
        show.as_json({"key": place.key, "live": [_entry_record(e) for _, e in found], "base": base})
        return
    for its, entry in found:
        end = f", {ends(entry.until_ms, at_ms)}" if entry.until_ms else ""
        tried = f", canary: {entry.canary.text()}" if entry.canary is not None else ""
        why = f" ({entry.why})" if entry.why else ""
        print(f"{its.holder:<24} {_shown(entry)}  by {entry.by}{why}, v{entry.version}{end}{tried}")
    if place.key in settings:
        origin = settings.origin(place.key)
        print(f"{'settings':<24} {settings.shown(place.key)}  from {origin}, as they are here")
    elif not found:
        print(f"{place.key} has no live value; the spider's default holds")


def _covers(its: Place, place: Place) -> bool:
    """Whether what holds at `its` place counts at the other, as far as can be said."""
    if its.scope is Scope.GLOBAL or its == place:
        return True
    of_run = place.scope is Scope.RUN and its.scope is Scope.JOB
    return of_run and place.whose.startswith(f"{its.whose}:")


def history(settings: Settings, most: int, *, as_json: bool) -> None:
    """The versions, the latest first."""
    lines = ask(settings, lambda admin: LiveAdmin(admin.config).history(most))
    if as_json:
        show.as_json([_line_record(line) for line in lines])
        return
    if not lines:
        print("live values have never been changed")
    for line in lines:
        print(_headline(line))
        for change in line.changes:
            print(f"  {_change_text(change, line.at_ms)}")


def diff(settings: Settings, before: int | None, after: int | None, *, as_json: bool) -> None:
    """What differs between two versions."""

    async def look(admin: Admin) -> tuple[LiveValues, list[Line]]:
        live = LiveAdmin(admin.config)
        return (await live.read())[0], await live.history()

    values, lines = ask(settings, look)
    last = values.version if after is None else after
    first = last - 1 if before is None else before
    if values.version == 0:
        raise ConfigError("live values have never been changed, so there is nothing to compare")
    old = {entry.slot: entry for entry in values.as_of(first, lines).entries}
    new = {entry.slot: entry for entry in values.as_of(last, lines).entries}
    changes = [
        Change(old.get(slot), new.get(slot))
        for slot in sorted({**old, **new})
        if old.get(slot) != new.get(slot)
    ]
    if as_json:
        show.as_json([_change_record(change) for change in changes])
        return
    print(f"v{first} → v{last}{'' if changes else ': the same'}")
    for change in changes:
        print(f"  {_change_text(change, 0)}")


def acks(settings: Settings, *, as_json: bool) -> None:
    """What each node says."""

    async def look(admin: Admin) -> tuple[LiveValues, int, list[NodeAck], set[str]]:
        live = LiveAdmin(admin.config)
        values, at_ms = await live.read()
        alive = {node.identity.node for node in await _living(admin)}
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


# -- words


def _headline(line: Line) -> str:
    why = f": {line.why}" if line.why else ""
    return f"v{line.version} {line.verb} by {line.by}, {show.moment(line.at_ms)}{why}"


def _change_text(change: Change, at_ms: int) -> str:
    one = change.one
    place = Place.read(one.place)
    old = "–" if change.before is None else _shown(change.before)
    new = "–" if change.after is None else _shown(change.after)
    text = f"{place.key} [{place.holder}]  {old} → {new}"
    if change.after is not None and change.after.until_ms:
        text += f"  {ends(change.after.until_ms, at_ms or change.after.at_ms)}"
    return f"{text}  canary: {one.canary.text()}" if one.canary is not None else text


def _shown(entry: Entry) -> str:
    value = masked(Place.read(entry.place).key, entry.value)
    return _typed(value)


def _entry_record(entry: Entry) -> dict[str, Any]:
    place = Place.read(entry.place)
    canary = None if entry.canary is None else msgspec.to_builtins(entry.canary)
    return {
        "key": place.key,
        "scope": place.scope.word,
        "of": place.whose,
        "value": masked(place.key, entry.value),
        "version": entry.version,
        "at_ms": entry.at_ms,
        "until_ms": entry.until_ms,
        "canary": canary,
        "by": entry.by,
        "why": entry.why,
    }


def _change_record(change: Change) -> dict[str, Any]:
    return {
        "place": change.one.place,
        "before": None if change.before is None else _entry_record(change.before),
        "after": None if change.after is None else _entry_record(change.after),
    }


def _line_record(line: Line) -> dict[str, Any]:
    return {
        "version": line.version,
        "verb": line.verb,
        "at_ms": line.at_ms,
        "by": line.by,
        "why": line.why,
        "changes": [_change_record(change) for change in line.changes],
    }
