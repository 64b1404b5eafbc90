"""CSV files, one a table (RFC 4180, UTF-8)."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec

from orbweb.errors import ItemError
from orbweb.pipelines.base import BasePipeline, Row
from orbweb.pipelines.files import append, cut_torn, locked, output_directory, replace, table_path


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of a file: it holds whole records up to `end`, under these columns."""

    inode: int
    end: int
    columns: list[str]


class CsvPipeline(BasePipeline):
    """Appends each row to `<output_dir>/<table>.csv`, under a header that is written once.

    Any number of processes may append to one file, and it may be moved away at any time. A batch
    is fsynced before it counts as stored. Half a row at the end, left by a process that was killed
    while it wrote, was never counted as stored: the next batch moves it to `<file>.torn`. A field
    that the header does not have becomes a new last column: the file is rewritten once for it.

    None becomes an empty cell; lists and dicts JSON; dates ISO 8601; bytes Base64.
    """

    def __init__(self, output_dir: str | os.PathLike[str] | None = None) -> None:
        """`output_dir`: by default the working directory; it is made when missing."""
        self._directory = Path(output_dir or ".").absolute()
        self._seen: dict[Path, _Seen] = {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        return cls(output_directory(settings["OUTPUT_DIR"]))

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(str(path) for path in self._seen)

    def path_of(self, table: str) -> Path:
        """The file that takes the rows of a table."""
        return table_path(self._directory, table, ".csv")

    def save_items(self, table: str, items: list[Row]) -> bool:
        """See `BasePipeline`. Raises `ItemError` for a value that has no text."""
        path = self.path_of(table)
        rows = _texts(items)
        while not self._try_append(path, rows):
            pass
        return True

    def _try_append(self, path: Path, rows: list[dict[str, str]]) -> bool:
        """Append the rows; False when the header had to be widened first."""
        with locked(path) as file:
            seen = self._mend(path, file)
            wanted = dict.fromkeys([*seen.columns, *(name for row in rows for name in row)])
            columns = list(wanted)
            if seen.columns and columns != seen.columns:
                _widen(path, columns, len(columns) - len(seen.columns))
                return False
            header = b"" if seen.columns else _line(columns)
            append(path, file, header + _lines(columns, rows))
            self._seen[path] = _Seen(seen.inode, os.fstat(file.fileno()).st_size, columns)
        return True

    def _mend(self, path: Path, file: FileIO) -> _Seen:
        """Cut off half a record, and learn the columns. Reads only what others wrote meanwhile."""
        status = os.fstat(file.fileno())
        seen = self._seen.get(path)
        if seen is None or seen.inode != status.st_ino or seen.end > status.st_size:
            seen = _Seen(status.st_ino, 0, [])
        end, columns = seen.end, seen.columns
        with path.open("rb") as reader:
            reader.seek(end)
            for record in records(reader):
                end += len(record)
                columns = columns or parse(record)
        if end < status.st_size:
            cut_torn(path, file, end, self.logger)
        return _Seen(status.st_ino, end, columns)


def encode_table(rows: Sequence[Row]) -> bytes:
    """Rows under their header. Raises `ItemError` for a value that has no text."""
    texts = _texts(rows)
    columns = list(dict.fromkeys(name for row in texts for name in row))
    return _line(columns) + _lines(columns, texts)


def split_header(table: bytes) -> tuple[bytes, bytes]:
    """The first record of a whole CSV text, and the rest."""
    header = next(records(io.BytesIO(table)), b"")
    return header, table[len(header) :]


def records(reader: BinaryIO) -> Iterator[bytes]:
    """The whole records from the reader's place on, with their line ends; half a one is left out.

    A record ends at the first line end that is not within quotes, so after an even number of them.
    """
    parts: list[bytes] = []
    quotes = 0
    for line in reader:
        parts.append(line)
        quotes += line.count(b'"')
        if quotes % 2 == 0 and line.endswith(b"\n"):
            yield b"".join(parts)
            parts.clear()
            quotes = 0


def parse(record: bytes) -> list[str]:
    """The cells of one record. Bytes that are not UTF-8 become lone surrogates (PEP 383)."""
    text = record.decode("utf-8-sig", "surrogateescape").removesuffix("\n").removesuffix("\r")
    return next(csv.reader([text]), [])


def _widen(path: Path, columns: list[str], added: int) -> None:
    with path.open("rb") as reader, replace(path) as writer:
        whole = records(reader)
        next(whole)
        writer.write(_line(columns))
        for record in whole:
            writer.write(record.removesuffix(b"\n").removesuffix(b"\r") + b"," * added + b"\r\n")


def _texts(rows: Iterable[Row]) -> list[dict[str, str]]:
    return [{name: _cell(name, value) for name, value in row.items()} for row in rows]


def _lines(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> bytes:
    return b"".join(_line([row.get(name, "") for name in columns]) for row in rows)


def _line(cells: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode("utf-8", "surrogateescape")


def _cell(name: str, value: Any) -> str:
    try:
        plain = msgspec.to_builtins(value)
        if plain is None:
            return ""
        text = msgspec.json.encode(plain).decode() if _is_nested(plain) else str(plain)
        text.encode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        kind = type(value).__name__
        raise ItemError(f"CSV cannot hold field {name!r} ({kind}): {error}") from error
    return text


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list | tuple | set | frozenset)
