"""Folding the second copies of rows that crashes leave in files."""

from __future__ import annotations

import csv
import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import msgspec

from orbweb.errors import ConfigError
from orbweb.log import event, get_logger
from orbweb.pipelines.csv import parse, records, split_header
from orbweb.pipelines.files import locked, replace
from orbweb.pipelines.folders import is_url, open_folder

KEY_COLUMN = "_key"


class _Keyed(msgspec.Struct):
    key: msgspec.Raw = msgspec.field(name=KEY_COLUMN, default=msgspec.Raw())


class _Folder:
    """Writes the rows that stay, and counts the others."""

    def __init__(self, writer: BinaryIO, keys: set[bytes] | None = None) -> None:
        """`keys`: what was seen before, where rows go to several writers."""
        self._writer = writer
        self._keys = set[bytes]() if keys is None else keys
        self.kept = 0
        self.repeated = 0
        self.torn = 0

    def header(self, line: bytes) -> None:
        self._writer.write(line)

    def row(self, key: bytes, line: bytes) -> None:
        """Take a row; an empty key is no key."""
        if key:
            digest = blake2b(key, digest_size=16).digest()
            if digest in self._keys:
                self.repeated += 1
                return
            self._keys.add(digest)
        self.kept += 1
        self._writer.write(line if line.endswith(b"\n") else line + b"\n")


def dedup_file(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Keep the first row of each `_key` in a .jsonl or .csv file; returns (kept, removed).

    A folder of parts, which may be named by a URL, is folded too; no run may write to it then.

    Half a row is removed too; rows without a key are kept. The file changes in one step while
    writers wait. Memory grows with the number of keys (about 100 bytes each), not with the file.
    Raises `ConfigError` for a file that it cannot fold.
    """
    if is_url(str(path)) or Path(path).is_dir():
        return _fold_folder(str(path))
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    fold = {".jsonl": _fold_json_lines, ".csv": _fold_csv}.get(path.suffix.lower())
    if fold is None:
        raise ConfigError(f"{path}: only .jsonl and .csv files can be folded")
    with locked(path, create=False), path.open("rb") as reader, replace(path) as writer:
        folder = _Folder(writer)
        fold(reader, folder)
    event(
        get_logger("pipelines.dedup"),
        "items_folded",
        level=logging.WARNING if folder.torn else logging.INFO,
        file=path,
        kept=folder.kept,
        repeated=folder.repeated,
        torn=folder.torn,
    )
    return folder.kept, folder.repeated + folder.torn


def _fold_folder(place: str) -> tuple[int, int]:
    """Put the parts of a folder together, without rows that came twice."""
    folder = open_folder(place)
    names = folder.names()
    kinds = {name.rpartition(".")[2] for name in names}
    if not names or len(kinds) > 1 or not kinds <= {"csv", "jsonl", "parquet"}:
        raise ConfigError(f"{place} is no folder with .parquet, .jsonl or .csv parts")
    suffix = kinds.pop()
    parts = [folder.read(name) for name in names]
    if suffix == "parquet":
        from orbweb.pipelines.parquet import fold

        whole, kept, removed = fold(parts, KEY_COLUMN)
    elif suffix == "csv":
        whole, kept, removed = _fold_csv_parts(parts)
    else:
        writer = io.BytesIO()
        rows = _Folder(writer)
        _fold_json_lines(io.BytesIO(b"".join(parts)), rows)
        whole, kept, removed = [writer.getvalue()], rows.kept, rows.repeated + rows.torn
    written = [f"{blake2b(part, digest_size=12).hexdigest()}.{suffix}" for part in whole]
    for name, part in zip(written, whole, strict=True):
        folder.write(name, part)
    for name in names:
        if name not in written:
            folder.remove(name)
    return kept, removed


def _fold_json_lines(reader: BinaryIO, folder: _Folder) -> None:
    for line in reader:
        if not line.strip():
            continue
        try:
            key = bytes(msgspec.json.decode(line, type=_Keyed).key)
        except msgspec.ValidationError:
            folder.row(b"", line)  # JSON, but no object
        except (msgspec.DecodeError, UnicodeDecodeError):
            folder.torn += 1
        else:
            folder.row(b"" if key == b"null" else key, line)


def _fold_csv_parts(parts: Sequence[bytes]) -> tuple[list[bytes], int, int]:
    """Parts with the same columns become one; rows are told apart over all of them."""
    bodies: dict[bytes, list[bytes]] = {}
    for part in parts:
        header, body = split_header(part)
        bodies.setdefault(header, []).append(body)
    keys = set[bytes]()
    whole, kept, removed = [], 0, 0
    for header, some in bodies.items():
        writer = io.BytesIO()
        rows = _Folder(writer, keys)
        _fold_csv(io.BytesIO(header + b"".join(some)), rows)
        if rows.kept:
            whole.append(writer.getvalue())
        kept, removed = kept + rows.kept, removed + rows.repeated + rows.torn
    return whole, kept, removed


def _fold_csv(reader: BinaryIO, folder: _Folder) -> None:
    whole_bytes = 0
    key_at: int | None = None
    with _cells_of_any_size():
        for record in records(reader):
            whole_bytes += len(record)
            cells = parse(record)
            if key_at is not None:
                key = cells[key_at] if key_at < len(cells) else ""
                folder.row(key.encode("utf-8", "surrogateescape"), record)
            elif KEY_COLUMN in cells:
                key_at = cells.index(KEY_COLUMN)
                folder.header(record)
            else:
                raise ConfigError(f"the file has no column {KEY_COLUMN!r}: nothing tells its rows")
    folder.torn += reader.seek(0, os.SEEK_END) > whole_bytes


@contextmanager
def _cells_of_any_size() -> Iterator[None]:
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)
