"""Live values in a node: followed, judged, applied at once or not at all, and acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from orbweb.config.check import SWITCH_PREFIX, Switches, check_together, checked
from orbweb.config.follower import Follower
from orbweb.config.last_good import LastGood
from orbweb.config.place import Scope
from orbweb.config.resolve import Found, Identity, Resolution, StoreDocument, resolve
from orbweb.config.source import ConfigSource, Document
from orbweb.errors import ConfigError, RunLost, StoreUnavailable
from orbweb.frontier.configbook import ConfigBook
from orbweb.log import event, get_logger
from orbweb.settings import DECLARATIONS, Settings, When
from orbweb.settings.load import USER_PREFIX, masked
from orbweb.spiders.live_view import LiveView, hooks_of

FIRST_SECONDS = 3.0
"""How long a node waits at its start for sources that do not answer."""

AGAIN_SECONDS = 1.0
"""Pause before what the store could not be told is told again."""

REPEAT_SECONDS = 1800.0
"""A node says so often what it goes by, so that it is not taken for one that is gone."""

log = get_logger("orbweb.config")

Values = Mapping[str, Any]
HostValues = Mapping[str, Values]


@dataclass(frozen=True, slots=True)
class Now:
    """All that holds in a node: every setting, the spider's own values, and those of hosts."""

    settings: Settings
    own: Values
    hosts: HostValues
    ends: Mapping[tuple[str, str], int]
    """By host and key, when what holds for a host ends (the store's wall clock, ms)."""
    version: int

    def of_host(self, host: str, name: str) -> Any:
        """A setting as it holds for one host."""
        return self.hosts.get(host, {}).get(name, self.settings[name])


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the node that goes by some settings, and how it takes other ones.

    `apply` raises what it likes when it cannot: then it is called with the old values.
    """

    name: str
    names: frozenset[str]
    apply: Callable[[Now], Awaitable[None]]
    always: bool = False
    """Also when none of its settings have changed: what others share may have."""


class Ack(msgspec.Struct, omit_defaults=True):
    """What a node says of the live values that it goes by."""

    version: int
    """Of the store's values."""
    job: str = ""
    run: str = ""
    machine: str = ""
    pid: int = 0
    keys: dict[str, str] = {}
    """By place of each value that concerns the node: empty when it holds, else why not."""
    sources: dict[str, str] = {}
    """Sources that are away, and why."""

    def pack(self) -> bytes:
        return msgspec.json.encode(self)


