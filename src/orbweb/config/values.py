"""The live values of a store: each with its author, reason, end and canary; and their history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

import msgspec

from orbweb.config.place import Place
from orbweb.errors import ConfigError

MOST_ENTRIES = 1000
"""More values than this are not kept: they are read and resolved by every node."""


class Canary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nodes for which a value holds while it is tried out."""

    nodes: tuple[str, ...] = ()
    percent: float = 0.0
    """Instead of names: this part of all nodes, also of those that come later."""

    def takes(self, node: str) -> bool:
        """Whether a node belongs to it."""
        if self.nodes:
            return node in self.nodes
        return crc32(node.encode()) % 10_000 < self.percent * 100

    def text(self) -> str:
        """`25 %`, or the beginnings of the nodes' names."""
        if self.nodes:
            return ", ".join(node[:8] for node in self.nodes)
        return f"{self.percent:g} %"


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One live value. Times are the store's wall clock in ms."""

    place: str
    value: Any
    by: str = ""
    why: str = ""
    at_ms: int = 0
    until_ms: int = 0
    """When it ends; 0 = never."""
    canary: Canary | None = None
    version: int = 0
    """The version that brought it."""
    beneath: Entry | None = None
    """What holds again when it has ended."""

    @property
    def slot(self) -> tuple[str, bool]:
        """What it takes the place of: a canary stands beside the value for all others."""
        return self.place, self.canary is not None

    def at(self, now_ms: int) -> Entry | None:
        """This, or what lies beneath when its time is over."""
        entry: Entry | None = self
        while entry is not None and entry.until_ms and entry.until_ms <= now_ms:
            entry = entry.beneath
        return entry


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one value in a version."""

    before: Entry | None = None
    after: Entry | None = None

    @property
    def one(self) -> Entry:
        """That of the two that is there; the later one."""
        entry = self.after or self.before
        assert entry is not None
        return entry


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version in the history."""

    version: int
    at_ms: int
    by: str
    verb: str
    """`set`, `unset`, `promote`, `rollback` or `expire`."""
    changes: tuple[Change, ...] = ()
    why: str = ""

    def pack(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def unpack(cls, text: bytes) -> Line:
        """What is no line of this version has the version 0, and says so instead of its reason."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            return cls(0, 0, "?", "unreadable", why=f"this line cannot be read: {error}")


class LiveValues(msgspec.Struct, frozen=True):
    """All values of one version. Never changes: each act makes the next version."""

    version: int = 0
    entries: tuple[Entry, ...] = ()

    def pack(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def unpack(cls, text: bytes) -> LiveValues:
        """Raises `ConfigError` for what no version of Orbweb has written."""
        if not text:
            return cls()
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise ConfigError(f"the live values in the store cannot be read: {error}") from error

    def find(self, place: Place | str, *, canary: bool = False) -> Entry | None:
        """The value at a place."""
        slot = (str(place), canary)
        return next((entry for entry in self.entries if entry.slot == slot), None)

    def ends_ms(self, now_ms: int) -> int:
        """When the next of them ends; 0 = never. One that has ended counts: it is to be removed."""
        return min((entry.until_ms for entry in self.entries if entry.until_ms), default=0)

    # -- acts: each gives the next version, and the line that records it

    def put(self, new: Entry, verb: str = "set") -> tuple[LiveValues, Line]:
        """Let a value hold; one with an end has what was there before beneath it."""
        old = self.find(new.place, canary=new.canary is not None)
        old = old.at(new.at_ms) if old is not None else None
        beneath = _beneath(old, new.at_ms, new.until_ms)
        kept = msgspec.structs.replace(new, version=self.version + 1, beneath=beneath)
        return self._next([Change(old, kept)], new.by, new.why, new.at_ms, verb)

    def take_away(
        self, place: Place, by: str, why: str, at_ms: int, *, canary: bool = False
    ) -> tuple[LiveValues, Line]:
        """Let nothing hold at a place; `canary`: only end the trial. Raises `ConfigError`."""
        gone = [
            Change(entry, None)
            for entry in self.entries
            if entry.place == str(place) and (entry.canary is not None or not canary)
        ]
        if not gone:
            what = "canary" if canary else "live value"
            raise ConfigError(f"there is no {what} of {place}: orbweb config list shows all")
        return self._next(gone, by, why, at_ms, "unset")

    def promote(self, place: Place, by: str, why: str, at_ms: int) -> tuple[LiveValues, Line]:
        """Let a canary's value hold for all. Raises `ConfigError` when there is none."""
        tried = self.find(place, canary=True)
        tried = tried.at(at_ms) if tried is not None else None
        if tried is None:
            raise ConfigError(f"{place} has no canary that could be promoted")
        old = self.find(place)
        after = msgspec.structs.replace(
            tried,
            canary=None,
            by=by,
            why=why or tried.why,
            at_ms=at_ms,
            version=self.version + 1,
            beneath=_beneath(old, at_ms, tried.until_ms),
        )
        changes = [Change(tried, None), Change(old, after)]
        return self._next(changes, by, why, at_ms, "promote")

    def expire(self, at_ms: int) -> tuple[LiveValues, Line] | None:
        """Remove what has ended; None when nothing has."""
        ended = [Change(each, each.at(at_ms)) for each in self.entries if each.at(at_ms) != each]
        if not ended:
            return None
        return self._next(ended, "orbweb", "its time is over", at_ms, "expire")

    def back_to(
        self, version: int, lines: Iterable[Line], by: str, why: str, at_ms: int
    ) -> tuple[LiveValues, Line]:
        """Let the values of an earlier version hold again, but none whose time is over.

        `lines`: the history, the latest first. Raises `ConfigError` when it does not reach so far.
        """
        now = {entry.slot: entry for entry in self.entries}
        then = {entry.slot: entry for entry in self.as_of(version, lines).entries}
        changes = []
        for slot in {**now, **then}:
            before, after = now.get(slot), then.get(slot)
            after = after.at(at_ms) if after is not None else None
            if before != after:
                changes.append(Change(before, after))
        if not changes:
            raise ConfigError(f"the values of version {version} hold already")
        return self._next(changes, by, why or f"back to version {version}", at_ms, "rollback")

    def as_of(self, version: int, lines: Iterable[Line]) -> LiveValues:
        """The values of an earlier version. See `back_to`."""
        if not 0 <= version <= self.version:
            raise ConfigError(f"there is no version {version}; the present one is {self.version}")
        then = {entry.slot: entry for entry in self.entries}
        at = self.version
        for line in lines:
            if at == version or 0 < line.version <= version:
                break
            if not line.version:
                raise ConfigError(
                    f"what changed in version {at} cannot be read, so what held before it is not "
                    f"known; the present version is {self.version}"
                )
            for change in line.changes:
                if change.after is not None:
                    then.pop(change.after.slot, None)
            for change in line.changes:
                if change.before is not None:
                    then[change.before.slot] = change.before
            at = line.version - 1
        if at != version:
            raise ConfigError(
                f"version {version} is not in the history, which goes back to {at}; "
                f"the present one is {self.version}"
            )
        return LiveValues(version, tuple(then[slot] for slot in sorted(then)))

    def _next(
        self, changes: list[Change], by: str, why: str, at_ms: int, verb: str
    ) -> tuple[LiveValues, Line]:
        entries = {entry.slot: entry for entry in self.entries}
        for change in changes:
            if change.before is not None:
                entries.pop(change.before.slot, None)
        for change in changes:
            if change.after is not None:
                entries[change.after.slot] = change.after
        if len(entries) > MOST_ENTRIES:
            raise ConfigError(
                f"there are {MOST_ENTRIES} live values already: take some away first "
                "(orbweb config unset)"
            )
        version = self.version + 1
        line = Line(version, at_ms, by, verb, tuple(changes), why)
        return LiveValues(version, tuple(entries[slot] for slot in sorted(entries))), line


def _beneath(old: Entry | None, at_ms: int, until_ms: int) -> Entry | None:
    """What is to hold again when a value ends that takes the place of `old` until then."""
    old = old.at(at_ms) if old is not None else None
    if not until_ms or old is None:
        return None
    lasting = not old.until_ms or old.until_ms > until_ms
    return old if lasting else old.beneath
