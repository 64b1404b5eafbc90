"""Settings as nodes see them now: with the live values of the store (`orbweb config`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from orbweb.cli.store import ask
from orbweb.config.place import Place, Scope
from orbweb.config.values import Entry, LiveValues
from orbweb.settings import Settings
from orbweb.settings.load import masked
from orbweb.spiders.live_admin import LiveAdmin

Some = dict[str, list[dict[str, Any]]]
"""By setting what holds for some nodes, hosts or runs only."""


class SettingsNow(NamedTuple):
    """Settings of a job, and what differs for a part of it."""

    settings: Settings
    some: Some


def with_live(settings: Settings, job: str | None) -> SettingsNow:
    """The settings with the live values that hold for all, and for this job.

    Raises `ConfigError` when there is no store, `StoreUnavailable`.
    """
    values, at_ms = ask(settings, lambda admin: LiveAdmin(admin.config).read())
    return applied(settings, values, at_ms, job)


def applied(settings: Settings, values: LiveValues, at_ms: int, job: str | None) -> SettingsNow:
    """See `with_live`; pure."""
    some: Some = {}
    holding: list[tuple[Place, Entry]] = []
    for each in values.entries:
        entry, place = each.at(at_ms), Place.read(each.place)
        if entry is None or place.key not in settings:
            continue
        whole = place.scope is Scope.GLOBAL or (place.scope is Scope.JOB and place.whose == job)
        if whole and entry.canary is None:
            holding.append((place, entry))
        elif place.scope is not Scope.JOB or place.whose == job or job is None:
            value = masked(place.key, entry.value)
            some.setdefault(place.key, []).append({"place": _origin(place, entry), "value": value})
    for place, entry in sorted(holding, key=lambda pair: pair[0].scope):
        settings = settings.changed({place.key: entry.value}, {place.key: _origin(place, entry)})
    return SettingsNow(settings, some)


def _origin(place: Place, entry: Entry) -> str:
    tried = f", canary: {entry.canary.text()}" if entry.canary is not None else ""
    return f"live v{entry.version} ({place.holder}{tried}) by {entry.by}"
