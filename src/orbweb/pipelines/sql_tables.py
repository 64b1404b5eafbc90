"""The tables of an SQL database that items go to: how they are found, made and filled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import exc

from orbweb.errors import ItemError
from orbweb.model.item import KEY_FIELD
from orbweb.sql.databases import BYTES_TYPE, KEY_TYPE, MOMENT_TYPE, TEXT_TYPE

if TYPE_CHECKING:
    from orbweb.pipelines.base import Row

_COLUMN_TYPES: tuple[tuple[tuple[type, ...], Any], ...] = (
    ((bool,), sa.Boolean()),
    ((int,), sa.BigInteger()),
    ((float,), sa.Double()),
    ((Decimal,), sa.Numeric(38, 10)),
    ((bytes,), BYTES_TYPE),
    ((datetime,), MOMENT_TYPE),
    ((date,), sa.Date()),
    ((time,), sa.Time()),
    ((list, tuple, dict, set, frozenset), sa.JSON()),
)
"""The column that a value gets in a table that is made for it: the first that fits, else text."""

_VALUE_REFUSED_MYSQL = frozenset({1048, 1264, 1265, 1292, 1364, 1366, 1406, 3140, 3819, 4025})
"""Codes with which MySQL and MariaDB refuse a value as an OperationalError."""


def is_rows_fault(error: Exception) -> bool:
    """Whether the database refuses what a row says, so that another try would end the same."""
    if isinstance(error, ItemError | OverflowError | UnicodeError):
        return True  # the last two come from drivers, as they are
    if not isinstance(error, exc.StatementError):
        return False
    if not isinstance(error, exc.DBAPIError):
        return True  # a value that the column's type cannot turn into SQL
    if error.connection_invalidated:
        return False
    if isinstance(error, exc.OperationalError):
        arguments = error.orig.args if error.orig is not None else ()
        return bool(arguments) and arguments[0] in _VALUE_REFUSED_MYSQL
    return isinstance(error, exc.DataError | exc.IntegrityError | exc.ProgrammingError)


class Tables:
    """The tables that items go to, as they are in the database. Not safe for threads."""

    def __init__(self, engine: sa.Engine, *, create: bool) -> None:
        """`create`: make tables and columns that are missing, fit for the first value they get."""
        self._engine = engine
        self._create = create
        self._known: dict[str, sa.Table] = {}

    def of(self, name: str, row: Row) -> sa.Table:
        """The table of a row. `schema.table` names a table of another schema.

        Call it outside of transactions: a table or column may be made. Raises `ItemError` when
        there is no table, and the errors of SQLAlchemy.
        """
        found = self._known.get(name)
        if found is None:
            there = self._reflect(name)
            found = self._known[name] = self._made(name, row) if there is None else there
        if self._create and (missing := _missing(found, row)):
            found = self._known[name] = self._widened(name, found, missing)
        return found

    def forget(self, name: str) -> None:
        """Look the table up again at its next row: it may have been changed."""
        self._known.pop(name, None)

    def fitted(self, table: sa.Table, row: Row) -> Row:
        """The row with values that its columns take; `_key` is left out where there is no column.

        Raises `ItemError` that names the column which the table does not have.
        """
        fitted = {}
        for name, value in row.items():
            column = table.columns.get(name)
            if column is not None:
                fitted[name] = _fit_column(value, column)
            elif name != KEY_FIELD and not (value is None and self._create):
                known = ", ".join(table.columns.keys())
                raise ItemError(
                    f"item {row.get(KEY_FIELD)}: table {table.name!r} has no column {name!r} "
                    f"(it has {known})"
                )
        return fitted

    def _reflect(self, name: str) -> sa.Table | None:
        schema, _, table = name.rpartition(".")
        try:
            return sa.Table(table, sa.MetaData(), schema=schema or None, autoload_with=self._engine)
        except exc.NoSuchTableError:
            return None

    def _made(self, name: str, row: Row) -> sa.Table:
        if not self._create:
            raise ItemError(
                f"item {row.get(KEY_FIELD)}: there is no table {name!r} in the database; make it, "
                "or let it be made: SQL_CREATE_TABLES = True"
            )
        schema, _, short = name.rpartition(".")
        columns = [
            sa.Column(KEY_FIELD, KEY_TYPE, primary_key=True)
            if field == KEY_FIELD
            else sa.Column(field, column_type(value))
            for field, value in row.items()
            if value is not None  # its column is made when there is a value that tells its type
        ]
        table = sa.Table(short, sa.MetaData(), *columns, schema=schema or None)
        try:
            table.create(self._engine, checkfirst=True)
        except exc.DBAPIError:  # another process may have made it in this moment
            found = self._reflect(name)
            if found is None:
                raise
            return found
        found = self._reflect(name)
        return table if found is None else found

    def _widened(self, name: str, table: sa.Table, missing: Row) -> sa.Table:
        """The table with a column more for each of these values."""
        for field, value in missing.items():
            kind = column_type(value).compile(dialect=self._engine.dialect)
            quote = self._engine.dialect.identifier_preparer
            sql = f"ALTER TABLE {quote.format_table(table)} ADD COLUMN {quote.quote(field)} {kind}"
            try:
                with self._engine.begin() as connection:
                    connection.exec_driver_sql(sql.replace("%", "%%"))
            except exc.DBAPIError:  # another process may have added it in this moment
                found = self._reflect(name)
                if found is None or field not in found.columns:
                    raise
        found = self._reflect(name)
        return table if found is None else found


def _missing(table: sa.Table, row: Row) -> Row:
    """The fields with a value that the table has no column for."""
    return {
        name: value
        for name, value in row.items()
        if value is not None and name != KEY_FIELD and name not in table.columns
    }


def _fit_column(value: Any, column: sa.Column[Any]) -> Any:
    """See `fit`. Raises `ItemError` where a database would round in silence."""
    if isinstance(value, float) and isinstance(column.type, sa.Integer) and value % 1:
        raise ItemError(f"column {column.name!r} takes whole numbers, not {value!r}")
    return fit(value, column.type)


def column_type(value: Any) -> Any:
    """The type of the column that is made for values such as this one."""
    return next((kind for kinds, kind in _COLUMN_TYPES if isinstance(value, kinds)), TEXT_TYPE)


def fit(value: Any, column: sa.types.TypeEngine[Any]) -> Any:
    """The value as a column of this type takes it; what it has no way for is left as it is."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple | dict | set | frozenset):
        plain = _plain(value)
        return plain if isinstance(column, sa.JSON) else json.dumps(plain, ensure_ascii=False)
    if isinstance(value, UUID):
        return value if isinstance(column, sa.Uuid) and column.as_uuid else str(value)
    if isinstance(column, sa.String):
        return value.isoformat() if isinstance(value, datetime | date | time) else _as_text(value)
    if isinstance(value, timedelta) and not isinstance(column, sa.Interval):
        return value.total_seconds()
    return value


def _as_text(value: Any) -> Any:
    return value if isinstance(value, bytes) else str(value)


def _plain(value: Any) -> Any:
    """The value in terms of JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(part) for part in value), key=str)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Decimal | UUID | timedelta):
        return str(value)
    raise ItemError(f"JSON cannot hold a value of type {type(value).__name__}")


def groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows with the same columns together, in the order in which each kind first comes."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(sorted(row)), []).append(row)
    return list(found.values())
