"""What `version` and `settings` print."""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbweb.cli import show
from orbweb.cli.options import overrides
from orbweb.cli.places import place_of
from orbweb.errors import ConfigError
from orbweb.settings import DECLARATIONS, Setting, Settings, When, load_settings
from orbweb.settings.load import masked
from orbweb.settings.names import NEEDLESS, SYNONYMS
from orbweb.settings.version import own_version

PRECEDENCE = (
    "default",
    "project file (orbweb.toml, [tool.orbweb] of pyproject.toml, setting.py, settings.py)",
    "environment NETSPY_<KEY>",
    "environment ORBWEB_<KEY>",
    "custom_settings of the spider",
    "arguments of the spider's constructor",
    "command line (-s KEY=VALUE)",
    "live values (orbweb config), of hot settings",
)
"""Where values come from; a later one wins."""

WHEN_TEXTS = {
    When.HOT: "at once, in nodes that run (orbweb config)",
    When.NEXT_RUN: "with the next run of the job",
    When.RESTART: "at the next start of a node",
}


def version(*, as_json: bool, packages: bool = False) -> None:
    """Print the versions that a bug report needs; `packages`: also those of what is used."""
    facts = {
        "orbweb": own_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    if packages:
        from orbweb.cli.packages import package_versions

        facts |= package_versions()
    if as_json:
        show.as_json(facts)
        return
    print(f"orbweb {facts['orbweb']} · Python {facts['python']} · {facts['platform']}")
    for name in list(facts)[3:]:
        print(f"  {name:<22}{facts[name]}")


def list_settings(asked: Asked) -> None:
    """Print every setting with its value and origin."""
    view, as_json = _view(asked), asked.as_json
    if as_json:
        show.as_json([setting_record(view, setting) for setting in DECLARATIONS.values()])
        return
    show.as_table(
        ("SETTING", "VALUE", "UNIT", "FROM"),
        [
            (setting.name, view.found.shown(setting.name), setting.unit, view.place(setting.name))
            for setting in DECLARATIONS.values()
        ],
    )
    for line in view.found.notes:
        show.note(line)
    show.note("more: orbweb settings --explain KEY")


def explain_setting(key: str, asked: Asked) -> None:
    """Print all that is known of one setting. Raises `ConfigError` for an unknown one."""
    name = SYNONYMS.get(key, key).upper()
    if key.upper() in NEEDLESS:
        print(f"{key.upper()} has no effect: {NEEDLESS[key.upper()]}")
        return
    setting = DECLARATIONS.get(SYNONYMS.get(name, name))
    if setting is None:
        close = difflib.get_close_matches(name, [*DECLARATIONS, *SYNONYMS], n=1)
        raise ConfigError(
            f"unknown setting {key}" + (f"; did you mean {close[0]}?" if close else "")
        )
    view = _view(asked)
    record = setting_record(view, setting)
    if asked.as_json:
        show.as_json(record)
        return
    print(f"{setting.name} = {view.found.shown(setting.name)}   from: {view.place(setting.name)}")
    print(f"  {setting.text}")
    for label in ("kind", "unit", "default", "choices", "limit", "counts", "other_names"):
        if record[label] not in ("", []):
            value = record[label]
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            print(f"  {label.replace('_', ' '):<12}{shown}")
    for number, source in enumerate(record["sources"]):
        label = "overrides" if number == 1 else "value" if not number else ""
        print(f"  {label:<12}{source['value']!r:<12} {source['place']}")
    for source in record["some"]:
        print(f"  {'for some':<12}{source['value']!r:<12} {source['place']}")
    print("  a later source wins:")
    for number, text in enumerate(PRECEDENCE, 1):
        print(f"    {number}. {text}")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for on the command line."""

    spider: str | None = None
    changes: tuple[str, ...] = ()
    store: str | None = None
    live: bool = False
    """With the live values of the store."""
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """The settings of this directory, as a spider sees them or without one."""

    found: Settings
    spider: type | None = None
    some: Mapping[str, Sequence[dict[str, Any]]] = field(default_factory=dict)
    """By setting the live values that hold for some nodes, hosts or runs only."""

    def place(self, name: str, origin: str | None = None) -> str:
        """Where the value comes from, or one that it overrides, with file and line."""
        origin = self.found.origin(name) if origin is None else origin
        return place_of(name, origin, self.spider, Path.cwd(), os.environ)

    def sources(self, name: str) -> list[dict[str, Any]]:
        """All places that give it a value; the first one wins. Passwords are masked."""
        return [
            {"place": self.place(name, origin), "value": masked(name, value)}
            for origin, value in self.found.sources(name)
        ]


def setting_record(view: View, setting: Setting) -> dict[str, Any]:
    """One setting as JSON; passwords are masked."""
    return {
        "name": setting.name,
        "value": masked(setting.name, view.found[setting.name]),
        "origin": view.found.origin(setting.name),
        "place": view.place(setting.name),
        "sources": view.sources(setting.name),
        "some": list(view.some.get(setting.name, ())),
        "default": setting.default,
        "kind": setting.kind.name,
        "unit": setting.unit,
        "limit": limit_text(setting),
        "choices": list(setting.choices),
        "counts": counts_text(setting),
        "text": setting.text,
        "other_names": other_names(setting.name),
    }


def counts_text(setting: Setting) -> str:
    """When a change of the setting counts."""
    return WHEN_TEXTS[setting.when]


def limit_text(setting: Setting) -> str:
    """`>= 1`, `> 0, <= 0.5`, or empty."""
    limits = ((">=", setting.low), (">", setting.above), ("<=", setting.most))
    return ", ".join(f"{sign} {value:g}" for sign, value in limits if value is not None)


def other_names(name: str) -> list[str]:
    """Names of other frameworks that mean this setting."""
    return [other for other, ours in SYNONYMS.items() if ours == name]


def _view(asked: Asked) -> View:
    own, kind = None, None
    if asked.spider is not None:
        from orbweb.cli.target import load_spider

        kind = load_spider(asked.spider)
        own = kind.class_settings()
    found = load_settings(
        spider_settings=own,
        spider_name=kind.__name__ if kind is not None else "spider",
        overrides=overrides(asked.changes, asked.store),
        directory=Path.cwd(),
        environ=os.environ,
    )
    if not asked.live:
        return View(found, kind)
    from orbweb.cli.live_view import with_live

    found, some = with_live(found, kind.name if kind is not None else None)
    return View(found, kind, some)
