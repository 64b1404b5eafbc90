"""What the commands on live values change: values are set, taken away, tried out, rolled back."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from orbweb.cli import show
from orbweb.cli.acts import Asked, read_host, unknown
from orbweb.cli.config_nodes import Living, nodes_at_work, tell
from orbweb.cli.store import ask
from orbweb.config.check import check_canary, slower_text
from orbweb.config.place import Place, Scope
from orbweb.config.values import Canary
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.hosttable import Sort
from orbweb.settings import Settings
from orbweb.spiders.live_admin import Done, LiveAdmin

MOST_HOSTS = 1000
"""Among so many hosts a name like the one that is not known is looked for."""


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
        nodes = await nodes_at_work(admin)
        tried = _canary(canary, place, nodes)
        value: Any = _loose(text) if place.key.startswith("X_") else text
        done = await LiveAdmin(admin.config).set(
            place, value, asked.author, for_ms=for_ms, canary=tried, textual=True
        )
        code = await tell(admin, done, nodes, asked, wait, as_json=as_json)
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
        nodes = await nodes_at_work(admin)
        done = await change(LiveAdmin(admin.config))
        return await tell(admin, done, nodes, asked, wait, as_json=as_json)

    return ask(settings, act)


def _need_reason(settings: Settings, asked: Asked) -> None:
    """Where others work with the same store they want to know why."""
    if settings["REDIS_URL"] and not asked.reason.strip():
        raise ConfigError("the store is shared, so others want to know why: add --reason TEXT")


def _canary(text: str | None, place: Place, nodes: Sequence[Living]) -> Canary | None:
    """`N` nodes of those at work, or a part of all: `25%`."""
    if text is None:
        return None
    check_canary(place)
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
