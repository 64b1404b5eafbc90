"""The program that typer makes of our commands, made only as far as a command line needs it."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Sequence
from typing import Any

import typer
from typer.main import get_command
from typer.models import CommandInfo

COMPLETION = "_ORBWEB_COMPLETE"
"""The shell sets it to ask what could follow: then every option of every command counts."""


def program(app: typer.Typer, arguments: Sequence[str]) -> Any:
    """The command object for a command line.

    Making all commands with all their options takes longer than most of them run: so the one
    that the command line names is made alone, and without one all are made with names and texts
    only, which is what the list of commands and a typing error need.
    """
    wanted = app if COMPLETION in os.environ else _part(app, arguments)
    return get_command(wanted)


def _part(app: typer.Typer, arguments: Sequence[str]) -> typer.Typer:
    name = arguments[0] if arguments else ""
    commands = [info for info in app.registered_commands if name_of(info) == name]
    groups = [info for info in app.registered_groups if info.name == name]
    part = copy.copy(app)
    if commands or groups:
        part.registered_commands, part.registered_groups = commands, groups
    else:
        part.registered_commands = [_outline(info) for info in app.registered_commands]
        part.registered_groups = [_outline_group(info) for info in app.registered_groups]
    return part


def name_of(info: CommandInfo) -> str:
    """The name under which a command is typed."""
    return info.name or str(getattr(info.callback, "__name__", "")).replace("_", "-")


def _outline(info: CommandInfo) -> CommandInfo:
    outline = copy.copy(info)
    outline.name = name_of(info)
    outline.help = info.help or inspect.getdoc(info.callback)
    outline.callback = _nothing
    return outline


def _outline_group(info: Any) -> Any:
    outline = copy.copy(info)
    outline.typer_instance = copy.copy(info.typer_instance)
    outline.typer_instance.registered_commands = []
    outline.typer_instance.registered_groups = []
    return outline


def _nothing() -> None:
    """Stands for a command that is listed and not called."""
