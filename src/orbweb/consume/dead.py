"""The dead letters of a database as the source of a consumer: they are tried once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orbweb.consume.base import Message
from orbweb.consume.ledger import LedgerBook


class DeadLetterSource:
    """Each dead letter comes once; one that dies again stays, with its new error."""

    def __init__(self, book: LedgerBook) -> None:
        self._book = book
        self._last = ""
        self._over = False

    def take(self, most: int, seconds: float) -> Sequence[Message]:
        """See `Source`."""
        rows = self._book.dead_letters(most, after=self._last)
        self._over = not rows
        if rows:
            self._last = rows[-1]["digest"]
        return [Message(row["place"], row["position"], bytes(row["message"])) for row in rows]

    def positions(self, messages: Sequence[Message]) -> Mapping[str, int]:
        """See `Source`: where the buffer was read to does not change."""
        return {}

    def settle(self, messages: Sequence[Message]) -> None:
        """See `Source`: the transaction has taken the letters out."""

    def lag(self) -> int | None:
        """See `Source`."""
        return 0 if self._over else None

    def close(self) -> None:
        """See `Source`."""
