"""Items in many small files, for formats and places that nothing can be appended to."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Self

from orbweb.errors import ConfigError
from orbweb.model.item import KEY_FIELD
from orbweb.pipelines.base import BasePipeline, Row
from orbweb.pipelines.csv import encode_table, split_header
from orbweb.pipelines.files import check_table
from orbweb.pipelines.folders import Folder, is_url, open_folder
from orbweb.pipelines.jsonl import encode_row

MERGE_AT = 64
"""When this many parts of one table were written by this process, they are put together."""

WHOLE_BYTES = 32 << 20
"""A part that has become so large stays as it is: what is put together is held in memory."""


class PartsPipeline(BasePipeline):
    """Writes each batch as a file of its own into `<place>/<table>/`, or all into `OUTPUT_FILE/`.

    `place` is a folder or a URL such as `s3://bucket/folder`. The name of a part is made of the
    keys in it and of this process, so a batch that is tried again replaces itself, and nothing of
    another process. A part appears whole or not at all. Parts are put together into larger ones as
    they gather, and at the end. A crash may leave rows in two parts: `orbweb items dedup FOLDER`
    folds them.
    """

    suffix: ClassVar[str]

    def __init__(self, place: str = "", file: str = "") -> None:
        """`file`: the folder that takes the items of all tables."""
        self._place = place or "."
        self._file = file
        self._process = uuid.uuid4().hex
        self._folders: dict[str, Folder] = {}
        self._parts: dict[str, list[str]] = {}
        self._merged: dict[str, list[str]] = {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Raises `ConfigError` when the place cannot be had."""
        file = settings["OUTPUT_FILE"]
        made = cls(settings["OUTPUT_DIR"], file if file.endswith(cls.suffix) else "")
        open_folder(made._file or made._place)  # what is missing is an error at the start
        return made

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self._folders)

    def save_items(self, table: str, items: list[Row]) -> bool:
        """See `BasePipeline`. Raises `ItemError` for a value that the format cannot hold."""
        check_table(table)
        parts = self._parts.setdefault(table, [])
        self._remove_merged(table)
        if len(parts) >= MERGE_AT:
            self._merge(table)
        name = self._name(table, [str(item[KEY_FIELD]) for item in items])
        self._folder_of(table).write(name, self.encode(items))
        if name not in parts:
            parts.append(name)
        return True

    def close(self) -> None:
        for table in self._parts:
            self._merge(table)

    @abstractmethod
    def encode(self, rows: list[Row]) -> bytes:
        """The content of a part. Raises `ItemError` for a value that the format cannot hold."""

    @abstractmethod
    def join(self, parts: Sequence[bytes]) -> bytes | None:
        """One part with the rows of all; None when they do not fit together."""

    def _folder_of(self, table: str) -> Folder:
        place = self._file or f"{self._place}/{table}"
        if place not in self._folders:
            self._folders[place] = open_folder(place)
        return self._folders[place]

    def _merge(self, table: str) -> None:
        """Put this process's parts of a table together: first the whole, then away with them.

        When it fails half-way, the next call goes on.
        """
        self._remove_merged(table)
        parts = self._parts[table]
        if len(parts) < 2:
            return
        contents = self._contents(table)
        if len(parts) < 2:
            return
        whole = self.join(contents)
        if whole is None:
            parts.clear()
            return
        name = self._name(table, parts)
        self._folder_of(table).write(name, whole)
        self._merged[table] = parts[:]
        parts[:] = [name] if len(whole) < WHOLE_BYTES else []
        self._remove_merged(table)

    def _contents(self, table: str) -> list[bytes]:
        """What the parts hold. One that somebody took away is no part any more."""
        contents = []
        for name in self._parts[table][:]:
            try:
                contents.append(self._folder_of(table).read(name))
            except FileNotFoundError:
                self._parts[table].remove(name)
        return contents

    def _remove_merged(self, table: str) -> None:
        merged = self._merged.get(table, [])
        while merged:
            self._folder_of(table).remove(merged[-1])
            merged.pop()

    def _name(self, table: str, keys: Sequence[str]) -> str:
        digest = blake2b("\n".join([self._process, *keys]).encode(), digest_size=12).hexdigest()
        return f"{table}-{digest}{self.suffix}"


class JsonLinesParts(PartsPipeline):
    """`PartsPipeline` with JSON Lines, for `OUTPUT_DIR` at a URL."""

    suffix = ".jsonl"

    def encode(self, rows: list[Row]) -> bytes:
        return b"".join(encode_row(row) for row in rows)

    def join(self, parts: Sequence[bytes]) -> bytes | None:
        return b"".join(parts)


class CsvParts(PartsPipeline):
    """`PartsPipeline` with CSV, for `OUTPUT_DIR` at a URL. Each part has a header of its own."""

    suffix = ".csv"

    def encode(self, rows: list[Row]) -> bytes:
        return encode_table(rows)

    def join(self, parts: Sequence[bytes]) -> bytes | None:
        headers, bodies = zip(*map(split_header, parts), strict=True)
        return None if len(set(headers)) > 1 else headers[0] + b"".join(bodies)


def parts_for(target: str) -> str | None:
    """Dotted path of the pipeline that writes a folder of parts; None for a plain file.

    Raises `ConfigError` for a URL that no format is known of.
    """
    if target.lower().endswith(".parquet"):
        return "orbweb.pipelines.parquet.ParquetPipeline"
    if not is_url(target):
        return None
    for kind in (JsonLinesParts, CsvParts):
        if target.lower().endswith(kind.suffix):
            return f"{kind.__module__}.{kind.__name__}"
    raise ConfigError(f"{target}: items can go to .jsonl, .csv and .parquet at a URL")
