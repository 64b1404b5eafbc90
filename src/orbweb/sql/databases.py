"""SQL databases as they are: how one is opened, and what they differ in. Nothing else knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from orbweb.errors import ConfigError, ItemError, StoreUnavailable
from orbweb.log import mask_address, mask_secrets

try:
    import sqlalchemy as sa
    from sqlalchemy import exc
    from sqlalchemy.dialects import mysql, postgresql, sqlite
except ImportError as error:
    raise ConfigError(
        "SQL databases need SQLAlchemy and their drivers: pip install 'orbweb[sql]'"
    ) from error

DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
"""What a URL without a driver means."""

BUSY_SECONDS = 30.0
"""How long SQLite waits for another process that writes."""


def reflected(engine: sa.Engine, name: str) -> sa.Table | None:
    """The table of that name, `schema.table` or `table`, as it is now; None if there is none."""
    schema, _, short = name.rpartition(".")
    try:
        return sa.Table(short, sa.MetaData(), schema=schema or None, autoload_with=engine)
    except exc.NoSuchTableError:
        return None


def ascii_text(length: int) -> sa.types.TypeEngine[str]:
    """A column of ASCII text that every database compares byte by byte."""
    exact = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


KEY_TYPE = ascii_text(64)
NAME_TYPE = sa.String(255).with_variant(
    mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
"""Names that people choose: upper and lower case are not the same."""
TEXT_TYPE = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
BYTES_TYPE = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
MOMENT_TYPE = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


def url_of_server(settings: Mapping[str, Any], dialect: str, prefix: str) -> str:
    """The URL of NetSpy's settings for one server: `<prefix>_HOST`, `_PORT`, `_DB`, `_USER`,
    `_PASSWORD`.
    """
    url = sa.URL.create(
        dialect,
        settings[f"{prefix}_USER"],
        settings[f"{prefix}_PASSWORD"] or None,
        settings[f"{prefix}_HOST"],
        settings[f"{prefix}_PORT"],
        settings[f"{prefix}_DB"],
    )
    return url.render_as_string(hide_password=False)


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


def shown_url(engine: sa.Engine) -> str:
    """The address of a database without its password."""
    return engine.url.render_as_string(hide_password=True)


@contextmanager
def answered() -> Iterator[None]:
    """What a database does not do becomes `StoreUnavailable`, with what it said."""
    try:
        yield
    except exc.SQLAlchemyError as error:
        raise StoreUnavailable(f"the database does not answer: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """What the database said, without the statement and its values."""
    said = error.orig if isinstance(error, exc.StatementError) else error
    text = " ".join(str(said).split())
    return f"{type(said).__name__}: {text}" if text else type(said).__name__


def _prepare_mysql(engine: sa.Engine) -> None:
    """No value is cut or bent to fit its column, whatever the server's default is.

    A statement that is longer than the server takes is refused here: the server would only hang up,
    as one does that is going down.
    """

    @sa.event.listens_for(engine, "connect")
    def _(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')")
            cursor.execute("SELECT @@max_allowed_packet")
            record.info["max_bytes"] = int(cursor.fetchone()[0])

    @sa.event.listens_for(engine, "before_cursor_execute")
    def _(
        connection: sa.Connection, cursor: Any, sql: str, values: Any, context: Any, many: bool
    ) -> None:
        limit = connection.info["max_bytes"]
        size = max((_size(row, limit) for row in (values if many else [values])), default=0)
        if size > limit:
            raise ItemError(
                f"a row of {size} bytes is more than the server takes: max_allowed_packet is "
                f"{limit} there"
            )


def _size(values: Any, limit: int) -> int:
    """The bytes of the texts among the values of a row; of one that is far below the limit, at
    most so many."""
    parts = values.values() if isinstance(values, Mapping) else values
    texts = [part for part in parts if isinstance(part, str | bytes)]
    at_most = 4 * sum(map(len, texts))
    if at_most <= limit:
        return at_most
    return sum(
        len(part.encode(errors="replace")) if isinstance(part, str) else len(part) for part in texts
    )


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
