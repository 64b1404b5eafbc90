"""SQL databases as they are: what they differ in, and their tables. Nothing else knows either."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orbweb.errors import ConfigError, ItemError
from orbweb.log import mask_address, mask_secrets
from orbweb.model.item import KEY_FIELD
from orbweb.pipelines.sql_values import fit

try:
    import sqlalchemy as sa
    from sqlalchemy import exc
    from sqlalchemy.dialects import mysql, postgresql, sqlite
except ImportError as error:
    raise ConfigError(
        "SQL databases need SQLAlchemy and their drivers: pip install 'orbweb[sql]'"
    ) from error

if TYPE_CHECKING:
    from orbweb.pipelines.base import Row

DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
"""What a URL without a driver means."""

BUSY_SECONDS = 30.0
"""How long SQLite waits for another process that writes."""


def ascii_text(length: int) -> sa.types.TypeEngine[str]:
    """A column of ASCII text that every database compares byte by byte."""
    exact = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


KEY_TYPE = ascii_text(64)
TEXT_TYPE = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
BYTES_TYPE = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
MOMENT_TYPE = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")

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
    }
)
"""Codes of an OperationalError with which MySQL and MariaDB refuse what a row says."""

_SQLITE_ERROR = 1
"""SQLite's word for a statement that is wrong as the tables are; locks, full disks have others."""

_PROGRAM_LIMIT = "54"
"""PostgreSQL's class of rows that are too big or have too many columns."""


def open_engine(url: str, **options: Any) -> sa.Engine:
    """An engine for a database URL. Does not connect yet. Raises `ConfigError`.

    Without a driver in the URL, PostgreSQL means psycopg, MySQL and MariaDB mean PyMySQL. On SQLite
    a transaction takes the right to write at its beginning, and waits for it.
    """
    try:
        parsed = sa.make_url(url)
        if "@" in (parsed.host or ""):
            raise ValueError("in a password write @ as %40")
        name = DRIVERS.get(parsed.drivername, parsed.drivername)
        engine = sa.create_engine(parsed.set(drivername=name), pool_pre_ping=True, **options)
    except (exc.ArgumentError, exc.NoSuchModuleError, ValueError) as error:
        raise ConfigError(
            f"{mask_address(url)!r} is no database URL: {mask_secrets(str(error))}; right would be "
            "postgresql://user:password@host/name, mysql://user:password@host/name or "
            "sqlite:///file.db"
        ) from error
    except ImportError as error:
        raise ConfigError(
            f"the driver for {mask_address(url)} is missing ({error}): pip install 'orbweb[sql]'"
        ) from error
    if engine.dialect.name == "sqlite":
        _prepare_sqlite(engine)
    elif engine.dialect.name in ("mysql", "mariadb"):
        _prepare_mysql(engine)
    return engine


def first_wins(engine: sa.Engine, table: sa.Table) -> sa.Insert:
    """An insert that passes over the rows which a unique key of the table refuses.

    All other refusals stay errors, as `INSERT IGNORE` of MySQL would not let them.
    """
    dialect = engine.dialect.name
    if dialect == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    if dialect in ("mysql", "mariadb"):
        some = next(iter(table.columns))
        return mysql.insert(table).on_duplicate_key_update({some.name: some})
    raise ConfigError(
        f"{dialect} is not supported: take PostgreSQL, MySQL, MariaDB or SQLite, whose inserts can "
        "pass over rows that are there"
    )


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


def reason_of(error: Exception) -> str:
    """What the database said, without the statement and its values."""
    said = error.orig if isinstance(error, exc.DBAPIError) else error
    text = " ".join(str(said).split())
    return f"{type(said).__name__}: {text}" if text else type(said).__name__


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
            self._check_columns([*found.columns.keys(), *missing], row)
            found = self._known[name] = self._widened(name, found, missing)
        return found

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
            found = self._reflect(name)
            if found is None:
                raise
            return found
        found = self._reflect(name)
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


def column_type(value: Any) -> Any:
    """The type of the column that is made for values such as this one."""
    return next((kind for kinds, kind in _COLUMN_TYPES if isinstance(value, kinds)), TEXT_TYPE)


def groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows with the same columns together, in the order in which each kind first comes."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(sorted(row)), []).append(row)
    return list(found.values())


def _prepare_mysql(engine: sa.Engine) -> None:
    """No value is cut or bent to fit its column, whatever the server's default is."""

    @sa.event.listens_for(engine, "connect")
    def _(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')")


def _prepare_sqlite(engine: sa.Engine) -> None:
    @sa.event.listens_for(engine, "connect")
    def _(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, see below
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    @sa.event.listens_for(engine, "begin")
    def _(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def make_tables(metadata: sa.MetaData, engine: sa.Engine) -> None:
    """Make the tables that are missing. Another node that starts now may be making them too."""
    try:
        metadata.create_all(engine)
    except exc.DBAPIError:
        metadata.create_all(engine)
