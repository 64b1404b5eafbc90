"""Live values in a node: followed, judged, applied at once or not at all, and acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from orbweb.config.check import SWITCH_PREFIX
from orbweb.config.last_good import LastGood
from orbweb.config.resolve import Identity
from orbweb.config.source import ConfigSource
from orbweb.errors import ConfigError, RunLost, StoreUnavailable
from orbweb.frontier.base import SAID_MS
from orbweb.frontier.configbook import ConfigBook
from orbweb.log import get_logger
from orbweb.settings import DECLARATIONS, Settings, When
from orbweb.spiders.live_ack import Ack
from orbweb.spiders.live_apply import (
    Call,
    Hook,
    apply_parts,
    call_hooks,
    repeat_parts,
    tell_changes,
)
from orbweb.spiders.live_judge import LiveJudge
from orbweb.spiders.live_now import Now, Part, differences, is_hot, without
from orbweb.spiders.live_sources import AGAIN_SECONDS, LiveSources
from orbweb.spiders.live_view import LiveView, hooks_of

SAID_SECONDS = SAID_MS / 3000
"""A node says so often what the store forgets otherwise."""

REPEAT_SECONDS = 1800.0
"""A node says so often what it goes by, so that it is not taken for one that is gone."""

log = get_logger("orbweb.config")


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
        unfit: Callable[[Settings], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """`unfit` says by name which values a node cannot begin with, and why.

        `reload` reads the project's settings again (SIGHUP). `book`: where acks go.
        """
        self._base = settings
        self._identity = identity
        self._woken = asyncio.Event()
        self._sources = LiveSources(sources, kept, identity, book, self._woken.set)
        self._view = view
        self._book = book
        self._reload = reload
        self._pid = pid
        self._unfit = unfit
        self._parts: list[Part] = []
        self._hooks: list[Hook] = []
        self._call: Call = _not_attached
        self._keys: dict[str, str] = {}
        self._live: frozenset[str] = frozenset()
        self._owes_ack = False
        self._late: list[Part] = []
        """They have not taken what holds yet, as the store is away."""
        own = {f"{SWITCH_PREFIX}{name}": value for name, value in view.declared.items()}
        self.now = Now(settings, own, {}, {}, 0)

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
        if self._sources.errors:
            name, error = next(iter(self._sources.errors.items()))
            said["config_error"] = f"{name}: {error}"
        return said

    # -- the start

    async def begin(self) -> None:
        """Follow the sources, and take what holds already before anything is built of it.

        A live value that the node cannot begin with is refused: what is beneath it holds.
        """
        await self._sources.begin()
        before = self.now
        wanted, self._keys = self._judge()
        unfit = self._unfit(wanted.settings)
        for place in self._keys:
            if not self._keys[place]:
                self._keys[place] = unfit.get(place.rpartition("/")[2], "")
        self.now = without(wanted, before, unfit)
        for place, text in self._keys.items():
            if text:
                log.error("live value %s is not taken, what is beneath it holds: %s", place, text)
        self._show()
        tell_changes(before, self.now, differences(before, self.now))

    def attach(self, parts: Iterable[Part], owners: Iterable[Any], call: Call) -> None:
        """What is to change with the values; `call` calls a hook, wherever it may run."""
        self._parts = list(parts)
        self._hooks = [hook for owner in owners for hook in hooks_of(owner)]
        self._call = call

    async def close(self) -> None:
        """Stop following."""
        await self._sources.aclose()

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
            self._late = self._shared()
        await self._catch_up()
        await self._acknowledge()
        told_at = said_at = time.monotonic()
        while True:
            pause = AGAIN_SECONDS if self._owes_ack else self._sources.pause(SAID_SECONDS)
            try:
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            except TimeoutError:
                await self._sources.clear_ended()
            self._woken.clear()
            await self._catch_up()
            if time.monotonic() - said_at >= SAID_SECONDS:
                await repeat_parts(self._parts, self.now)
                said_at = time.monotonic()
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
        self._sources.wake()
        self._woken.set()

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
        hot = [name for name in found if is_hot(name)]
        values = {name: found[name] for name in hot}
        return self._base.changed(values, {name: found.origin(name) for name in hot})

    # -- applying

    async def _take(self) -> bool:
        """Let what is said now hold; True when there is something to acknowledge."""
        before = self.now
        wanted, said = self._judge()
        changed = differences(before, wanted)
        refused: dict[str, str] = {}
        if changed:
            parts = [part for part in self._parts if part.always or part.names & changed]
            refused = await self._apply(parts, before, wanted)
            wanted = without(wanted, before, refused)
            self.now = wanted
            self._show()
            names = changed - set(refused)
            failed = await call_hooks(self._hooks, self._call, before, wanted, names)
            if failed:
                refused |= failed
                self.now = without(wanted, before, failed)
                again = [part for part in self._parts if part.names & set(failed)]
                await self._apply(again, self.now, self.now)
                self._show()
        elif wanted.version != before.version:
            self.now = wanted
            await self._apply(self._shared(), wanted, wanted)
        for place in said:
            name = place.rpartition("/")[2]
            if name in refused:
                said[place] = refused[name]
        news = wanted.version != before.version or bool(changed) or said != self._keys
        for place, text in said.items():
            if text and self._keys.get(place) != text:
                log.error("live value %s is not taken, the old one holds on: %s", place, text)
        self._keys = said
        tell_changes(before, self.now, changed - set(refused))
        return news

    async def _apply(self, parts: Sequence[Part], before: Now, wanted: Now) -> dict[str, str]:
        refused, late = await apply_parts(parts, before, wanted)
        self._late = [part for part in self._late if part not in parts] + late
        return refused

    async def _catch_up(self) -> None:
        """Let parts that waited for the store take what holds by now."""
        await self._apply(self._late, self.now, self.now)

    def _judge(self) -> tuple[Now, dict[str, str]]:
        found = self._sources.resolve()
        judge = LiveJudge(self._identity.job, self._view.declared, self._base, self.now, self._live)
        return judge.judge(found, self._sources.version)

    def _shared(self) -> list[Part]:
        return [part for part in self._parts if part.always]

    def _show(self) -> None:
        settings = self.now.settings
        self._live = frozenset(n for n in settings if settings.origin(n) != self._origin_of_base(n))
        hot = {name: value for name, value in settings.items() if is_hot(name)}
        self._view.set_all({**hot, **self.now.own})

    async def _acknowledge(self) -> None:
        """Tell the store; a store that is away is told when it is back."""
        if self._book is None:
            return
        if self._late:
            self._owes_ack = True
            return
        ack = Ack(
            self.now.version,
            self._identity.job,
            self._identity.run,
            self._identity.machine,
            self._pid,
            self._keys,
            dict(self._sources.errors),
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


async def _not_attached(method: Callable[..., Any], *values: Any) -> None:
    raise RuntimeError("no hook is called before parts are attached")
