"""A table of tasks in an SQL database: rows enter a batch, are claimed, and come to an end."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import exc

from orbweb.errors import ConfigError
from orbweb.sources.base import (
    BATCH_FIELD,
    DOING,
    TODO,
    Task,
    TaskCounts,
    TaskState,
    by_state,
    counts_of,
)
from orbweb.sql.databases import answered, reflected, shown_url

_logger = logging.getLogger("orbweb.batch")

IDS = 500
"""Rows that one statement names."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a task table that Orbweb reads and writes, and which of its rows are tasks."""

    id: str = "id"
    """It is unique, and rows are taken in its order."""
    state: str = "batch_status"
    time: str = "update_time"
    """Gets the time of each change of state, where there is such a column."""
    batch: str = BATCH_FIELD
    wanted: tuple[str, ...] = ()
    """What a task is given of its row; empty = all but state and batch."""
    condition: str = ""
    """SQL behind WHERE: only these rows are tasks."""


class SqlTasks:
    """See `TaskTable`."""

    def __init__(self, engine: sa.Engine, table: str, columns: Columns) -> None:
        self._engine = engine
        self._name = table
        self._columns = columns
        self._known: sa.Table | None = None

    def prepare(self, *, create: bool) -> None:
        """Look the table up. `create`: add state and batch columns that are missing.

        Raises `ConfigError` that says what is missing and how to make it.
        """
        columns = self._columns
        table = self._reflect()
        if columns.id not in table.columns:
            known = ", ".join(table.columns.keys())
            raise ConfigError(
                f"table {self._name} has no column {columns.id!r} (it has {known}): "
                "BATCH_TASK_ID_FIELD names the one by which rows are known"
            )
        missing = [
            (name, kind)
            for name, kind in (
                (columns.state, "INTEGER NOT NULL DEFAULT 0"),
                (columns.batch, "BIGINT NULL"),
            )
            if name not in table.columns
        ]
        for name, kind in missing:
            self._add_column(table, name, kind, create=create)
        self._known = self._reflect() if missing else table
        if unknown := [name for name in columns.wanted if name not in self._known.columns]:
            raise ConfigError(f"table {self._name} has no column {unknown[0]!r} (task_keys)")

    def highest_batch(self) -> int:
        with answered(), self._engine.connect() as connection:
            return int(connection.scalar(sa.select(sa.func.max(self._batch))) or 0)

    def enter(self, batch: int, after: Any, limit: int) -> Any | None:
        last = sa.select(self._id).where(self._id.is_not(None)).order_by(self._id)
        last = last.limit(1).offset(limit - 1)
        earlier = sa.or_(self._batch.is_(None), self._batch < batch)
        change = sa.update(self._table).where(earlier, self._id.is_not(None), *self._condition())
        if after is None:
            self._warn_of_rows_without_id()
        else:
            last, change = last.where(self._id > after), change.where(self._id > after)
        with answered(), self._engine.begin() as connection:
            to = connection.scalar(last)
            if to is not None:
                change = change.where(self._id <= to)
            connection.execute(change.values({self._batch.name: batch, **self._changed(TODO)}))
        return to

    def claim(self, batch: int, after: Any, limit: int) -> list[Task]:
        found = sa.select(*self._wanted()).where(self._batch == batch, self._state == int(TODO))
        if after is not None:
            found = found.where(self._id > after)
        found = found.order_by(self._id).limit(limit)
        with answered(), self._engine.begin() as connection:
            rows = [dict(row) for row in connection.execute(found).mappings()]
            ids = [row[self._id.name] for row in rows]
            self._change(connection, batch, ids, DOING, where=[TODO])
        return [Task(id, as_json(row)) for id, row in zip(ids, rows, strict=True)]

    def put_back(self, batch: int, held: Container[str]) -> int:
        doing = sa.select(self._id).where(self._batch == batch, self._state == int(DOING))
        with answered(), self._engine.begin() as connection:
            found = connection.scalars(doing.order_by(self._id)).all()
            lost = [id for id in found if str(as_json(id)) not in held]
            return self._change(connection, batch, lost, TODO, where=[DOING])

    def mark(self, batch: int, states: Mapping[Any, TaskState], *, unsettled: bool = False) -> int:
        typed = {self._typed(id): state for id, state in states.items()}
        where = [TODO, DOING] if unsettled else None
        with answered(), self._engine.begin() as connection:
            return sum(
                self._change(connection, batch, ids, state, where=where)
                for state, ids in by_state(typed).items()
            )

    def count(self, batch: int) -> TaskCounts:
        counted = (
            sa.select(self._state, sa.func.count())
            .where(self._batch == batch)
            .group_by(self._state)
        )
        with answered(), self._engine.connect() as connection:
            return counts_of([(int(state or 0), n) for state, n in connection.execute(counted)])

    def _change(
        self,
        connection: sa.Connection,
        batch: int,
        ids: Sequence[Any],
        state: TaskState,
        *,
        where: Iterable[TaskState] | None,
    ) -> int:
        """Set the state of rows of the batch that are in one of these states; None: in any."""
        change = sa.update(self._table).where(self._batch == batch)
        if where is not None:
            change = change.where(self._state.in_([int(each) for each in where]))
        changed = 0
        for start in range(0, len(ids), IDS):
            some = change.where(self._id.in_(ids[start : start + IDS]))
            changed += connection.execute(some.values(self._changed(state))).rowcount
        return changed

    def _changed(self, state: TaskState) -> dict[str, Any]:
        values: dict[str, Any] = {self._state.name: int(state)}
        moment = self._table.columns.get(self._columns.time)
        if moment is not None and isinstance(moment.type, sa.DateTime):
            values[moment.name] = sa.func.now()
        return values

    def _condition(self) -> list[sa.TextClause]:
        said = self._columns.condition.replace(":", r"\:")  # a colon is no parameter
        return [sa.text(f"({said})")] if said else []

    def _kept(self) -> list[sa.Column[Any]]:
        """The columns that a task is given."""
        names = self._columns.wanted or self._table.columns.keys()
        own = () if self._columns.wanted else (self._state.name, self._batch.name)
        return [self._table.columns[name] for name in names if name not in own]

    def _wanted(self) -> list[sa.Column[Any]]:
        return list(dict.fromkeys([self._id, *self._kept()]))

    def _warn_of_rows_without_id(self) -> None:
        """They are no tasks: nothing could name them when they are done."""
        if not self._id.nullable:
            return
        nameless = sa.select(sa.func.count()).select_from(self._table).where(self._id.is_(None))
        with answered(), self._engine.connect() as connection:
            rows = connection.scalar(nameless)
        if rows:
            _logger.warning(
                "%s rows of table %s have no %s: they are no tasks, and are left out",
                *(rows, self._name, self._columns.id),
            )

    def _typed(self, id: Any) -> Any:
        """An id as the column takes it: a task carries it as JSON."""
        if isinstance(id, str) and isinstance(self._id.type, sa.Uuid) and self._id.type.as_uuid:
            return UUID(id)
        return id

    @property
    def _table(self) -> sa.Table:
        assert self._known is not None, "prepare comes first"
        return self._known

    @property
    def _id(self) -> sa.Column[Any]:
        return self._table.columns[self._columns.id]

    @property
    def _state(self) -> sa.Column[Any]:
        return self._table.columns[self._columns.state]

    @property
    def _batch(self) -> sa.Column[Any]:
        return self._table.columns[self._columns.batch]

    def _reflect(self) -> sa.Table:
        table = reflected(self._engine, self._name)
        if table is None:
            raise ConfigError(
                f"there is no table {self._name} in {shown_url(self._engine)}: make it, with a "
                f"column {self._columns.id} and what a task needs to know"
            )
        return table

    def _add_column(self, table: sa.Table, name: str, kind: str, *, create: bool) -> None:
        quote = self._engine.dialect.identifier_preparer
        sql = f"ALTER TABLE {quote.format_table(table)} ADD COLUMN {quote.quote(name)} {kind}"
        if not create:
            raise ConfigError(
                f"table {self._name} has no column {name!r}, in which batches keep what they know "
                f"of a row. Make it ({sql}), or let it be made: SQL_CREATE_TABLES = true"
            )
        try:
            with self._engine.begin() as connection:
                connection.exec_driver_sql(sql)
        except exc.DBAPIError:  # another node may have added it in this moment
            if name not in self._reflect().columns:
                raise


def as_json(value: Any) -> Any:
    """A value of a row as a task carries it: what JSON does not have becomes text."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): as_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
