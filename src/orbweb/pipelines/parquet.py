"""Parquet files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from orbweb.errors import ItemError
from orbweb.pipelines.base import Row
from orbweb.pipelines.parts import PartsPipeline


class ParquetPipeline(PartsPipeline):
    """See `PartsPipeline`. pandas, DuckDB, Spark and pyarrow read such a folder as one table.

    Columns get the types of their values; UUIDs become text, sets lists, empty dicts null.
    """

    suffix = ".parquet"

    def encode(self, rows: list[Row]) -> bytes:
        try:
            plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
            names = list(dict.fromkeys(name for row in plain for name in row))
            columns = {name: pa.array([row.get(name) for row in plain]) for name in names}
            return _to_bytes(pa.table(columns))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ItemError(f"Parquet cannot hold {_culprit(rows)}: {error}") from error

    def join(self, parts: Sequence[bytes]) -> bytes | None:
        tables = [pq.read_table(io.BytesIO(part)) for part in parts]
        try:
            return _to_bytes(pa.concat_tables(tables, promote_options="permissive"))
        except pa.ArrowException:
            return None  # a column changed its type: the parts stay apart


def fold(parts: Sequence[bytes], key: str) -> tuple[list[bytes], int, int]:
    """The parts as few as possible, with the first row of each key; how many stay and go."""
    seen: set[Any] = set()
    kept: list[pa.Table] = []
    removed = 0
    for part in parts:
        table = pq.read_table(io.BytesIO(part))
        keys = table.column(key).to_pylist() if key in table.column_names else []
        stays = []
        for name in keys:
            stays.append(name is None or name not in seen)
            seen.add(name)
        if keys:
            table = table.filter(pa.array(stays))
            removed += stays.count(False)
        if table.num_rows:
            kept.append(table)
    rows = sum(table.num_rows for table in kept)
    try:
        whole = [pa.concat_tables(kept, promote_options="permissive")] if kept else []
    except pa.ArrowException:
        whole = kept
    return [_to_bytes(table) for table in whole], rows, removed


def _to_bytes(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return out.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted((_plain(part) for part in value), key=str)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        if not value:
            return None  # a struct without fields cannot be written
        return {str(name): _plain(part) for name, part in value.items()}
    return value


def _culprit(rows: Sequence[Row]) -> str:
    for row in rows:
        for name, value in row.items():
            try:
                pa.array([_plain(value)])
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                return f"field {name!r} ({type(value).__name__})"
    return "these values in one column"
