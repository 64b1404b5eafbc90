"""Batches of messages into a database, each item once: the one transaction that all rests on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from orbweb.consume.base import Message
from orbweb.consume.early import EarlyChanges
from orbweb.consume.ledger import DeadLetter, Ledger
from orbweb.kafka.envelope import Envelope, UnreadableMessage, decode
from orbweb.log import event, get_logger
from orbweb.model.item import ItemRecord
from orbweb.pipelines.sql_rows import Dated, NoRow, RowWriter
from orbweb.pipelines.sql_tables import Tables, is_rows_fault
from orbweb.sql.databases import reason_of

logger = get_logger("consume")

MOST_KINDS = 1000
"""Kinds of refusal that are remembered; the others are all told."""

Positions = Callable[[Sequence[Message]], Mapping[str, int]]
"""For each place, the offset after these messages."""


@dataclass(slots=True)
class Counts:
    """What became of messages. Each is counted once, in one of these."""

    new: int = 0
    duplicate: int = 0
    """The ledger knew its key."""
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
    record: ItemRecord

    @property
    def dated(self) -> Dated:
        return self.record, self.envelope.version


class ItemStore:
    """Stores messages: ledger row, target row, position and dead letter in one transaction."""

    def __init__(
        self,
        engine: sa.Engine,
        ledger: Ledger,
        rows: RowWriter,
        tables: Tables,
        *,
        dead_letters: bool = False,
    ) -> None:
        """`tables`: those that `rows` writes to. `dead_letters`: the messages are such, retried."""
        self._engine = engine
        self._ledger = ledger
        self._rows = rows
        self._tables = tables
        self._dead_letters = dead_letters
        self.early = EarlyChanges()
        """Changes whose row may come yet: see `try_again`."""
        self._told: set[tuple[str, str]] = set()

    def prepare(self) -> None:
        """Make the tables beside the target tables if they are missing."""
        self._ledger.prepare()
        self._rows.prepare()

    def store(self, messages: Sequence[Message], positions: Positions) -> Counts | None:
        """Make the effect of messages durable as a whole, in their order.

        Returns what became of them, or None when the database refuses one of several: nothing is
        stored then, and halves are to be tried. A message that is refused alone becomes a dead
        letter. Raises the errors of SQLAlchemy when the database does not answer; repeating is
        safe, also when it is unknown whether the transaction was committed.
        """
        items, letters = _read(messages)
        refused = self._refusal(messages, items, letters, positions)
        if isinstance(refused, Counts):
            return refused
        if len(messages) > 1:
            return None
        self.prepare()  # it may be a table of ours that is gone
        if not items:
            return self._transact(messages, [], letters, positions)
        (item,) = items
        self._tables.forget(item.envelope.table)  # it may have been changed since it was looked at
        refused = self._refusal(messages, items, letters, positions)
        if isinstance(refused, Counts):
            return refused
        letter = DeadLetter(item.message, item.envelope, reason_of(refused))
        counts = self._transact(messages, [], [letter], positions)
        if isinstance(refused, NoRow):
            self.early.note(item.message)
        return counts

    def try_again(self, message: Message) -> Counts:
        """Store one of the `early` changes, which is a dead letter. Returns what has changed.

        Raises the errors of SQLAlchemy when the database does not answer; repeating is safe.
        """
        items, _ = _read([message])
        try:
            counts = self._transact([message], items, [], lambda messages: {}, dead_before=True)
        except NoRow:
            self.early.note(message)
            return Counts()
        except Exception as error:
            if not is_rows_fault(error):
                raise
            counts = Counts()  # it stays dead, for another reason
        else:
            counts.dead = -1
        self.early.forget(message)
        return counts

    def _refusal(
        self,
        messages: Sequence[Message],
        items: Sequence[_Item],
        letters: Sequence[DeadLetter],
        positions: Positions,
    ) -> Counts | Exception:
        """What became of them, or the error with which the database refuses a row."""
        try:
            return self._transact(messages, items, letters, positions)
        except Exception as error:
            if not is_rows_fault(error):
                raise
            return error

    def _transact(
        self,
        messages: Sequence[Message],
        items: Sequence[_Item],
        letters: Sequence[DeadLetter],
        positions: Positions,
        *,
        dead_before: bool = False,
    ) -> Counts:
        self._rows.make_room(item.record for item in items)
        counts = Counts(dead=len(letters))
        with self._engine.begin() as connection:
            if self._dead_letters or dead_before:
                self._ledger.unbury(connection, messages)
            fresh = self._ledger.claim(connection, [item.envelope for item in items])
            first: dict[str, _Item] = {}
            for item in items:
                if item.record.key in fresh:
                    first.setdefault(item.record.key, item)
            counts.duplicate = len(items) - len(first)
            inserts = [one.dated for one in first.values() if one.record.update_keys is None]
            self._rows.insert(connection, inserts)
            for one in first.values():
                is_update = one.record.update_keys is not None
                if is_update and not self._rows.update(connection, *one.dated):
                    counts.stale += 1
            counts.new = len(first) - counts.stale
            for letter in letters:
                self._ledger.bury(connection, letter)
            self._ledger.keep_positions(connection, positions(messages))
        for letter in letters:
            self._tell(letter)
        return counts

    def _tell(self, letter: DeadLetter) -> None:
        """The first of a kind is an error, the others are left to `orbweb ledger dead`."""
        envelope = letter.envelope
        table, key = (envelope.table, envelope.key) if envelope else ("", "")
        kind = (table, letter.error.replace(key, "") if key else letter.error)
        known = kind in self._told
        if len(self._told) < MOST_KINDS:
            self._told.add(kind)
        event(
            logger,
            "dead_letter",
            level=logging.DEBUG if known else logging.ERROR,
            place=letter.message.place,
            position=letter.message.position,
            table=table,
            key=key,
            error=letter.error,
        )


def _read(messages: Sequence[Message]) -> tuple[list[_Item], list[DeadLetter]]:
    items, letters = [], []
    for message in messages:
        try:
            one = decode(message.value)
        except UnreadableMessage as error:
            letters.append(DeadLetter(message, None, str(error)))
            continue
        record = ItemRecord(one.key, one.table, dict(one.row), one.update_keys, None, one.unique)
        items.append(_Item(message, one, record))
    return items, letters
