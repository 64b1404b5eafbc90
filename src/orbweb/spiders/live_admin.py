"""What an operator does with live values: each act a version, judged before it is stored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from orbweb.config.check import SWITCH_PREFIX, Switches, check_canary, check_together, checked
from orbweb.config.place import Place, Scope
from orbweb.config.values import Canary, Entry, Line, LiveValues
from orbweb.errors import ConfigError
from orbweb.frontier.configbook import ConfigBook
from orbweb.frontier.operator import Author
from orbweb.spiders.live_ack import Ack

TRIES = 5
"""How often an act is made anew because somebody else was faster."""

LONGEST_VALUE = 65_536
"""Bytes of one value as JSON."""

Act = Callable[[LiveValues, int], tuple[LiveValues, Line]]
"""From the values as they are, and the store's clock (ms), to the next version."""


@dataclass(frozen=True, slots=True)
class Done:
    """What an act came to."""

    line: Line
    values: LiveValues

    @property
    def version(self) -> int:
        return self.line.version


@dataclass(frozen=True, slots=True)
class NodeAck:
    """What a node says of the live values."""

    node: str
    at_ms: int
    """The store's wall clock."""
    said: Ack


class LiveAdmin:
    """Looks at the live values of a prefix and changes them. May raise `StoreUnavailable`."""

    def __init__(self, book: ConfigBook) -> None:
        self._book = book

    async def read(self) -> tuple[LiveValues, int]:
        """The values as they are, and the store's clock (ms). Raises `ConfigError`."""
        stored = await self._book.read()
        return LiveValues.unpack(stored.values), stored.at_ms

    async def switches(self) -> Switches:
        """The values of their own that jobs have declared."""
        found = {}
        for job, text in (await self._book.switches()).items():
            with suppress(msgspec.DecodeError):  # of another version of Orbweb
                found[job] = msgspec.json.decode(text, type=dict[str, Any])
        return Switches(found)

    async def history(self, most: int = 1000) -> list[Line]:
        """The latest versions, the latest first."""
        return [Line.unpack(line) for line in await self._book.history(most)]

    async def acks(self) -> list[NodeAck]:
        """What each node has said last."""
        found = []
        for ack in await self._book.acks():
            try:
                found.append(NodeAck(ack.node, ack.at_ms, msgspec.json.decode(ack.text, type=Ack)))
            except msgspec.DecodeError:  # of another version of Orbweb
                continue
        return found

    async def set(
        self,
        place: Place,
        value: Any,
        author: Author,
        *,
        for_ms: int = 0,
        canary: Canary | None = None,
        textual: bool = False,
    ) -> Done:
        """Let a value hold; `for_ms` 0 = without end. Raises `ConfigError` for one that may not.

        `textual`: text is read as on the command line.
        """
        switches = await self.switches()
        self._check_job(place, switches)
        read = checked(place, value, "the value", switches, textual=textual)
        if (size := len(msgspec.json.encode(read))) > LONGEST_VALUE:
            raise ConfigError(
                f"{place} would have {size} bytes; every node reads all values, so {LONGEST_VALUE} "
                "is the most"
            )
        if canary is not None:
            check_canary(place)

        def act(values: LiveValues, at_ms: int) -> tuple[LiveValues, Line]:
            _check_against(values, place, read, at_ms)
            until = at_ms + for_ms if for_ms else 0
            return values.put(Entry(str(place), read, *author, at_ms, until, canary))

        return await self._act(act)

    async def unset(self, place: Place, author: Author, *, canary: bool = False) -> Done:
        """Let nothing hold at a place any more; `canary`: only end the trial.

        Raises `ConfigError`.
        """
        return await self._act(
            lambda values, at_ms: values.take_away(place, *author, at_ms, canary=canary)
        )

    async def promote(self, place: Place, author: Author) -> Done:
        """Let a canary's value hold for all. Raises `ConfigError`."""
        return await self._act(lambda values, at_ms: values.promote(place, *author, at_ms))

    async def rollback(self, version: int | None, author: Author) -> Done:
        """Let the values of that version hold again; None is the one before the present.

        Raises `ConfigError` when the history does not reach so far.
        """
        lines = await self.history()

        def act(values: LiveValues, at_ms: int) -> tuple[LiveValues, Line]:
            wanted = values.version - 1 if version is None else version
            return values.back_to(wanted, lines, *author, at_ms)

        return await self._act(act)

    async def _act(self, act: Act) -> Done:
        """Make the next version; a call whose answer was lost is recognised by its own line."""
        for _ in range(TRIES):
            values, at_ms = await self.read()
            after, line = act(values, at_ms)
            written = await self._book.write(values.version, after.pack(), line.pack())
            if written.done:
                return Done(line, after)
        raise ConfigError("others change live values just now: look at them and decide again")

    def _check_job(self, place: Place, switches: Switches) -> None:
        """A job whose own value is meant must be known, else its name is misspelt."""
        if place.scope not in (Scope.JOB, Scope.RUN) or not place.key.startswith(SWITCH_PREFIX):
            return
        job = switches.job_of(place)
        if job not in switches.of_jobs:
            known = ", ".join(sorted(switches.of_jobs)) or "none"
            raise ConfigError(f"no node of a job {job!r} has told its live values; jobs: {known}")


def _check_against(values: LiveValues, place: Place, value: Any, at_ms: int) -> None:
    """Raises `ConfigError` for what contradicts another value of the same place."""
    together = {place.key: value}
    for entry in values.entries:
        other, now = Place.read(entry.place), entry.at(at_ms)
        if other.holder == place.holder and other.key != place.key and now is not None:
            together[other.key] = now.value
    if wrong := check_together(together):
        raise ConfigError(wrong[place.key] if place.key in wrong else next(iter(wrong.values())))
