"""The tables of an SQL database that items go to: how they are found, made and filled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import exc

from orbweb.errors import ItemError
from orbweb.model.item import KEY_FIELD
from orbweb.pipelines.sql_values import fit
from orbweb.sql.databases import BYTES_TYPE, KEY_TYPE, MOMENT_TYPE, TEXT_TYPE, reflected

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

_REFUSED_BY_MYSQL = frozenset(
    {
        *(1048, 1264, 1265, 1292, 1364, 1366, 1406, 1690, 3140, 3819, 4025),  # values
        *(1054, 1059, 1060, 1103, 1117, 1118, 1166, 1644),  # columns and names; a trigger says no
        *(1300, 3854),  # characters that names cannot have
    }
)
"""Codes of an OperationalError with which MySQL and MariaDB refuse what a row says."""

_SQLITE_ERROR = 1
"""SQLite's word for a statement that is wrong as the tables are; locks, full disks have others."""

_PROGRAM_LIMIT = "54"
"""PostgreSQL's class of rows that are too big or have too many columns."""


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
        return _says_the_row_is_wrong(error.orig)
    return isinstance(
        error, exc.DataError | exc.IntegrityError | exc.ProgrammingError | exc.NotSupportedError
    )


def _says_the_row_is_wrong(error: BaseException | None) -> bool:
    """Whether an operational error of a driver is no trouble of the server."""
    arguments = error.args if error is not None else ()
    return (
        (bool(arguments) and arguments[0] in _REFUSED_BY_MYSQL)
        or getattr(error, "sqlite_errorcode", None) == _SQLITE_ERROR
        or str(getattr(error, "sqlstate", "")).startswith(_PROGRAM_LIMIT)
    )


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
            there = reflected(self._engine, name)
            found = self._known[name] = self._made(name, row) if there is None else there
        if self._create and (missing := _missing(found, row)):
            self._check_columns([*found.columns.keys(), *missing], row)
            found = self._known[name] = self._widened(name, found, missing)
        return found

    def known(self, name: str) -> sa.Table:
        """The table as `of` last found it; for use in a transaction, which a change of the table
        from another connection would wait for, and it for the change. Raises `ItemError`.
        """
        if name not in self._known:
            raise ItemError(f"table {name!r} could not be looked up in the database")
        return self._known[name]

    def forget(self, name: str) -> None:
        """Look the table up again at its next row: it may have been changed."""
        self._known.pop(name, None)

    def fitted(self, table: sa.Table, row: Row) -> Row:
        """The row with values that its columns take; `_key` is left out where there is no column.

        Raises `ItemError` that names the column which the table does not have.
        """
        fitted, dialect = {}, self._engine.dialect.name
        for name, value in row.items():
            column = table.columns.get(name)
            if column is not None:
                fitted[name] = fit(value, column, dialect)
            elif name != KEY_FIELD and not (value is None and self._create):
                known = ", ".join(table.columns.keys())
                raise ItemError(
                    f"item {row.get(KEY_FIELD)}: table {table.name!r} has no column {name!r} "
                    f"(it has {known})"
                )
        return fitted

    def _made(self, name: str, row: Row) -> sa.Table:
        if not self._create:
            raise ItemError(
                f"item {row.get(KEY_FIELD)}: there is no table {name!r} in the database; make it, "
                "or let it be made: SQL_CREATE_TABLES = True"
            )
        self._check_columns([KEY_FIELD, *(_missing(sa.Table(name, sa.MetaData()), row))], row)
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
            found = reflected(self._engine, name)
            if found is None:
                raise
            return found
        found = reflected(self._engine, name)
        return table if found is None else found

    def _check_columns(self, names: Sequence[str], row: Row) -> None:
        """Raises `ItemError` for a field that cannot be a column beside the others."""
        dialect = self._engine.dialect
        is_mysql = dialect.name in ("mysql", "mariadb")
        folded: dict[str, str] = {}
        for name in names:
            if name in row and (
                not name
                or "\0" in name
                or len(name.encode()) > dialect.max_identifier_length
                or (is_mysql and "%" in name)
            ):
                raise ItemError(
                    f"item {row.get(KEY_FIELD)}: {name!r} cannot be the name of a column"
                )
            other = folded.setdefault(name.lower(), name)
            if other != name and (is_mysql or dialect.name == "sqlite"):
                raise ItemError(
                    f"item {row.get(KEY_FIELD)}: {dialect.name} does not tell the columns "
                    f"{other!r} and {name!r} apart"
                )

    def _widened(self, name: str, table: sa.Table, missing: Row) -> sa.Table:
        """The table with a column more for each of these values."""
        for field, value in missing.items():
            kind = column_type(value).compile(dialect=self._engine.dialect)
            quote = self._engine.dialect.identifier_preparer
            sql = f"ALTER TABLE {quote.format_table(table)} ADD COLUMN {quote.quote(field)} {kind}"
            try:
                with self._engine.begin() as connection:
                    connection.exec_driver_sql(sql)  # `quote` has doubled each % where one must
            except exc.DBAPIError:  # another process may have added it in this moment
                found = reflected(self._engine, name)
                if found is None or field not in found.columns:
                    raise
        found = reflected(self._engine, name)
        return table if found is None else found


def _missing(table: sa.Table, row: Row) -> Row:
    """The fields with a value that the table has no column for."""
    return {
        name: value
        for name, value in row.items()
        if value is not None and name != KEY_FIELD and name not in table.columns
    }


def column_type(value: Any) -> Any:
    """The type of the column that is made for values such as this one."""
    return next((kind for kinds, kind in _COLUMN_TYPES if isinstance(value, kinds)), TEXT_TYPE)


def groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows with the same columns together, in the order in which each kind first comes."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(sorted(row)), []).append(row)
    return list(found.values())
