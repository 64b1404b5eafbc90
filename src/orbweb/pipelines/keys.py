"""The identity of the row or document that a change is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from orbweb.model.values import pack, to_bytes


def version_key(table: str, row: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The identity of the row that a change is for. Raises `UnserialisableError`."""
    found = [(name, pack(row[name], name)) for name in sorted(keys)]
    return blake2b(to_bytes([table, found], "key"), digest_size=16).hexdigest()
