"""What the commands on live values show: those that hold, their history, what differs."""

from __future__ import annotations

from orbweb.cli import show
from orbweb.cli.acts import ends
from orbweb.cli.config import Where
from orbweb.cli.config_words import (
    change_record,
    change_text,
    entry_record,
    headline,
    line_record,
    shown_value,
)
from orbweb.cli.store import ask
from orbweb.config.check import SWITCH_PREFIX
from orbweb.config.place import Place, Scope
from orbweb.config.values import Change, Line, LiveValues
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.settings import DECLARATIONS, Settings
from orbweb.settings.load import USER_PREFIX, masked
from orbweb.spiders.live_admin import LiveAdmin


def list_values(settings: Settings, *, as_json: bool) -> None:
    """All values that hold now."""
    values, at_ms = ask(settings, lambda admin: LiveAdmin(admin.config).read())
    now = [entry for each in values.entries if (entry := each.at(at_ms)) is not None]
    if as_json:
        show.as_json({"version": values.version, "values": [entry_record(each) for each in now]})
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
                shown_value(entry),
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
        show.as_json({"key": place.key, "live": [entry_record(e) for _, e in found], "base": base})
        return
    for its, entry in found:
        end = f", {ends(entry.until_ms, at_ms)}" if entry.until_ms else ""
        tried = f", canary: {entry.canary.text()}" if entry.canary is not None else ""
        why = f" ({entry.why})" if entry.why else ""
        by = f"by {entry.by}{why}, v{entry.version}{end}{tried}"
        print(f"{its.holder:<24} {shown_value(entry)}  {by}")
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
        show.as_json([line_record(line) for line in lines])
        return
    if not lines:
        print("live values have never been changed")
    for line in lines:
        print(headline(line))
        for change in line.changes:
            print(f"  {change_text(change, line.at_ms)}")


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
        show.as_json([change_record(change) for change in changes])
        return
    print(f"v{first} → v{last}{'' if changes else ': the same'}")
    for change in changes:
        print(f"  {change_text(change, 0)}")
