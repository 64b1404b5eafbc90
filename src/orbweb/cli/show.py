"""How commands print: data to stdout, aligned for people or as JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import typer

from orbweb.errors import ConfigError
from orbweb.spiders.wording import counted, duration, number

__all__ = [
    "agree",
    "as_json",
    "as_table",
    "counted",
    "duration",
    "moment",
    "note",
    "number",
    "size",
]

RIGHT = (int, float)


def as_json(value: Any) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def as_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows in aligned columns under upper-case headings; numbers stand on the right."""
    kept = [tuple(row) for row in rows]
    texts = [[_cell(value) for value in row] for row in kept]
    widths = [max(len(text) for text in column) for column in zip(head, *texts, strict=True)]
    numeric = [
        bool(kept) and all(isinstance(value, RIGHT) for value in column)
        for column in zip(*kept, strict=True)
    ] or [False] * len(head)
    for cells in [list(head), *texts]:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        print("  ".join(padded).rstrip())


def moment(at_ms: int) -> str:
    """Local date and time; empty for 0."""
    if not at_ms:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def size(bytes_: int) -> str:
    """`740 B`, `12.3 kB`, `1.5 MB`, `20.1 GB`."""
    if bytes_ < 1000:
        return f"{bytes_} B"
    power = min(3, len(str(bytes_)) // 3 - (len(str(bytes_)) % 3 == 0))
    return f"{bytes_ / 1000**power:.1f} {('kB', 'MB', 'GB')[power - 1]}"


def agree(question: str, yes: bool) -> bool:
    """Ask before an act that cannot be taken back; with `--yes` only say it.

    Raises `ConfigError` when nobody can be asked.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody is here to answer; --yes goes ahead")
    return typer.confirm(question, default=False, err=True)


def note(text: str) -> None:
    """A remark for a person, on stderr."""
    print(text, file=sys.stderr)


def _cell(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    return str(value)
