"""Options that several commands share, and the settings that follow from them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbweb.errors import ConfigError

if TYPE_CHECKING:
    from orbweb.settings import Settings

Job = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Name of the job: the spider's redis_key or class name."),
]
RunId = Annotated[
    str | None, typer.Option("--run-id", metavar="ID", help="This run; default: the latest.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
All = Annotated[bool, typer.Option("--all", help="All of the run.")]
To = Annotated[
    str | None, typer.Option("--to", metavar="URL", help="The database; default: SQL_URL.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Set = Annotated[
    list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Change a setting.")
]
Store = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="The store, as REDIS_URL; default: the settings."),
]


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a dict; `ConfigError` for a text without `=` or a key given twice."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise ConfigError(f"{option} {text}: NAME=VALUE is wanted")
        if key in found:
            raise ConfigError(f"{option} {key} is given twice")
        found[key] = value
    return found


def overrides(changes: Sequence[str] | None, store: str | None) -> dict[str, str]:
    """What the command line says of settings."""
    found = pairs(changes, "-s")
    if store is not None:
        if "REDIS_URL" in found:
            raise ConfigError("--store and -s REDIS_URL mean the same: keep one")
        found["REDIS_URL"] = store
    return found


def project_settings(changes: Sequence[str] | None, store: str | None) -> Settings:
    """Settings of the working directory without a spider."""
    from orbweb.settings import load_settings

    return load_settings(
        overrides=overrides(changes, store), directory=Path.cwd(), environ=os.environ
    )
