"""Where settings come from: the project file, the environment. Reads, and judges nothing."""

from __future__ import annotations

import runpy
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orbweb.errors import ConfigError

FILE_VARIABLES = ("ORBWEB_SETTING", "NETSPY_SETTING")
"""Environment variables that name a settings file."""

PREFIX = "ORBWEB_"
OLD_PREFIX = "NETSPY_"
OTHER_PREFIXES = ("ORBWEB_TEST_",)
"""Environment variables that are ours but are no settings."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings that came from one place. A later layer wins over an earlier one."""

    origins: Mapping[str, str]
    """Where each came from, in words."""
    values: Mapping[str, Any]
    textual: bool = False
    """The values are text that must be read, from an environment or a command line."""
    strict: bool = True
    """An unknown name is an error, and not only a note."""


def layer(values: Mapping[str, Any] | None, origin: str, *, textual: bool = False) -> Layer:
    """The layer of values that all came from one origin; `ConfigError` when it is no mapping."""
    if values is not None and not isinstance(values, Mapping):
        raise ConfigError(f"{origin} must be a dict, not {type(values).__name__}")
    found = dict(values or {})
    for name in found:
        if not isinstance(name, str):
            raise ConfigError(f"{origin}: the name of a setting is text, not {name!r}")
    return Layer(dict.fromkeys(found, origin), found, textual)


def file_layer(directory: Path, environ: Mapping[str, str]) -> tuple[Layer, list[str]]:
    """The project file's settings, and notes about files that were passed over.

    The file is the one that `ORBWEB_SETTING` or `NETSPY_SETTING` names, else the first that is
    there of `orbweb.toml`, `pyproject.toml` with `[tool.orbweb]`, `setting.py`, `settings.py`.
    """
    for variable in FILE_VARIABLES:
        if named := environ.get(variable):
            return _named_layer(directory / named, variable), []
    found = [
        (path, values)
        for path, values in (
            (directory / "orbweb.toml", _toml_values),
            (directory / "pyproject.toml", _pyproject_values),
            (directory / "setting.py", _python_values),
            (directory / "settings.py", _python_values),
        )
        if path.is_file() and (values is not _pyproject_values or "orbweb" in _tools(path))
    ]
    if not found:
        return layer({}, ""), []
    (path, read), *others = found
    notes = [f"{other.name} is not read, because {path.name} is there" for other, _ in others]
    return layer(read(path), f"file {path.name}"), notes


def environment_layers(environ: Mapping[str, str]) -> list[Layer]:
    """The layers of `NETSPY_<KEY>` (unknown ones are only noted) and of `ORBWEB_<KEY>`."""
    return [
        _environment_layer(environ, OLD_PREFIX, strict=False),
        _environment_layer(environ, PREFIX, strict=True),
    ]


def _environment_layer(environ: Mapping[str, str], prefix: str, *, strict: bool) -> Layer:
    names = [
        name
        for name in environ
        if name.startswith(prefix)
        and name not in FILE_VARIABLES
        and not name.startswith(OTHER_PREFIXES)
    ]
    values = {name.removeprefix(prefix): environ[name] for name in names}
    origins = {name.removeprefix(prefix): f"environment {name}" for name in names}
    return Layer(origins, values, textual=True, strict=strict)


def _named_layer(path: Path, variable: str) -> Layer:
    if not path.is_file():
        raise ConfigError(f"{variable} names {path}, and there is no such file")
    if path.suffix == ".py":
        return layer(_python_values(path), f"file {path.name}")
    read = _pyproject_values if path.name == "pyproject.toml" else _toml_values
    return layer(read(path), f"file {path.name}")


def _toml_values(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _tools(path: Path) -> dict[str, Any]:
    tools = _toml_values(path).get("tool", {})
    return tools if isinstance(tools, dict) else {}


def _pyproject_values(path: Path) -> dict[str, Any]:
    values = _tools(path).get("orbweb", {})
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: tool.orbweb must be a table")
    return values


def _python_values(path: Path) -> dict[str, Any]:
    """Names in capitals of a Python file, which is executed."""
    try:
        names = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{path} cannot be executed: {type(error).__name__}: {error}") from error
    return {
        name: value
        for name, value in names.items()
        if (name.isupper() or name == "thread_count") and not name.startswith("_")
    }
