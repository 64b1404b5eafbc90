"""Live values in words, as records, and as the command that takes a change back."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from orbweb.cli import show
from orbweb.cli.acts import because, ends, lasting
from orbweb.config.place import Place, Scope
from orbweb.config.values import Change, Entry, Line
from orbweb.settings.load import masked
from orbweb.spiders.live_admin import Done


def headline(line: Line) -> str:
    """Which version a change made, who made it, when and why."""
    why = f": {line.why}" if line.why else ""
    return f"v{line.version} {line.verb} by {line.by}, {show.moment(line.at_ms)}{why}"


def change_text(change: Change, at_ms: int) -> str:
    """What held at a place, and what holds; an end as seen at `at_ms` (0: at the change)."""
    one = change.one
    place = Place.read(one.place)
    old = "–" if change.before is None else shown_value(change.before)
    new = "–" if change.after is None else shown_value(change.after)
    text = f"{place.key} [{place.holder}]  {old} → {new}"
    if change.after is not None and change.after.until_ms:
        text += f"  {ends(change.after.until_ms, at_ms or change.after.at_ms)}"
    return f"{text}  canary: {one.canary.text()}" if one.canary is not None else text


def shown_value(entry: Entry) -> str:
    """A value as people may see it."""
    value = masked(Place.read(entry.place).key, entry.value)
    return _typed(value)


def _typed(value: Any) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return json.dumps(list(value))
    return value if isinstance(value, str) else json.dumps(value)


def undo(done: Done) -> list[str]:
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


def entry_record(entry: Entry) -> dict[str, Any]:
    """A value for `--json`."""
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


def change_record(change: Change) -> dict[str, Any]:
    """A change for `--json`."""
    return {
        "place": change.one.place,
        "before": None if change.before is None else entry_record(change.before),
        "after": None if change.after is None else entry_record(change.after),
    }


def line_record(line: Line) -> dict[str, Any]:
    """A version for `--json`."""
    return {
        "version": line.version,
        "verb": line.verb,
        "at_ms": line.at_ms,
        "by": line.by,
        "why": line.why,
        "changes": [change_record(change) for change in line.changes],
    }
