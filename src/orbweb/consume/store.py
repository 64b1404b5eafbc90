"""Batches of messages into a database, each item once: the one transaction that all rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from orbweb.consume.base import Message
from orbweb.consume.ledger import DeadLetter, Ledger
from orbweb.errors import ItemError
from orbweb.kafka.envelope import Envelope, UnreadableMessage, decode, row_key
from orbweb.model.item import KEY_FIELD
from orbweb.pipelines.sql_tables import Tables, first_wins, groups, is_rows_fault, reason_of

Positions = Callable[[Sequence[Message]], Mapping[str, int]]
"""For each place, the offset after these messages."""


@dataclass(slots=True)
class Counts:
    """What became of messages. Each is counted once, in one of these."""

    new: int = 0
    duplicate: int = 0
    """The ledger knew its key, or a unique key of its table refused it."""
    stale: int = 0
    """A change of a row that something newer had changed before."""
    dead: int = 0

    def add(self, other: Counts) -> None:
        self.new += other.new
        self.duplicate += other.duplicate
        self.stale += other.stale
        self.dead += other.dead


class _Item(NamedTuple):
    message: Message
    envelope: Envelope


class ItemStore:
    """Stores messages: ledger row, target row, position and dead letter in one transaction."""

    def __init__(
        self, engine: sa.Engine, ledger: Ledger, tables: Tables, *, dead_letters: bool = False
    ) -> None:
        """`dead_letters`: the messages are dead letters, which are tried again."""
        self._engine = engine
        self._ledger = ledger
        self._tables = tables
        self._dead_letters = dead_letters

    def store(self, messages: Sequence[Message], positions: Positions) -> Counts | None:
        """Make the effect of messages durable as a whole, in their order.

        Returns what became of them, or None when the database refuses one of several: nothing is
        stored then, and halves are to be tried. A message that is refused alone becomes a dead
        letter. Raises the errors of SQLAlchemy when the database does not answer; repeating is
        safe, also when it is unknown whether the transaction was committed.
        """
        items, letters = _read(messages)
        try:
            return self._transact(messages, items, letters, positions)
        except (sa.exc.StatementError, ItemError) as error:
            if not is_rows_fault(error):
                raise
            if len(messages) > 1:
                return None
        (item,) = items
        self._tables.forget(item.envelope.table)  # it may have been changed since it was looked at
        try:
            return self._transact(messages, items, letters, positions)
        except (sa.exc.StatementError, ItemError) as error:
            if not is_rows_fault(error):
                raise
            letters = [DeadLetter(item.message, item.envelope, reason_of(error))]
        return self._transact(messages, [], letters, positions)

    def _transact(
        self,
        messages: Sequence[Message],
        items: Sequence[_Item],
        letters: Sequence[DeadLetter],
        positions: Positions,
    ) -> Counts:
        envelopes = [item.envelope for item in items]
        tables = {one.table: self._tables.of(one.table, dict(one.row)) for one in envelopes}
        counts = Counts(dead=len(letters))
        with self._engine.begin() as connection:
            if self._dead_letters:
                self._ledger.unbury(connection, messages)
            fresh = self._ledger.claim(connection, envelopes)
            first: dict[str, Envelope] = {}
            for one in envelopes:
                if one.key in fresh:
                    first.setdefault(one.key, one)
            counts.duplicate = len(envelopes) - len(first)
            inserts = [one for one in first.values() if one.update_keys is None]
            for name, some in _by_table(inserts).items():
                self._insert(connection, tables[name], some, counts)
            for one in first.values():
                if one.update_keys is not None:
                    self._update(connection, tables[one.table], one, counts)
            for letter in letters:
                self._ledger.bury(connection, letter)
            self._ledger.keep_positions(connection, positions(messages))
        return counts

    def _insert(
        self, connection: sa.Connection, table: sa.Table, some: Iterable[Envelope], counts: Counts
    ) -> None:
        statement = first_wins(self._engine, table)
        for rows in groups([self._tables.fitted(table, dict(one.row)) for one in some]):
            stored = connection.execute(statement, rows).rowcount
            stored = len(rows) if stored < 0 else min(stored, len(rows))
            counts.new += stored
            counts.duplicate += len(rows) - stored

    def _update(
        self, connection: sa.Connection, table: sa.Table, one: Envelope, counts: Counts
    ) -> None:
        if not self._ledger.is_newest(connection, row_key(one), one.version):
            counts.stale += 1
            return
        row = self._tables.fitted(table, dict(one.row))
        keys = one.update_keys or ()
        found = sa.and_(*(table.columns[name] == row[name] for name in keys))
        values = {name: row[name] for name in row if name not in keys and name != KEY_FIELD}
        if values:
            matched = connection.execute(sa.update(table).where(found).values(values)).rowcount
            if matched == 0:
                wanted = ", ".join(f"{name} = {row[name]!r}" for name in keys)
                raise ItemError(f"item {one.key}: {one.table!r} has no row to change with {wanted}")
        counts.new += 1


def _read(messages: Sequence[Message]) -> tuple[list[_Item], list[DeadLetter]]:
    items, letters = [], []
    for message in messages:
        try:
            items.append(_Item(message, decode(message.value)))
        except UnreadableMessage as error:
            letters.append(DeadLetter(message, None, str(error)))
    return items, letters


def _by_table(envelopes: Iterable[Envelope]) -> dict[str, list[Envelope]]:
    found: dict[str, list[Envelope]] = {}
    for one in envelopes:
        found.setdefault(one.table, []).append(one)
    return found
