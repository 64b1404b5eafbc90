"""One item on its way through a buffer: a version byte, then msgpack. Reading executes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from orbweb.errors import ItemError, OrbwebError, UnserialisableError
from orbweb.model.item import ItemRecord, Origin
from orbweb.model.values import pack, to_bytes, unpack_tagged

VERSION = 1
KEY_LENGTH = 64
"""Longest key of an item."""
RUN_LENGTH = 200
"""Longest name of a run."""

_PREFIX = bytes((VERSION,))
_KEY = re.compile(rf"[!-~]{{1,{KEY_LENGTH}}}")
_RUN = re.compile(rf"[^\x00-\x1f]{{0,{RUN_LENGTH}}}")


class UnreadableMessage(OrbwebError):
    """The bytes are no item that this version can read: keep them as a dead letter."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A row with all that a consumer needs to store it once."""

    key: str
    """The item's identity: a second message with this key is the same item."""
    table: str
    row: Mapping[str, Any]
    run: str = ""
    """The run that the item comes from; the consumer's memory of keys is trimmed by it."""
    update_keys: tuple[str, ...] | None = None
    """Fields by which the row to change is found; None = insert."""
    unique: tuple[str, ...] = ()
    """The fields that tell two rows of the table apart; empty when none are named."""
    version: int = 0
    """Logical time of the data (ms): a row that something newer has changed is left as it is."""

    @classmethod
    def of(cls, record: ItemRecord, origin: Origin) -> Envelope:
        """The envelope of an item that a page gave."""
        return cls(
            record.key,
            record.table,
            record.row,
            run=origin.run,
            update_keys=record.update_keys,
            unique=record.unique,
            version=origin.claimed_at_ms,
        )


class _Wire(msgspec.Struct, omit_defaults=True, frozen=True, gc=False):
    """What travels. A later version may add fields; these keep their meaning."""

    k: str
    t: str
    r: Any
    g: str = ""
    u: list[str] | None = None
    q: list[str] = []
    n: int = 0


_decode = msgspec.msgpack.Decoder(_Wire, ext_hook=unpack_tagged).decode


def encode(envelope: Envelope) -> bytes:
    """The envelope as bytes, with every value of the row exact (see `orbweb.model.values.pack`).

    Raises `ItemError` that names the field which cannot travel.
    """
    try:
        row = {name: pack(value, name) for name, value in envelope.row.items()}
        wire = _Wire(
            envelope.key,
            envelope.table,
            row,
            envelope.run,
            None if envelope.update_keys is None else list(envelope.update_keys),
            list(envelope.unique),
            envelope.version,
        )
        return _PREFIX + to_bytes(wire, f"item {envelope.key}")
    except UnserialisableError as error:
        raise ItemError(str(error)) from error


def decode(message: bytes) -> Envelope:
    """The envelope that `encode` wrote. Raises `UnreadableMessage` for anything else."""
    if message[:1] != _PREFIX:
        known = f"this version of Orbweb reads {VERSION}"
        raise UnreadableMessage(f"item of version {message[:1].hex() or 'none'}; {known}")
    try:
        wire = _decode(memoryview(message)[1:])
        return Envelope(
            key=_matched(_KEY, wire.k, "key"),
            table=_table(wire.t),
            row=_row(wire.r),
            run=_matched(_RUN, wire.g, "run"),
            update_keys=None if wire.u is None else _update_keys(wire.u, wire.r),
            unique=tuple(name for name in wire.q if name in wire.r),
            version=wire.n,
        )
    except Exception as error:  # types of all kinds are made of whatever the bytes say
        raise UnreadableMessage(f"not an item of version {VERSION}: {error}") from error


def partition_key(envelope: Envelope) -> bytes:
    """What keeps messages in order: equal for those of one item, and for all changes of one row.

    An item with `__unique_key__` and the changes that find its row by these fields share it, too.
    """
    keys = envelope.unique if envelope.update_keys is None else envelope.update_keys
    return row_key(envelope, keys).encode() if keys else envelope.key.encode()


def row_key(envelope: Envelope, keys: Sequence[str]) -> str:
    """The identity of a row: its table, and the fields that find it."""
    found = [(name, pack(envelope.row[name], name)) for name in sorted(keys)]
    packed = to_bytes([envelope.table, found], f"item {envelope.key}")
    return blake2b(packed, digest_size=16).hexdigest()


def _matched(pattern: re.Pattern[str], text: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f"{text[:RUN_LENGTH]!r} is no {what}")
    return text


def _table(name: str) -> str:
    if not name or any(mark in name for mark in "/\\\0"):
        raise ValueError(f"{name!r} is no name for a table")
    return name


def _row(row: Any) -> dict[str, Any]:
    if type(row) is not dict or not all(type(name) is str for name in row):
        raise ValueError("its row is no dict with text as keys")
    return row


def _update_keys(names: Sequence[str], row: Mapping[str, Any]) -> tuple[str, ...]:
    missing = [name for name in names if name not in row]
    if missing or not names:
        raise ValueError(f"the fields that find the row are missing: {missing or 'none is named'}")
    return tuple(names)
