"""JSON Lines files, one a table: the default pipeline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any, Self

import msgspec

from orbweb.errors import ItemError
from orbweb.pipelines.base import BasePipeline, Row
from orbweb.pipelines.files import (
    append,
    cut_torn,
    last_line_start,
    locked,
    output_directory,
    table_path,
)


class JsonLinesPipeline(BasePipeline):
    """Appends each row as one JSON line to `<output_dir>/<table>.jsonl` (UTF-8).

    Any number of processes may append to one file, and it may be moved away at any time. A batch
    is fsynced before it counts as stored. Half a line at the end, left by a process that was
    killed while it wrote, was never counted as stored: the next batch moves it to `<file>.torn`.

    Dates become ISO 8601 text, Decimal and UUID text, bytes Base64, sets lists, NaN null.
    """

    def __init__(self, output_dir: str | os.PathLike[str] | None = None) -> None:
        """`output_dir`: by default the working directory; it is made when missing."""
        self._directory = Path(output_dir or ".").absolute()
        self._written: dict[Path, None] = {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        return cls(output_directory(settings["OUTPUT_DIR"]))

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(str(path) for path in self._written)

    def path_of(self, table: str) -> Path:
        """The file that takes the rows of a table."""
        return table_path(self._directory, table, ".jsonl")

    def save_items(self, table: str, items: list[Row]) -> bool:
        """See `BasePipeline`. Raises `ItemError` for a value that JSON cannot hold."""
        path = self.path_of(table)
        block = b"".join([encode_row(row) for row in items])
        with locked(path) as file:
            self._mend(path, file)
            append(path, file, block)
        self._written[path] = None
        return True

    def _mend(self, path: Path, file: FileIO) -> None:
        start = last_line_start(file)
        size = os.fstat(file.fileno()).st_size
        if start == size:
            return
        tail = os.pread(file.fileno(), size - start, start)
        if _is_json(tail):
            file.write(b"\n")
        else:
            cut_torn(path, file, start, self.logger)


def encode_row(row: Row) -> bytes:
    """One line of JSON. Raises `ItemError` naming the field that cannot be written."""
    try:
        return msgspec.json.encode(row) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ItemError(f"JSON cannot hold {_culprit(row)}: {error}") from error


def _culprit(row: Row) -> str:
    for name, value in row.items():
        try:
            msgspec.json.encode({name: value})
        except (TypeError, ValueError, OverflowError, RecursionError):
            return f"field {name!r} ({type(value).__name__})"
    return "the row"


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