class LiveNode:
    """What holds in this node of its settings, and what may change of them while it runs.

    Every change is applied in one turn on the engine's loop, or the old value goes on to hold and
    the acknowledgement says why. Sources that are away change nothing.
    """

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        sources: Sequence[ConfigSource],
        kept: LastGood,
        *,
        view: LiveView,
        book: ConfigBook | None = None,
        reload: Callable[[], Settings] | None = None,
        pid: int = 0,
    ) -> None:
        """`reload` reads the project's settings again (SIGHUP). `book`: where acks go."""
        self._base = settings
        self._identity = identity
        self._follower = Follower(sources, kept, self._wake)
        self._sources = sources
        self._view = view
        self._book = book
        self._reload = reload
        self._pid = pid
        self._parts: list[Part] = []
        self._hooks: list[tuple[tuple[str, ...], Callable[..., Any]]] = []
        self._call: Callable[..., Awaitable[Any]] | None = None
        self._woken = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._offset_ms = 0.0
        self._read_at: str = ""
        self._keys: dict[str, str] = {}
        self._live: frozenset[str] = frozenset()
        self._owes_ack = False
        self.now = Now(settings, view.declared, {}, {}, 0)

    @property
    def settings(self) -> Settings:
        """The settings as they hold now."""
        return self.now.settings

    def get(self, name: str, host: str = "") -> Any:
        """A setting as it holds now in this node, for a host if one is named."""
        return self.now.of_host(host, name) if host else self.now.settings[name]

    def beat(self) -> dict[str, str | int]:
        """See `LiveDesk`."""
        said: dict[str, str | int] = {"config": self.now.version}
        if self._follower.errors:
            name, error = next(iter(self._follower.errors.items()))
            said["config_error"] = f"{name}: {error}"
        return said

    # -- the start

    async def begin(self) -> None:
        """Follow the sources, and take what holds already before anything is built of it."""
        self._following = asyncio.create_task(self._follower.run())
        await self._follower.asked(FIRST_SECONDS)
        before = self.now
        wanted, self._keys = self._judge(self._resolve())
        self.now = wanted
        self._show()
        for name in sorted(_changed(before, wanted)):
            self._tell(name, before, wanted)

    def attach(
        self, parts: Iterable[Part], owners: Iterable[Any], call: Callable[..., Awaitable[Any]]
    ) -> None:
        """What is to change with the values; `call` calls a hook, wherever it may run."""
        self._parts = list(parts)
        self._hooks = [hook for owner in owners for hook in hooks_of(owner)]
        self._call = call

    async def close(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        for source in self._sources:
            await source.aclose()

    # -- while the node works

    async def run(self) -> None:
        """See `LiveDesk`. Nothing that goes wrong here ends the crawl: what holds goes on."""
        while True:
            try:
                await self._follow_up()
            except RunLost:
                return
            except Exception:
                log.exception("live values: unexpected error, those that hold go on")
                await asyncio.sleep(AGAIN_SECONDS)

    async def _follow_up(self) -> None:
        if self.now.version or self.now.hosts:
            await self._apply_parts(self.now, [part for part in self._parts if part.always], {})
        await self._acknowledge()
        told_at = time.monotonic()
        while True:
            pause = self._pause()
            try:
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            except TimeoutError:
                await self._clear_ended()
            self._woken.clear()
            is_late = time.monotonic() - told_at > REPEAT_SECONDS
            if await self._take() or self._owes_ack or is_late:
                await self._acknowledge()
                told_at = time.monotonic()

    def reload(self) -> None:
        """Read the project's settings and every source again; what is hot counts at once."""
        if self._reload is not None:
            try:
                found = self._reload()
            except ConfigError as error:
                log.error("settings are not read again, those that hold go on: %s", error)
            else:
                self._say_cold(found)
                self._base = self._with_hot(found)
        self._follower.wake()
        self._wake()

    def _say_cold(self, found: Settings) -> None:
        cold = [
            name
            for name, setting in DECLARATIONS.items()
            if setting.when is not When.HOT and found[name] != self._base[name]
        ]
        if cold:
            log.warning(
                "these settings have changed and count after a restart: %s", ", ".join(cold)
            )
        log.info("settings are read again")

    def _with_hot(self, found: Settings) -> Settings:
        """The settings that the node began with, and of those that were read again what is hot."""
        hot = [
            name
            for name in found
            if name.startswith(USER_PREFIX) or DECLARATIONS[name].when is When.HOT
        ]
        values = {name: found[name] for name in hot}
        return self._base.changed(values, {name: found.origin(name) for name in hot})

    def _wake(self) -> None:
        self._woken.set()

    def _now_ms(self) -> int:
        return int(time.monotonic() * 1000 + self._offset_ms)

    def _documents(self) -> list[Document]:
        documents = self._follower.documents
        for document in documents:
            if isinstance(document, StoreDocument) and document.version != self._read_at:
                self._read_at = document.version
                self._offset_ms = document.at_ms - time.monotonic() * 1000
        return documents

    def _resolve(self) -> Resolution:
        documents = self._documents()
        return resolve(documents, self._identity, self._now_ms())

    def _version(self) -> int:
        stored = [each for each in self._follower.documents if isinstance(each, StoreDocument)]
        return stored[-1].live.version if stored else 0

    def _ends_ms(self) -> int:
        stored = [each for each in self._follower.documents if isinstance(each, StoreDocument)]
        return min((each.live.ends_ms(self._now_ms()) for each in stored), default=0)

    def _pause(self) -> float:
        if self._owes_ack:
            return AGAIN_SECONDS
        ends = self._ends_ms()
        if not ends:
            return REPEAT_SECONDS
        return min(REPEAT_SECONDS, max(0.05, (ends - self._now_ms()) / 1000 + 0.01))

    async def _clear_ended(self) -> None:
        """Make the version without the values that have ended: one node does, all see it."""
        ends = self._ends_ms()
        if self._book is None or not ends or ends > self._now_ms():
            return
        for document in self._follower.documents:
            if not isinstance(document, StoreDocument):
                continue
            expired = document.live.expire(self._now_ms())
            if expired is None:
                continue
            values, line = expired
            try:
                await self._book.write(document.live.version, values.pack(), line.pack(), ends)
            except StoreUnavailable as error:
                log.debug("what has ended is not removed yet: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
            self._follower.wake()
            await asyncio.sleep(0.2)

    # -- judging

    def _judge(self, found: Resolution) -> tuple[Now, dict[str, str]]:
        """What is to hold, and by place of each value why it does not (empty: it does).

        A value that is refused leaves in force what held before it.
        """
        said: dict[str, str] = dict(found.refused)
        switches = Switches({self._identity.job: self._view.declared})
        values, origins = self._accepted(found.values, switches, said)
        together = {**self._base, **values}
        for name, text in check_together(together).items():
            if name in values:
                said[str(found.values[name].place)] = text
                self._keep_old(name, values, origins)
        settings = {name: value for name, value in values.items() if _is_setting(name)}
        own = {f"{SWITCH_PREFIX}{name}": value for name, value in self._view.declared.items()}
        own |= {name: value for name, value in values.items() if name.startswith(SWITCH_PREFIX)}
        hosts: dict[str, dict[str, Any]] = {}
        ends: dict[tuple[str, str], int] = {}
        for host, of_host in found.hosts.items():
            for name, value in self._accepted(of_host, switches, said)[0].items():
                hosts.setdefault(host, {})[name] = value
                ends[host, name] = of_host[name].until_ms
        changed = self._base.changed(settings, origins)
        return Now(changed, own, hosts, ends, self._version()), said

    def _accepted(
        self, found: Mapping[str, Found], switches: Switches, said: dict[str, str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for name, each in found.items():
            try:
                value = checked(each.place, each.value, each.origin, switches, textual=each.textual)
            except ConfigError as error:
                said[str(each.place)] = str(error)
                if each.place.scope is not Scope.HOST:
                    self._keep_old(name, values, origins)
                continue
            values[name] = tuple(value) if isinstance(value, list) else value
            origins[name] = each.origin
            said[str(each.place)] = ""
        return values, origins

    def _keep_old(self, name: str, values: dict[str, Any], origins: dict[str, str]) -> None:
        before = self.now.settings
        if name in self._live:
            values[name], origins[name] = before[name], before.origin(name)
        elif name in self.now.own:
            values[name] = self.now.own[name]
        else:
            values.pop(name, None)
            origins.pop(name, None)

    # -- applying

    async def _take(self) -> bool:
        """Let what is said now hold; True when there is something to acknowledge."""
        before = self.now
        wanted, said = self._judge(self._resolve())
        changed = _changed(before, wanted)
        refused: dict[str, str] = {}
        if changed:
            parts = [part for part in self._parts if part.always or part.names & changed]
            refused = await self._apply_parts(wanted, parts, said)
            wanted = _without(wanted, before, refused)
            self.now = wanted
            self._show()
            failed = await self._call_hooks(before, wanted, changed - set(refused))
            if failed:
                refused |= failed
                self.now = _without(wanted, before, failed)
                again = [part for part in self._parts if part.names & set(failed)]
                await self._apply_parts(self.now, again, {})
                self._show()
        elif wanted.version != before.version:
            self.now = wanted
            await self._apply_parts(wanted, [part for part in self._parts if part.always], said)
        for place in said:
            name = place.rpartition("/")[2]
            if name in refused:
                said[place] = refused[name]
        news = wanted.version != before.version or bool(changed) or said != self._keys
        for place, text in said.items():
            if text and self._keys.get(place) != text:
                log.error("live value %s is not taken, the old one holds on: %s", place, text)
        self._keys = said
        for name in sorted(changed - set(refused)):
            self._tell(name, before, self.now)
        return news

    def _tell(self, name: str, before: Now, after: Now) -> None:
        old, new = _value(before, name), _value(after, name)
        if old != new:
            origin = after.settings.origin(name) if name in after.settings else "live"
            shown = (masked(name, old), masked(name, new))
            event(log, "live_value", key=name, before=shown[0], after=shown[1], origin=origin)
        for host in sorted({*before.hosts, *after.hosts}):
            was, now = (each.hosts.get(host, {}).get(name) for each in (before, after))
            if was != now:
                shown = (masked(name, was), masked(name, now))
                event(log, "live_value", key=name, before=shown[0], after=shown[1], host=host)

    async def _apply_parts(
        self, wanted: Now, parts: Sequence[Part], said: Mapping[str, str]
    ) -> dict[str, str]:
        """Returns by name why a part could not take it; it goes by the old values then."""
        refused: dict[str, str] = {}
        for part in parts:
            while True:
                try:
                    await part.apply(wanted)
                except StoreUnavailable as error:
                    log.debug("live values wait for the store: %s", error)
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                except RunLost:
                    raise
                except Exception as error:
                    names = part.names & (_changed(self.now, wanted) or part.names)
                    refused |= dict.fromkeys(names, f"{type(error).__name__}: {error}")
                    log.error("%s cannot go by the new live values: %s", part.name, error)
                    await part.apply(self.now)
                break
        return refused

    async def _call_hooks(self, before: Now, after: Now, changed: set[str]) -> dict[str, str]:
        failed: dict[str, str] = {}
        for keys, method in self._hooks:
            for key in keys:
                name = f"{SWITCH_PREFIX}{key}" if key in self._view.declared else key
                if name not in changed or _value(before, name) == _value(after, name):
                    continue
                try:
                    assert self._call is not None
                    value = _value(after, name)
                    await self._call(method, *((value,) if len(keys) == 1 else (value, key)))
                except Exception as error:
                    log.exception("%s failed for live value %s", method.__qualname__, name)
                    failed[name] = f"{method.__qualname__}: {type(error).__name__}: {error}"
        return failed

    def _show(self) -> None:
        settings = self.now.settings
        self._live = frozenset(n for n in settings if settings.origin(n) != self._origin_of_base(n))
        hot = {
            name: value
            for name, value in self.now.settings.items()
            if name.startswith(USER_PREFIX)
            or (name in DECLARATIONS and DECLARATIONS[name].when is When.HOT)
        }
        self._view.set_all({**hot, **self.now.own})

    async def _acknowledge(self) -> None:
        """Tell the store; a store that is away is told when it is back."""
        if self._book is None:
            return
        ack = Ack(
            self.now.version,
            self._identity.job,
            self._identity.run,
            self._identity.machine,
            self._pid,
            self._keys,
            dict(self._follower.errors),
        )
        try:
            await self._book.acknowledge(self._identity.node, ack.pack())
        except StoreUnavailable as error:
            log.debug("live values are not acknowledged yet: %s", error)
            self._owes_ack = True
        else:
            self._owes_ack = False

    def _origin_of_base(self, name: str) -> str:
        return self._base.origin(name) if name in self._base else ""


def _is_setting(name: str) -> bool:
    return name in DECLARATIONS or name.startswith(USER_PREFIX)


def _value(now: Now, name: str) -> Any:
    return now.own.get(name) if name.startswith(SWITCH_PREFIX) else now.settings.get(name)


def _changed(before: Now, after: Now) -> set[str]:
    """Names of what differs, by host too."""
    names = {
        name
        for name in {**before.settings, **after.settings}
        if before.settings.get(name) != after.settings.get(name)
    }
    names |= {
        name for name in {**before.own, **after.own} if _value(before, name) != _value(after, name)
    }
    for host in {**before.hosts, **after.hosts}:
        old, new = before.hosts.get(host, {}), after.hosts.get(host, {})
        names |= {name for name in {**old, **new} if old.get(name) != new.get(name)}
        names |= {
            name for name in new if before.ends.get((host, name)) != after.ends.get((host, name))
        }
    return names


def _without(wanted: Now, before: Now, refused: Mapping[str, str]) -> Now:
    """What is wanted, with the old values of what is refused."""
    if not refused:
        return wanted
    names = [name for name in refused if name in before.settings]
    settings = wanted.settings.changed(
        {name: before.settings[name] for name in names},
        {name: before.settings.origin(name) for name in names},
    )
    own = {**wanted.own, **{name: before.own[name] for name in refused if name in before.own}}
    hosts = {
        host: {
            **{
                name: value
                for name, value in wanted.hosts.get(host, {}).items()
                if name not in refused
            },
            **{
                name: value for name, value in before.hosts.get(host, {}).items() if name in refused
            },
        }
        for host in {**wanted.hosts, **before.hosts}
    }
    return Now(settings, own, hosts, wanted.ends, wanted.version)
