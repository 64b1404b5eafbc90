"""A table of tasks in PostgreSQL, MySQL, MariaDB or SQLite, and the records of its batches."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from orbweb.errors import ConfigError
from orbweb.sources.base import RECORD_TABLE, BatchRecords, TaskTable
from orbweb.sources.sql_records import SqlRecords, record_tables
from orbweb.sources.sql_tasks import Columns, SqlTasks
from orbweb.sql.databases import answered, first_wins, make_tables, open_engine


class SqlBatchStore:
    """See `BatchStore`. The table of tasks is as it is in the database; records lie beside it."""

    def __init__(
        self,
        url: str,
        task_table: str,
        columns: Columns | None = None,
        *,
        record_table: str = RECORD_TABLE,
        create: bool = False,
    ) -> None:
        """`task_table` may be `schema.table`. `record_table` is made if it is missing.

        `create`: also make the columns of the task table that are missing. Raises `ConfigError`
        for a URL that is none. Connects when it is first asked.
        """
        self._engine = open_engine(url)
        self._columns = columns or Columns()
        self._record_table = record_table
        self._create = create
        self._tasks = SqlTasks(self._engine, task_table, self._columns)
        batches, masters = record_tables(record_table)
        first_wins(self._engine, batches)  # raises ConfigError for a kind of database without it
        self._tables = batches, masters

    @property
    def tasks(self) -> TaskTable:
        return self._tasks

    @property
    def id_field(self) -> str:
        return self._columns.id

    def records(self, job: str) -> BatchRecords:
        return SqlRecords(self._engine, *self._tables, job)

    def prepare(self, *, make: bool = True) -> bool:
        with answered():
            if make:
                make_tables(self._tables[0].metadata, self._engine)
            self._tasks.prepare(create=make and self._create)
            return self._has_records()

    def close(self) -> None:
        self._engine.dispose()

    def _has_records(self) -> bool:
        batches = self._tables[0]
        looked = sa.inspect(self._engine)
        if not looked.has_table(batches.name, schema=batches.schema):
            return False
        there = {each["name"] for each in looked.get_columns(batches.name, schema=batches.schema)}
        if missing := sorted(set(batches.columns.keys()) - there):
            raise ConfigError(
                f"the table {self._record_table} holds no records of Orbweb's batches (it has no "
                f"column {missing[0]!r}): let BATCH_RECORD_TABLE name another one, which is made"
            )
        return True


class MysqlBatchStore(SqlBatchStore):
    """`SqlBatchStore` by NetSpy's name and arguments."""

    def __init__(
        self,
        task_table: str,
        *,
        db: Any,
        id_field: str = "id",
        state_field: str = "batch_status",
        time_field: str = "update_time",
    ) -> None:
        """`db` is the address of the database: mysql://user:password@host/name."""
        if not isinstance(db, str):
            raise ConfigError(
                f"MysqlBatchStore takes db as a URL, not as {type(db).__name__}: right would be "
                "db='mysql://user:password@host/name'"
            )
        super().__init__(db, task_table, Columns(id_field, state_field, time_field))
