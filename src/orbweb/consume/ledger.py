"""What a database remembers of a consumer's work: keys, positions and dead letters."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa

from orbweb.consume.base import Message
from orbweb.kafka.envelope import KEY_LENGTH, RUN_LENGTH, Envelope
from orbweb.sql.databases import (
    BYTES_TYPE,
    MOMENT_TYPE,
    NAME_TYPE,
    TEXT_TYPE,
    ascii_text,
    first_wins,
    make_tables,
)

LONGEST_ERROR = 2000
"""Characters of an error that are kept."""

TRIM_KEYS = 5000
"""Keys that are forgotten in one transaction."""

_metadata = sa.MetaData()

KEYS = sa.Table(
    "orbweb_keys",
    _metadata,
    sa.Column("item_key", ascii_text(KEY_LENGTH), primary_key=True),
    sa.Column("run", sa.String(RUN_LENGTH), nullable=False, index=True),
    sa.Column("claim", sa.BigInteger, nullable=False),
    sa.Column("stored_on", sa.Date, nullable=False),
)
"""The ledger: items that are stored. `claim` tells which transaction brought the key."""

POSITIONS = sa.Table(
    "orbweb_positions",
    _metadata,
    sa.Column("consumer", NAME_TYPE, primary_key=True),
    sa.Column("place", NAME_TYPE, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
)
"""How far each consumer group has come in each partition."""

DEAD = sa.Table(
    "orbweb_dead_letters",
    _metadata,
    sa.Column("digest", ascii_text(32), primary_key=True),
    sa.Column("place", NAME_TYPE, nullable=False),
    sa.Column("position", ascii_text(64), nullable=False),
    sa.Column("item_key", sa.String(KEY_LENGTH)),
    sa.Column("item_table", sa.String(255)),
    sa.Column("error", TEXT_TYPE, nullable=False),
    sa.Column("message", BYTES_TYPE, nullable=False),
    sa.Column("died_at", MOMENT_TYPE, nullable=False),
)
"""Messages that could not be stored, each with its error and its bytes."""


@dataclass(frozen=True, slots=True)
class RunKeys:
    """What the ledger holds of one run."""

    run: str
    keys: int
    first_on: date
    last_on: date


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that cannot be stored, and why; without an envelope it could not be read."""

    message: Message
    envelope: Envelope | None
    error: str


class Ledger:
    """The tables beside the target tables. Every method runs in the caller's transaction."""

    def __init__(self, engine: sa.Engine, consumer: str) -> None:
        self._engine = engine
        self._consumer = consumer

    def book(self) -> LedgerBook:
        """The same tables, as a person looks at them."""
        return LedgerBook(self._engine)

    def prepare(self) -> None:
        """Make the tables that are missing."""
        make_tables(_metadata, self._engine)

    def claim(self, connection: sa.Connection, envelopes: Iterable[Envelope]) -> set[str]:
        """Enter keys, and return those that were not there; the first transaction wins a key.

        A transaction that has entered the same key and is still open is waited for.
        """
        runs = {envelope.key: envelope.run for envelope in envelopes}
        if not runs:
            return set()
        claim, today = secrets.randbits(63), datetime.now(UTC).date()
        connection.execute(
            first_wins(self._engine, KEYS),
            [
                {"item_key": key, "run": runs[key], "claim": claim, "stored_on": today}
                for key in sorted(runs)  # in one order everywhere, so that nobody deadlocks
            ],
        )
        mine = sa.select(KEYS.c.item_key).where(
            KEYS.c.item_key.in_(sa.bindparam("keys", expanding=True)), KEYS.c.claim == claim
        )
        return set(connection.execute(mine, {"keys": list(runs)}).scalars())

    def keep_positions(self, connection: sa.Connection, positions: Mapping[str, int]) -> None:
        """Note how far this consumer has come."""
        for place in sorted(positions):
            own = (POSITIONS.c.consumer == self._consumer) & (POSITIONS.c.place == place)
            known = sa.update(POSITIONS).where(own).values(position=positions[place])
            if connection.execute(known).rowcount == 0:
                row = {"consumer": self._consumer, "place": place, "position": positions[place]}
                connection.execute(first_wins(self._engine, POSITIONS), row)

    def positions(self, places: Sequence[str]) -> dict[str, int]:
        """How far this consumer group has come, for the places that are known."""
        statement = sa.select(POSITIONS.c.place, POSITIONS.c.position).where(
            POSITIONS.c.consumer == self._consumer, POSITIONS.c.place.in_(places)
        )
        with self._engine.connect() as connection:
            return {row.place: row.position for row in connection.execute(statement)}

    def bury(self, connection: sa.Connection, letter: DeadLetter) -> None:
        """Keep a message that cannot be stored. The same message is not kept twice."""
        message, envelope = letter.message, letter.envelope
        row = {
            "digest": digest_of(message),
            "place": message.place,
            "position": message.position,
            "item_key": envelope.key if envelope else None,
            "item_table": envelope.table[:255] if envelope else None,
            "error": letter.error[:LONGEST_ERROR].replace("\0", ""),
            "message": message.value,
            "died_at": datetime.now(UTC),
        }
        connection.execute(first_wins(self._engine, DEAD), row)

    def unbury(self, connection: sa.Connection, messages: Sequence[Message]) -> None:
        """Take messages out of the dead letters, because they are tried again."""
        digests = [digest_of(message) for message in messages]
        connection.execute(sa.delete(DEAD).where(DEAD.c.digest.in_(digests)))


class LedgerBook:
    """What a person asks of the ledger, and may do to it."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def runs(self) -> list[RunKeys]:
        """How many keys there are of each run, the oldest run first."""
        first, last = sa.func.min(KEYS.c.stored_on), sa.func.max(KEYS.c.stored_on)
        statement = (
            sa.select(KEYS.c.run, sa.func.count(), first, last)
            .group_by(KEYS.c.run)
            .order_by(first, KEYS.c.run)
        )
        with self._engine.connect() as connection:
            return [RunKeys(*row) for row in connection.execute(statement)]

    def trim(self, run: str) -> int:
        """Forget the keys of a run; returns how many. A crash leaves some of them.

        A message of that run which is read again after this is stored again, unless its table has
        a unique key.
        """
        some = sa.select(KEYS.c.item_key).where(KEYS.c.run == run).limit(TRIM_KEYS)
        removed = 0
        while True:
            with self._engine.begin() as connection:
                keys = list(connection.execute(some).scalars())
                connection.execute(sa.delete(KEYS).where(KEYS.c.item_key.in_(keys)))
            removed += len(keys)
            if len(keys) < TRIM_KEYS:
                return removed

    def dead_letters(self, most: int, after: str = "") -> list[dict[str, Any]]:
        """Dead letters in the order of their digests; `after` is the last digest seen."""
        statement = sa.select(DEAD).where(DEAD.c.digest > after).order_by(DEAD.c.digest).limit(most)
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]

    def count_dead(self) -> int:
        """How many dead letters there are."""
        with self._engine.connect() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(DEAD)).scalar_one()


def digest_of(message: Message) -> str:
    """The identity of a message, its bytes included: a topic that is made anew counts from 0."""
    place = f"{message.place}\0{message.position}\0".encode()
    return blake2b(place + message.value, digest_size=16).hexdigest()
