"""Puts the layers of settings together: names, kinds and limits are checked here, once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbweb.errors import ConfigError
from orbweb.log import (
    MASK,
    SECRET_WORDS,
    is_secret_name,
    mask_address,
    mask_hook,
    mask_secrets,
)
from orbweb.settings.declarations import DECLARATIONS, Setting
from orbweb.settings.kinds import FALSE_WORDS, NotThisKind
from orbweb.settings.names import (
    DEDUP_FILTERS,
    NEEDLESS,
    PIPELINES,
    SYNONYMS,
    is_deferred,
)
from orbweb.settings.sources import Layer, environment_layers, file_layer, layer

REDIS_URLS = ("REDIS_URL", "ITEM_REDIS_URL")
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
HOOKS = frozenset(
    {
        "ALERTS_CHANNELS",
        "ALERTS_HEARTBEAT_URL",
        "WARNING_DINGTALK_WEBHOOK",
        "WARNING_FEISHU_WEBHOOK",
        "WARNING_WECHAT_WEBHOOK",
    }
)
"""Settings with addresses whose path or query is itself the secret."""

NOT_READ = (
    "REDIS_URL in the environment is not read, ORBWEB_REDIS_URL would be: without it nodes share "
    'the store of their directory. If that is meant, say so: REDIS_URL = "" in orbweb.toml'
)
"""What is said to who exports the address of a store as for other frameworks."""

WEB_SCHEMES = ("http://", "https://")
USER_PREFIX = "X_"

_OPTION = re.compile(rf"([\w.-]*{SECRET_WORDS}[\w.-]*\s*=)[^,]*", re.IGNORECASE)


class Settings(Mapping[str, Any]):
    """All settings of one spider instance. Never changes; every declared name has a value.

    Keys that start with `X_` are the user's own. Passwords are masked in `repr`.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        origins: Mapping[str, str],
        notes: Iterable[str] = (),
        given: Mapping[str, Sequence[tuple[str, Any]]] | None = None,
    ) -> None:
        """`given`: see `sources`."""
        self._values = dict(values)
        self._origins = dict(origins)
        self._given = dict(given or {})
        self.notes = tuple(notes)
        """Lines that a person should see once: settings that have no effect, and why."""

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def origin(self, name: str) -> str:
        """Where the value came from, in words: "default", "environment ORBWEB_X" and so on."""
        if name not in self._values:
            raise KeyError(name)
        return self._origins.get(name, "default")

    def changed(self, values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
        """These settings with other values, whose origins are given in words."""
        given = {
            name: (*self._given.get(name, ()), (origins[name], values[name])) for name in values
        }
        return Settings(
            {**self._values, **values},
            {**self._origins, **origins},
            self.notes,
            {**self._given, **given},
        )

    def sources(self, name: str) -> list[tuple[str, Any]]:
        """All places that give the setting a value, each with it; the first one wins."""
        if name not in self._values:
            raise KeyError(name)
        found = list(reversed(self._given.get(name, ())))
        setting = DECLARATIONS.get(name)
        return found if setting is None else [*found, ("default", setting.default)]

    def shown(self, name: str) -> str:
        """The value as people may see it: passwords are masked."""
        return repr(masked(name, self._values[name]))

    def __repr__(self) -> str:
        chosen = (f"{name}={self.shown(name)}" for name in self._origins)
        return f"Settings({', '.join(chosen)})"


def masked(name: str, value: Any) -> Any:
    """A setting's value, or what was meant for one, as people may see it."""
    if isinstance(value, Mapping):
        return {key: masked(f"{name}.{key}", part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(masked(name, part) for part in value)
    if not isinstance(value, str) or not value:
        return value
    if is_secret_name(name):
        return MASK
    setting = DECLARATIONS.get(name)
    if setting is None or not setting.secret:
        return mask_secrets(value)
    if name.endswith("_HEADERS"):
        return f"{value.partition('=')[0]}={MASK}"
    if name in HOOKS:
        return mask_hook(value)
    if "://" not in value and (options := _OPTION.sub(rf"\1{MASK}", value)) != value:
        return options
    return mask_address(value)


@dataclass(slots=True)
class _Draft:
    """What has been read so far."""

    values: dict[str, Any]
    origins: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    given: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)


def load_settings(
    *,
    spider_settings: Mapping[str, Any] | None = None,
    spider_name: str = "spider",
    arguments: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    directory: Path,
    environ: Mapping[str, str],
) -> Settings:
    """The settings of one spider instance; later wins.

    Default, project file in `directory`, `NETSPY_<KEY>`, `ORBWEB_<KEY>`, `spider_settings` (the
    class's `custom_settings`), `arguments` (of its constructor), `overrides` (the command line;
    text is read as in the environment). Raises `ConfigError` that names the value, where it came
    from and what would be right.
    """
    from_file, notes = file_layer(directory, environ)
    draft = _Draft({name: setting.default for name, setting in DECLARATIONS.items()}, notes=notes)
    for source in (
        from_file,
        *environment_layers(environ),
        layer(spider_settings, f"{spider_name}.custom_settings"),
        layer(arguments, f"{spider_name}(...)"),
        layer(overrides, "command line", textual=True),
    ):
        _apply(draft, source)
    if "REDIS_URL" not in draft.origins and environ.get("REDIS_URL"):
        draft.notes.append(NOT_READ)
    return Settings(draft.values, draft.origins, draft.notes, draft.given)


def _apply(draft: _Draft, source: Layer) -> None:
    taken: dict[str, str] = {}
    for given, value in source.values.items():
        origin = source.origins[given]
        name = _known_name(draft, given, value, origin, strict=source.strict)
        if name is None:
            continue
        if name in taken:
            raise ConfigError(f"{given} and {taken[name]} mean the same ({origin}): keep {name}")
        taken[name] = given
        draft.values[name] = _read(draft, name, given, value, origin, textual=source.textual)
        draft.origins[name] = origin
        draft.given.setdefault(name, []).append((origin, draft.values[name]))


def _known_name(draft: _Draft, given: str, value: Any, origin: str, *, strict: bool) -> str | None:
    """The name under which the value counts, or None when it has no effect."""
    name = SYNONYMS.get(given, given)
    if name in DECLARATIONS or name.startswith(USER_PREFIX):
        return name
    if name in NEEDLESS:
        draft.notes.append(f"{given} ({origin}) has no effect: {NEEDLESS[name]}")
        return None
    if is_deferred(name):
        if not value or str(value).strip().lower() in FALSE_WORDS:
            return None
        raise ConfigError(
            f"{given} ({origin}) belongs to a feature that this version does not have; remove it"
        )
    if strict:
        raise ConfigError(f"unknown setting {given!r} ({origin}){_hint(given)}")
    draft.notes.append(f"{origin} is no setting and has no effect{_hint(given)}")
    return None


def read_setting(given: str, value: Any, origin: str, *, textual: bool) -> tuple[str, Any]:
    """The name under which one setting counts, and its value in its final type.

    `textual`: text is read as in the environment. Raises `ConfigError` that names what is wrong,
    also for a name that is unknown or has no effect.
    """
    draft = _Draft({})
    name = _known_name(draft, given, value, origin, strict=True)
    if name is None:
        raise ConfigError("; ".join(draft.notes) or f"{given} ({origin}) has no effect")
    return name, _read(draft, name, given, value, origin, textual=textual)


def _hint(given: str) -> str:
    close = difflib.get_close_matches(given.upper(), [*DECLARATIONS, *SYNONYMS], n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; keys of your own begin with {USER_PREFIX}"


def _read(draft: _Draft, name: str, given: str, value: Any, origin: str, *, textual: bool) -> Any:
    if name.startswith(USER_PREFIX):
        return value
    setting = DECLARATIONS[name]
    where = f"{given} = {masked(name, value)!r} ({origin})"
    try:
        kind = setting.kind
        known = kind.parse(value) if textual and isinstance(value, str) else kind.check(value)
    except NotThisKind as error:
        raise ConfigError(f"{where}: {error}, for example {setting.kind.example}") from None
    if name == "DEDUP_FILTER":
        known = DEDUP_FILTERS.get(known, known)
    if name == "ITEM_PIPELINES":
        known = _our_pipelines(draft, known, origin)
    if setting.name == "LOG_LEVEL":
        known = known.upper()
    _check_limits(setting, known, where)
    return known


def _our_pipelines(draft: _Draft, paths: Sequence[str], origin: str) -> tuple[str, ...]:
    for path in paths:
        if path in PIPELINES:
            draft.notes.append(f"ITEM_PIPELINES ({origin}): {path} is {PIPELINES[path]} here")
    return tuple(PIPELINES.get(path, path) for path in paths)


def _check_limits(setting: Setting, value: Any, where: str) -> None:
    unit = f" {setting.unit}" if setting.unit else ""
    if setting.low is not None and value < setting.low:
        raise ConfigError(f"{where}: {setting.low:g}{unit} is the least")
    if setting.above is not None and value <= setting.above:
        raise ConfigError(f"{where}: it must be more than {setting.above:g}{unit}")
    if setting.most is not None and value > setting.most:
        raise ConfigError(f"{where}: {setting.most:g}{unit} is the most")
    if setting.choices and value not in setting.choices:
        raise ConfigError(f"{where}: choose one of {', '.join(setting.choices)}")
    if setting.name in REDIS_URLS and value and not value.startswith(REDIS_SCHEMES):
        raise ConfigError(f"{where}: the address begins with one of {', '.join(REDIS_SCHEMES)}")
    if setting.name == "ALERTS_HEARTBEAT_URL" and value and not value.startswith(WEB_SCHEMES):
        raise ConfigError(f"{where}: the address begins with http:// or https://")
    named = setting.name == "USER_AGENT" or (setting.name == "ROBOTS_USER_AGENT" and value)
    if named and not (value.isprintable() and value.split("/")[0].strip()):
        raise ConfigError(f"{where}: it begins with a name, for example mybot/1.0, and is one line")
    if setting.name == "REDIS_KEY_PREFIX" and (not value or set(value) & set("{} \n\t")):
        raise ConfigError(f"{where}: a prefix has at least one character, no spaces, no braces")
