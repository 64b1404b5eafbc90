"""What `version` and `settings` print."""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbweb.cli import show
from orbweb.cli.options import overrides
from orbweb.errors import ConfigError
from orbweb.settings import DECLARATIONS, Setting, Settings, load_settings
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
)
"""Where values come from; a later one wins."""


def version(*, as_json: bool) -> None:
    """Print the versions that a bug report needs."""
    facts = {
        "orbweb": own_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    if as_json:
        show.as_json(facts)
    else:
        print(f"orbweb {facts['orbweb']} · Python {facts['python']} · {facts['platform']}")


def list_settings(spider: str | None, changes: Sequence[str] | None, *, as_json: bool) -> None:
    """Print every setting with its value and origin."""
    found = _settings(spider, changes)
    if as_json:
        show.as_json([setting_record(found, setting) for setting in DECLARATIONS.values()])
        return
    show.as_table(
        ("SETTING", "VALUE", "UNIT", "FROM"),
        [
            (setting.name, found.shown(setting.name), setting.unit, found.origin(setting.name))
            for setting in DECLARATIONS.values()
        ],
    )
    for line in found.notes:
        show.note(line)
    show.note("more: orbweb settings --explain KEY")


def explain_setting(
    key: str, spider: str | None, changes: Sequence[str] | None, *, as_json: bool
) -> None:
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
    found = _settings(spider, changes)
    record = setting_record(found, setting)
    if as_json:
        show.as_json(record)
        return
    print(f"{setting.name} = {found.shown(setting.name)}   from: {found.origin(setting.name)}")
    print(f"  {setting.text}")
    for label in ("kind", "unit", "default", "choices", "limit", "other_names"):
        if record[label] not in ("", []):
            value = record[label]
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            print(f"  {label.replace('_', ' '):<12}{shown}")
    print("  a later source wins:")
    for number, source in enumerate(PRECEDENCE, 1):
        print(f"    {number}. {source}")


def setting_record(settings: Settings, setting: Setting) -> dict[str, Any]:
    """One setting as JSON; passwords are masked."""
    value = settings[setting.name]
    return {
        "name": setting.name,
        "value": masked(setting.name, value),
        "origin": settings.origin(setting.name),
        "default": setting.default,
        "kind": setting.kind.name,
        "unit": setting.unit,
        "limit": limit_text(setting),
        "choices": list(setting.choices),
        "text": setting.text,
        "other_names": other_names(setting.name),
    }


def limit_text(setting: Setting) -> str:
    """`>= 1`, `> 0, <= 0.5`, or empty."""
    limits = ((">=", setting.low), (">", setting.above), ("<=", setting.most))
    return ", ".join(f"{sign} {value:g}" for sign, value in limits if value is not None)


def other_names(name: str) -> list[str]:
    """Names of other frameworks that mean this setting."""
    return [other for other, ours in SYNONYMS.items() if ours == name]


def _settings(spider: str | None, changes: Sequence[str] | None) -> Settings:
    own, name = None, "spider"
    if spider is not None:
        from orbweb.cli.target import load_spider

        found = load_spider(spider)
        own, name = custom_settings(found), found.__name__
    return load_settings(
        spider_settings=own,
        spider_name=name,
        overrides=overrides(changes, None),
        directory=Path.cwd(),
        environ=os.environ,
    )


def custom_settings(spider: type) -> dict[str, Any]:
    """What a spider class says of settings, by either name."""
    return {
        **(getattr(spider, "__custom_setting__", None) or {}),
        **(getattr(spider, "custom_settings", None) or {}),
    }
