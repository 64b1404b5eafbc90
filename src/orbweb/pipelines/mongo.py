"""Items into MongoDB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Self
from uuid import UUID

import bson
from bson.binary import Binary
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from pymongo import AsyncMongoClient, InsertOne, UpdateOne
from pymongo.errors import BulkWriteError, ConfigurationError, PyMongoError

from orbweb.errors import ConfigError, ItemError, PipelineError
from orbweb.log import mask_address, mask_secrets
from orbweb.model.item import KEY_FIELD, ItemRecord
from orbweb.pipelines.base import Page, PagePipeline, Refusal
from orbweb.pipelines.keys import version_key

VERSION_FIELD = "_version"
"""When the page of a document's newest change was claimed (ms)."""

DUPLICATE_KEY = 11_000

MOST_BYTES = (16 << 20) - 1024
"""Of a document, with some room for its key."""

Write = InsertOne[dict[str, Any]] | UpdateOne

ROWS_FAULT = frozenset({2, 9, 14, 28, 52, 55, 66, 121, 10_334, DUPLICATE_KEY})
"""Codes with which the server refuses what a document says."""


class MongoPipeline(PagePipeline):
    """Stores each item as a document whose `_id` is the item's key, so a second copy is none.

    An item that is there already stays as it was. An `UpdateItem` changes the document that its
    update key finds, or makes one, unless something that was fetched later has changed it; when
    that was is kept in the document as `_version`. Needs MongoDB 4.4 or later.
    """

    def __init__(self, uri: str, db: str, *, client: Any = None) -> None:
        """`client`: an `AsyncMongoClient` of your own."""
        try:
            self._client = client or AsyncMongoClient(uri, serverSelectionTimeoutMS=5000)
        except (ConfigurationError, ValueError) as error:
            raise ConfigError(f"MONGO_URI {mask_address(uri)!r}: {error}") from error
        self._db = self._client[db]
        self._name = f"{mask_address(uri)} {db}"
        self._tables: dict[str, None] = {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        return cls(settings["MONGO_URI"], settings["MONGO_DB"])

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(f"{self._name}.{table}" for table in self._tables)

    async def save_pages(self, pages: Sequence[Page]) -> list[Refusal]:
        """See `PagePipeline`. Raises `PipelineError` while the server cannot be used."""
        refusals: list[Refusal] = []
        by_table: dict[str, list[tuple[ItemRecord, Write]]] = {}
        for page in pages:
            for record in page.records:
                try:
                    write = _write(record, page.origin.claimed_at_ms)
                except (ItemError, ArithmeticError) as error:
                    refusals.append(Refusal(record, _named(record, error)))
                    continue
                by_table.setdefault(record.table, []).append((record, write))
        for table, writes in by_table.items():
            refusals += await self._write_all(table, writes)
            self._tables[table] = None
        return refusals

    async def close(self) -> None:
        await self._client.close()

    async def _write_all(
        self, table: str, writes: Sequence[tuple[ItemRecord, Write]]
    ) -> list[Refusal]:
        try:
            await self._db[table].bulk_write([write for _, write in writes], ordered=False)
        except BulkWriteError as error:
            return list(_refused(writes, error.details))
        except (BSONError, UnicodeError, ArithmeticError) as error:
            return await self._write_apart(table, writes, error)
        except PyMongoError as error:
            raise PipelineError(mask_secrets(str(error))) from error
        return []

    async def _write_apart(
        self, table: str, writes: Sequence[tuple[ItemRecord, Write]], error: Exception
    ) -> list[Refusal]:
        """Write those of the documents that can be BSON, since one of them cannot."""
        faults = [_fault(record) for record, _ in writes]
        refusals = [
            Refusal(record, _named(record, fault))
            for (record, _), fault in zip(writes, faults, strict=True)
            if fault
        ]
        if not refusals:
            raise ItemError(str(error)) from error
        rest = [each for each, fault in zip(writes, faults, strict=True) if not fault]
        return refusals + (await self._write_all(table, rest) if rest else [])


def _plain_row(record: ItemRecord) -> dict[str, Any]:
    return {name: _plain(name, value) for name, value in record.row.items() if name != KEY_FIELD}


def _fault(record: ItemRecord) -> Exception | None:
    """Why the record cannot be a document; None when it can."""
    try:
        size = len(bson.encode(_plain_row(record)))
    except (BSONError, UnicodeError, ArithmeticError) as error:
        return error
    return ItemError(f"{size} bytes are more than a document holds") if size > MOST_BYTES else None


def _named(record: ItemRecord, error: Exception) -> ItemError:
    kind = "" if isinstance(error, ItemError) else f"{type(error).__name__}: "
    return ItemError(f"item {record.key} of {record.table!r}: {kind}{error}")


def _write(record: ItemRecord, at_ms: int) -> Write:
    row = _plain_row(record)
    if record.update_keys is None:
        return InsertOne({"_id": record.key, **row})
    found = {name: row.pop(name) for name in record.update_keys}
    made = version_key(record.table, record.row, record.update_keys)
    changed = {name: {"$literal": value} for name, value in row.items()}
    newest = {"$mergeObjects": ["$$ROOT", changed, {VERSION_FIELD: at_ms}]}
    named = {"$mergeObjects": [{"_id": made}, newest]}  # a document that is made has a key, too
    late = {"$gt": [f"${VERSION_FIELD}", at_ms]}
    change = [{"$replaceWith": {"$cond": [late, "$$ROOT", named]}}]
    return UpdateOne(found, change, upsert=True)


def _refused(
    writes: Sequence[tuple[ItemRecord, Write]], details: Mapping[str, Any]
) -> Iterable[Refusal]:
    """The records that were refused. An error that is no fault of a record is raised."""
    for problem in details.get("writeErrors", ()):
        record, _ = writes[problem["index"]]
        text = f"item {record.key} of {record.table!r}: {problem.get('errmsg', problem)}"
        if problem.get("code") == DUPLICATE_KEY and "_id" in problem.get("keyPattern", ()):
            if record.update_keys is None:
                continue  # the item is there already
            raise PipelineError(f"{text}: another node has made the document at this moment")
        if problem.get("code") not in ROWS_FAULT:
            raise PipelineError(text)
        yield Refusal(record, ItemError(text))
    if details.get("writeConcernErrors"):
        raise PipelineError(f"not durable: {details['writeConcernErrors'][0].get('errmsg')}")


def _plain(name: str, value: Any) -> Any:
    """The value in terms of BSON. Raises `ItemError` that names the field."""
    if isinstance(value, Mapping):
        return {str(key): _plain(name, part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(name, part) for part in value), key=str)
    if isinstance(value, Decimal):
        return Decimal128(value)
    if isinstance(value, UUID):
        return Binary.from_uuid(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise ItemError(f"field {name!r}: MongoDB holds integers of 64 bits, not {value}")
    if value is None or isinstance(value, str | bool | int | float | bytes | datetime):
        return value
    return str(value)
