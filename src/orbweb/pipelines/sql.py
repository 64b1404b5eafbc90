"""Items into PostgreSQL, MySQL, MariaDB or SQLite, a page in one transaction and only once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Self

import sqlalchemy as sa

from orbweb.errors import ConfigError, ItemError, OrbwebError, PipelineError
from orbweb.log import event
from orbweb.model.item import KEY_FIELD, ItemRecord
from orbweb.pipelines.base import Page, PagePipeline, Refusal
from orbweb.pipelines.sql_pages import PAGES, PageLedger, PageTaken, Rest
from orbweb.pipelines.sql_rows import Conflict, RowWriter
from orbweb.pipelines.sql_tables import Tables, first_wins, is_rows_fault, open_engine, reason_of


class SqlPipeline(PagePipeline):
    """Stores each page in one transaction, whose first statement claims the page.

    The first attempt at a page wins as a whole. A page that comes again (its node died before the
    acknowledgement, or it woke after its lease had passed) changes nothing. A row that the database
    refuses is left out of its page and reported; all beside it are stored.

    Tables are used as they are in the database. Of a table without a column `_key` that column is
    left out. `orbweb_pages` and `orbweb_versions` are made beside them.
    """

    def __init__(
        self,
        url: str,
        *,
        create_tables: bool = False,
        on_conflict: Conflict = Conflict.NOTHING,
        conflict_target: Sequence[str] = (),
        keep_days: float = 30.0,
    ) -> None:
        """`create_tables`: make missing tables and columns.

        `on_conflict`: what becomes of an item whose row is there already, by a unique key of the
        table. `conflict_target`: the columns of that key, where it is not the item's own.
        `keep_days`: how long it is remembered which pages are stored; 0 = for ever.
        """
        self._engine = open_engine(url)
        first_wins(self._engine, PAGES)  # raises ConfigError for a kind of database without it
        self._tables = Tables(self._engine, create=create_tables)
        self._ledger = PageLedger(self._engine)
        self._rows = RowWriter(self._engine, self._tables, on_conflict, conflict_target)
        self._keep = timedelta(days=keep_days)
        self._prepared = False
        self._names: dict[str, None] = {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Raises `ConfigError` without `SQL_URL`."""
        if not settings["SQL_URL"]:
            raise ConfigError(
                "SQL_URL is empty: say where items go, such as postgresql://user@host/name, "
                "mysql://user:password@host/name or sqlite:///items.db"
            )
        return cls(
            settings["SQL_URL"],
            create_tables=settings["SQL_CREATE_TABLES"],
            on_conflict=Conflict(settings["SQL_ON_CONFLICT"]),
            keep_days=settings["SQL_LEDGER_DAYS"],
        )

    @property
    def targets(self) -> tuple[str, ...]:
        shown = self._engine.url.render_as_string(hide_password=True)
        return tuple(f"{shown} {name}" for name in self._names)

    def save_pages(self, pages: Sequence[Page]) -> list[Refusal]:
        """See `PagePipeline`. Raises `PipelineError` while the database cannot be used."""
        try:
            self._prepare(pages)
            try:
                self._transact(pages)
            except Exception as error:
                if not is_rows_fault(error):
                    raise
                self._make_own_tables()  # one of them may be gone
                return [refusal for page in pages for refusal in self._store_apart(page)]
        except PageTaken as error:
            raise PipelineError(str(error)) from error
        except sa.exc.SQLAlchemyError as error:
            raise PipelineError(reason_of(error)) from error
        return []

    def close(self) -> None:
        self._engine.dispose()

    def _prepare(self, pages: Sequence[Page]) -> None:
        if self._prepared:
            return
        self._make_own_tables()
        self._prepared = True
        if self._keep:
            self._trim(pages[0].origin.run)

    def _make_own_tables(self) -> None:
        self._ledger.prepare()
        self._rows.prepare()

    def _trim(self, run: str) -> None:
        trimmed, more = 0, True
        while more:
            with self._engine.begin() as connection:
                count = self._ledger.trim(connection, self._keep, run)
            trimmed, more = trimmed + count, count > 0
        if trimmed:
            event(self.logger, "page_ledger_trimmed", level=logging.INFO, pages=trimmed)

    def _transact(self, pages: Sequence[Page]) -> None:
        """Store all pages in one transaction, or none."""
        for page in pages:
            self._rows.make_room(page.records)
        stale: list[ItemRecord] = []
        with self._engine.begin() as connection:
            rests = self._ledger.claim(connection, pages)
            self._rows.insert(connection, _wanted(rests, updates=False))
            for record, origin_ms in _wanted(rests, updates=True):
                if not self._rows.update(connection, record, origin_ms):
                    stale.append(record)
        self._note(pages, stale)

    def _store_apart(self, page: Page) -> list[Refusal]:
        """Store one page in a transaction of its own, without the rows that are refused."""
        stale: list[ItemRecord] = []
        refusals: dict[str, Refusal] = {}
        for record in page.records:
            try:
                self._tables.forget(record.table)  # it may have been changed since it was looked at
                self._rows.make_room([record])
            except Exception as error:
                refusals[record.key] = _refusal(record, error)
        with self._engine.begin() as connection:
            for rest in self._ledger.claim(connection, [page]):
                for record, origin_ms in _wanted([rest]):
                    if record.key in refusals:
                        continue
                    try:
                        with connection.begin_nested():
                            if record.update_keys is None:
                                self._rows.insert(connection, [(record, origin_ms)])
                            elif not self._rows.update(connection, record, origin_ms):
                                stale.append(record)
                    except Exception as error:
                        refusals[record.key] = _refusal(record, error)
                if refusals:
                    self._ledger.keep_partial(connection, rest, refusals)
        self._note([page], stale)
        return list(refusals.values())

    def _note(self, pages: Sequence[Page], stale: Sequence[ItemRecord]) -> None:
        for page in pages:
            self._names.update(dict.fromkeys(record.table for record in page.records))
        for record in stale:
            event(
                self.logger,
                "update_left_out",
                level=logging.WARNING,
                table=record.table,
                key=record.key,
                why="the row was changed by something that was fetched later",
            )


def _wanted(rests: Iterable[Rest], *, updates: bool | None = None) -> list[tuple[ItemRecord, int]]:
    """The records that are still to be stored, and when their pages were claimed."""
    return [
        (record, rest.page.origin.claimed_at_ms)
        for rest in rests
        for record in rest.page.records
        if record.key not in rest.known
        and (updates is None or updates == (record.update_keys is not None))
    ]


def _refusal(record: ItemRecord, error: Exception) -> Refusal:
    """Why the database refuses a row. What is no fault of the row is raised again."""
    if not is_rows_fault(error):
        raise error
    if isinstance(error, OrbwebError):
        return Refusal(record, error)
    fields = ", ".join(name for name in record.row if name != KEY_FIELD)
    text = f"item {record.key} of table {record.table!r} ({fields}): {reason_of(error)}"
    return Refusal(record, ItemError(text))
