"""What a run's items look like: counts of fields, values and repetitions, that can be added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from orbweb.errors import OrbwebError

MOST_TABLES = 200
MOST_FIELDS = 500
"""Of one table. What comes after is counted as an item, but not looked at field by field."""

_KINDS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool,), "truth"),
    ((int, float), "number"),
    ((str,), "text"),
    ((bytes, bytearray), "bytes"),
    ((list, tuple, set, frozenset), "list"),
    ((dict,), "object"),
)


class FieldCount(msgspec.Struct, omit_defaults=True):
    """Values of one field; what is empty (None, "", [], {}) counts as missing."""

    filled: int = 0
    kinds: dict[str, int] = {}
    """How many values are text, numbers, lists and so on."""


class TableCount(msgspec.Struct, omit_defaults=True):
    """Items of one table."""

    items: int = 0
    fields: dict[str, FieldCount] = {}


class Tally(msgspec.Struct, omit_defaults=True):
    """Counts of items; those of nodes add up to those of the run."""

    items: int = 0
    checked: int = 0
    """Items that were compared with all others, each standing for as many as it was drawn from."""
    repeated: int = 0
    tables: dict[str, TableCount] = {}

    def see(self, table: str, row: Mapping[str, Any]) -> None:
        """Count an item. Fields that begin with `_` are not looked at."""
        self.items += 1
        count = self.tables.get(table)
        if count is None:
            if len(self.tables) >= MOST_TABLES:
                return
            count = self.tables[table] = TableCount()
        count.items += 1
        for name, value in row.items():
            if name[:1] == "_":
                continue
            field = count.fields.get(name)
            if field is None:
                if len(count.fields) >= MOST_FIELDS:
                    continue
                field = count.fields[name] = FieldCount()
            if value is not None and value != "" and value != [] and value != {}:
                field.filled += 1
                kind = kind_of(value)
                field.kinds[kind] = field.kinds.get(kind, 0) + 1

    def add(self, other: Tally) -> None:
        """Add what another node has counted."""
        self.items += other.items
        self.checked += other.checked
        self.repeated += other.repeated
        for name, table in other.tables.items():
            own = self.tables.setdefault(name, TableCount())
            own.items += table.items
            for field_name, field in table.fields.items():
                mine = own.fields.setdefault(field_name, FieldCount())
                mine.filled += field.filled
                mine.kinds = dict(Counter(mine.kinds) + Counter(field.kinds))

    @property
    def duplicate_rate(self) -> float:
        """Part of the items that were there already (0 to 1)."""
        return self.repeated / self.checked if self.checked else 0.0

    def missing_rate(self, table: str, field: str) -> float:
        """Part of a table's items that lack the field (0 to 1); 1 when none has it."""
        count = self.tables.get(table)
        if count is None or not count.items:
            return 1.0
        found = count.fields.get(field)
        return 1.0 - (found.filled / count.items if found else 0.0)

    def kind(self, table: str, field: str) -> str:
        """What most values of a field are; empty when there are none."""
        kinds = self._kinds(table, field)
        return max(kinds, key=lambda kind: (kinds[kind], kind)) if kinds else ""

    def drift_rate(self, table: str, field: str, kind: str = "") -> float:
        """Part of a field's values that are not of a kind, by default the most common (0 to 1)."""
        kinds = self._kinds(table, field)
        total = sum(kinds.values())
        return 1.0 - kinds[kind or self.kind(table, field)] / total if total else 0.0

    def _kinds(self, table: str, field: str) -> Counter[str]:
        count = self.tables.get(table)
        found = count.fields.get(field) if count else None
        return Counter(found.kinds if found else ())


def kind_of(value: Any) -> str:
    """What a value is, in the terms of type drift: whole numbers and fractions are one kind."""
    return next((name for kinds, name in _KINDS if isinstance(value, kinds)), type(value).__name__)


def encode(tally: Tally) -> bytes:
    """The tally as it is kept in the store."""
    return msgspec.msgpack.encode(tally)


def decode(counts: bytes) -> Tally:
    """Raises `OrbwebError` for anything that `encode` did not write."""
    try:
        return msgspec.msgpack.decode(counts, type=Tally)
    except msgspec.MsgspecError as error:
        raise OrbwebError(f"these are no counts of items: {error}") from error


def total(counts: Iterable[bytes]) -> Tally:
    """The sum of what nodes have said."""
    tally = Tally()
    for each in counts:
        tally.add(decode(each))
    return tally
