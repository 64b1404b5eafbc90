"""All items of a run in one file, whatever their table: `OUTPUT_FILE`, or `orbweb run -o FILE`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from orbweb.errors import ConfigError
from orbweb.pipelines.csv import CsvPipeline
from orbweb.pipelines.files import locked
from orbweb.pipelines.jsonl import JsonLinesPipeline


class _OneFile:
    """Sends every table of a file pipeline to the same file."""

    def __init__(self, file: str | os.PathLike[str]) -> None:
        super().__init__()
        self._file = Path(file).absolute()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        return cls(_wanted_file(settings))

    def path_of(self, table: str) -> Path:
        return self._file


class JsonLinesFile(_OneFile, JsonLinesPipeline):
    """Like `JsonLinesPipeline`, but every table goes to the same file."""


class CsvFile(_OneFile, CsvPipeline):
    """Like `CsvPipeline`, but every table goes to the same file; columns are added as needed."""


def pipeline_for(file: Path) -> str:
    """Dotted path of the pipeline that writes such a file. Raises `ConfigError`."""
    kinds = {".jsonl": JsonLinesFile, ".csv": CsvFile}
    kind = kinds.get(file.suffix.lower())
    if kind is not None:
        return f"{kind.__module__}.{kind.__name__}"
    if file.suffix.lower() == ".json":
        raise ConfigError(
            f"{file}: a .json file could not be appended to, and a crash would leave it broken; "
            f"use JSON Lines: {file.with_suffix('.jsonl')}"
        )
    raise ConfigError(f"{file}: items can go to .jsonl and .csv files, and to a .parquet folder")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a file was at one moment; `inode` 0 when there was none."""

    inode: int
    size_bytes: int


def mark(file: Path) -> Mark:
    """Note the state of a file before a run that would empty it is opened."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return Mark(0, 0)
    return Mark(status.st_ino, status.st_size)


def empty_unchanged(file: Path, before: Mark) -> bool:
    """Empty a file that nobody has written to since `before`; False when somebody has.

    So of several processes that start one run together, the one that made the run can empty the
    file, and no row of the new run is ever lost.
    """
    if not before.size_bytes or not file.exists():
        return True
    with locked(file, create=False) as whole:
        now = os.fstat(whole.fileno())
        if (now.st_ino, now.st_size) != (before.inode, before.size_bytes):
            return False
        whole.truncate(0)
    return True


def _wanted_file(settings: Mapping[str, Any]) -> Path:
    if not settings["OUTPUT_FILE"]:
        raise ConfigError("OUTPUT_FILE is empty: name the file that all items go to")
    return Path(settings["OUTPUT_FILE"])
