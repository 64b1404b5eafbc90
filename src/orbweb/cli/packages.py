"""Which versions are installed of the packages that this one uses."""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

DEVELOPMENT = "dev"
"""The extra whose packages are used by tests only."""


def package_versions() -> dict[str, str]:
    """By name, those of the extras among them; what is not installed is left out."""
    found = {}
    for name in sorted({_name(each) for each in _required()}):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _required() -> list[str]:
    try:
        required = metadata.requires("orbweb") or []
    except metadata.PackageNotFoundError:
        return _of_source_tree()
    return [each for each in required if f"extra == '{DEVELOPMENT}'" not in each.replace('"', "'")]


def _of_source_tree() -> list[str]:
    project: dict[str, Any] = {}
    with suppress(OSError, tomllib.TOMLDecodeError):
        text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text).get("project", {})
    extras: dict[str, list[str]] = project.get("optional-dependencies", {})
    more = [each for name, names in extras.items() if name != DEVELOPMENT for each in names]
    return [*project.get("dependencies", ()), *more]


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()
