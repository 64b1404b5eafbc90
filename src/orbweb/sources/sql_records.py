"""Batches of a job in an SQL database, one row each, and which node is the job's master."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from orbweb.errors import ConfigError
from orbweb.sources.base import BatchRecord, BatchState, TaskCounts
from orbweb.sql.databases import MOMENT_TYPE, NAME_TYPE, answered, ascii_text, first_wins

GOING = (BatchState.OPENING, BatchState.OPEN)

_MYSQL_NOW = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"

NOW_MS = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": _MYSQL_NOW,
    "mariadb": _MYSQL_NOW,
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}
"""Milliseconds since 1970 on the database's clock."""


def record_tables(name: str) -> tuple[sa.Table, sa.Table]:
    """The table of batches, and the one that says which node of each job is the master."""
    schema, _, short = name.rpartition(".")
    metadata = sa.MetaData(schema=schema or None)
    batches = sa.Table(
        short,
        metadata,
        sa.Column("job", NAME_TYPE, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("state", ascii_text(16), nullable=False),
        sa.Column("due_at", MOMENT_TYPE, nullable=False),
        sa.Column("opened_at", MOMENT_TYPE, nullable=False),
        sa.Column("ended_at", MOMENT_TYPE),
        sa.Column("missed", sa.Integer, nullable=False),
        sa.Column("total_count", sa.BigInteger, nullable=False),
        sa.Column("done_count", sa.BigInteger, nullable=False),
        sa.Column("fail_count", sa.BigInteger, nullable=False),
    )
    masters = sa.Table(
        f"{short}_master",
        metadata,
        sa.Column("job", NAME_TYPE, primary_key=True),
        sa.Column("holder", ascii_text(64), nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
    return batches, masters


class SqlRecords:
    """See `BatchRecords`."""

    def __init__(self, engine: sa.Engine, batches: sa.Table, masters: sa.Table, job: str) -> None:
        self._engine = engine
        self._batches = batches
        self._masters = masters
        self._job = job
        self._now: sa.ColumnElement[int] = sa.literal_column(
            NOW_MS[engine.dialect.name], sa.BigInteger
        )

    def now_ms(self) -> int:
        with answered(), self._engine.connect() as connection:
            return int(connection.scalar(sa.select(self._now)) or 0)

    def lead(self, holder: str, lease_ms: int) -> bool:
        table = self._masters
        mine = {"holder": holder, "until_ms": self._now + lease_ms}
        free = sa.or_(table.c.holder == holder, table.c.until_ms <= self._now)
        with answered(), self._engine.begin() as connection:
            taken = connection.execute(
                sa.update(table).where(table.c.job == self._job, free).values(mine)
            )
            if taken.rowcount:
                return True
            now = connection.scalar(sa.select(self._now)) or 0
            first = {"job": self._job, "holder": holder, "until_ms": int(now) + lease_ms}
            connection.execute(first_wins(self._engine, table), first)
            who = sa.select(table.c.holder).where(table.c.job == self._job)
            return connection.scalar(who) == holder

    def recent(self, limit: int) -> list[BatchRecord]:
        table = self._batches
        found = (
            sa.select(table)
            .where(table.c.job == self._job)
            .order_by(table.c.number.desc())
            .limit(limit)
        )
        with answered(), self._engine.connect() as connection:
            return [_record(row) for row in connection.execute(found)]

    def open_batch(self, number: int, due_ms: int, missed: int) -> None:
        table = self._batches
        going = sa.select(table.c.number).where(table.c.job == self._job, table.c.state.in_(GOING))
        with answered(), self._engine.begin() as connection:
            if connection.execute(going).first() is not None:
                return
            now = connection.scalar(sa.select(self._now)) or 0
            connection.execute(
                first_wins(self._engine, table),
                {
                    "job": self._job,
                    "number": number,
                    "state": BatchState.OPENING,
                    "due_at": _moment(due_ms),
                    "opened_at": _moment(int(now)),
                    "missed": missed,
                    "total_count": 0,
                    "done_count": 0,
                    "fail_count": 0,
                },
            )

    def ready(self, number: int) -> None:
        self._change(number, [BatchState.OPENING], {"state": BatchState.OPEN})

    def note(self, number: int, counts: TaskCounts) -> None:
        self._change(number, GOING, _columns(counts))

    def end_batch(self, number: int, counts: TaskCounts, state: BatchState) -> bool:
        ended = {"state": state, "ended_at": _moment(self.now_ms())}
        return self._change(number, GOING, {**_columns(counts), **ended})

    def _change(self, number: int, states: Any, values: dict[str, Any]) -> bool:
        """Change the batch if it is in one of these states; False when it is not."""
        table = self._batches
        change = sa.update(table).where(
            table.c.job == self._job, table.c.number == number, table.c.state.in_(states)
        )
        with answered(), self._engine.begin() as connection:
            return connection.execute(change.values(values)).rowcount > 0


def _columns(counts: TaskCounts) -> dict[str, int]:
    return {
        "total_count": counts.total,
        "done_count": counts.done,
        "fail_count": counts.failed,
    }


def _record(row: Any) -> BatchRecord:
    try:
        state = BatchState(row.state)
    except ValueError:
        raise ConfigError(
            f"batch {row.number} of {row.job} has the state {row.state!r}, which this version does "
            "not know; was it written by a later one?"
        ) from None
    return BatchRecord(
        job=row.job,
        number=row.number,
        state=state,
        due_ms=_millis(row.due_at),
        opened_ms=_millis(row.opened_at),
        ended_ms=_millis(row.ended_at),
        missed=row.missed,
        counts=TaskCounts(total=row.total_count, done=row.done_count, failed=row.fail_count),
    )


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _millis(moment: datetime | None) -> int:
    """Databases without time zones hold UTC."""
    if moment is None:
        return 0
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
