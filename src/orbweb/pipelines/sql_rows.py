"""Writing rows: inserts with a rule for rows that are there, changes in the order of fetches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from orbweb.errors import ItemError
from orbweb.model.item import KEY_FIELD, ItemRecord
from orbweb.pipelines.base import Row
from orbweb.pipelines.keys import version_key
from orbweb.pipelines.sql_tables import Tables, groups
from orbweb.pipelines.sql_versions import RowVersions
from orbweb.sql.databases import first_wins

Dated = tuple[ItemRecord, int]
"""A record, and the store's wall clock (ms) when its page was claimed."""


class NoRow(ItemError):
    """The row to change is not there. It may come: the change can be tried again."""


class Conflict(StrEnum):
    """What becomes of an item whose row is there already, by a unique key of the table."""

    NOTHING = "nothing"
    UPDATE = "update"
    ERROR = "error"


class RowWriter:
    """Writes records into their tables. `insert` and `update` run in the caller's transaction."""

    def __init__(
        self,
        engine: sa.Engine,
        tables: Tables,
        on_conflict: Conflict,
        conflict_target: Sequence[str] = (),
    ) -> None:
        self._engine = engine
        self._tables = tables
        self._on_conflict = on_conflict
        self._target = tuple(conflict_target)
        self._versions = RowVersions(engine)

    def prepare(self) -> None:
        """Make the table of versions if it is missing."""
        self._versions.prepare()

    def make_room(self, records: Iterable[ItemRecord]) -> None:
        """Look up, or make, the tables and columns that the records need. See `Tables.of`."""
        for record in records:
            self._tables.of(record.table, record.row)

    def insert(self, connection: sa.Connection, records: Sequence[Dated]) -> None:
        """Insert rows. Raises `ItemError`, and the errors of SQLAlchemy."""
        if self._on_conflict is Conflict.UPDATE:
            for record, at_ms in records:
                self._upsert(connection, record, at_ms)
            return
        by_table: dict[str, list[Row]] = {}
        for record, _ in records:
            by_table.setdefault(record.table, []).append(self._row(record))
        for name, rows in by_table.items():
            table = self._tables.known(name)
            plain = self._on_conflict is Conflict.ERROR
            statement = sa.insert(table) if plain else first_wins(self._engine, table)
            for alike in groups(rows):
                connection.execute(statement, alike)

    def update(self, connection: sa.Connection, record: ItemRecord, at_ms: int) -> bool:
        """Change the row that a record is for; False when something newer has changed it.

        Raises `NoRow` when there is none, `ItemError`, and the errors of SQLAlchemy.
        """
        keys = record.update_keys or ()
        if not self._is_newest(connection, record, keys, at_ms):
            return False
        row = self._row(record)
        table = self._tables.known(record.table)
        found = sa.and_(*(table.columns[name] == row[name] for name in keys))
        values = {name: row[name] for name in row if name not in keys and name != KEY_FIELD}
        statement: Any = sa.update(table).where(found).values(values)
        if not values:
            statement = sa.select(sa.func.count()).select_from(table).where(found)
            matched = connection.execute(statement).scalar_one()
        else:
            matched = connection.execute(statement).rowcount
        if matched == 0:
            wanted = ", ".join(f"{name} = {row[name]!r}" for name in keys)
            raise NoRow(
                f"item {record.key}: table {record.table!r} has no row to change with {wanted}"
            )
        return True

    def _row(self, record: ItemRecord) -> Row:
        table = self._tables.known(record.table)
        try:
            return self._tables.fitted(table, record.row)
        except ItemError as error:
            raise ItemError(f"item {record.key} of table {record.table!r}: {error}") from error

    def _upsert(self, connection: sa.Connection, record: ItemRecord, at_ms: int) -> None:
        """Insert a row, or overwrite the one with the same key unless that is newer."""
        row = self._row(record)
        table = self._tables.known(record.table)
        target = self._target or record.unique
        if not target:
            connection.execute(first_wins(self._engine, table), row)
        elif self._is_newest(connection, record, target, at_ms):
            connection.execute(_overwriting(self._engine, table, row, target))

    def _is_newest(
        self, connection: sa.Connection, record: ItemRecord, keys: Sequence[str], at_ms: int
    ) -> bool:
        key = version_key(record.table, record.row, keys)
        return self._versions.is_newest(connection, key, at_ms)


def _overwriting(
    engine: sa.Engine, table: sa.Table, row: Mapping[str, Any], target: Sequence[str]
) -> sa.Insert:
    """An insert that changes the row which has the same key, all but what makes its identity."""
    changed = [name for name in row if name not in target and name != KEY_FIELD]
    if not changed:
        return first_wins(engine, table).values(row)
    if engine.dialect.name in ("mysql", "mariadb"):
        insert = mysql.insert(table).values(row)
        return insert.on_duplicate_key_update({name: insert.inserted[name] for name in changed})
    kind: Any = postgresql if engine.dialect.name == "postgresql" else sqlite
    upsert = kind.insert(table).values(row)
    has_key = KEY_FIELD in row and table.columns[KEY_FIELD].primary_key
    conflict = [KEY_FIELD] if has_key else list(target)
    overwriting: sa.Insert = upsert.on_conflict_do_update(
        index_elements=conflict, set_={name: upsert.excluded[name] for name in changed}
    )
    return overwriting
