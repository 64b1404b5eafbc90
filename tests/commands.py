"""All commands of the program, as typer makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from orbweb.cli.app import app


def leaves() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command that does something: its words, and the command; hidden ones too."""
    yield from _leaves((), get_command(app))


def _leaves(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    commands = getattr(command, "commands", None)
    if commands is None:
        yield words, command
        return
    for name, each in commands.items():
        yield from _leaves((*words, name), each)


def flags(command: Any) -> set[str]:
    """All that a command understands: --json, -s and so on."""
    return {flag for parameter in command.params for flag in parameter.opts}


def wanted(command: Any) -> list[str]:
    """What must stand on the command line besides the words."""
    words: list[str] = []
    for parameter in command.params:
        if parameter.required:
            flag = [parameter.opts[0]] if parameter.opts[0].startswith("-") else []
            words += [*flag, "word"]
    return words
