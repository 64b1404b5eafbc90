"""Changes that came before their row: dead letters that this process tries again for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from orbweb.consume.base import Message

MOST_WAITING = 1000
MOST_AT_ONCE = 20
FIRST_PAUSE_SECONDS = 1.0
TRIES = 7
"""With a pause that doubles each time: about two minutes."""


@dataclass(slots=True)
class _Waiting:
    tries: int
    due_at: float


class EarlyChanges:
    """Which messages are tried again, and when. A crash leaves them dead letters like others."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: dict[Message, _Waiting] = {}

    def note(self, message: Message) -> None:
        """There was no row for it, once more or for the first time. The oldest make room."""
        before = self._waiting.pop(message, None)
        tries = 0 if before is None else before.tries + 1
        if tries >= TRIES:
            return
        if len(self._waiting) >= MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[message] = _Waiting(tries, self._now() + FIRST_PAUSE_SECONDS * 2**tries)

    def forget(self, message: Message) -> None:
        """It is dead no longer."""
        self._waiting.pop(message, None)

    def due(self) -> list[Message]:
        """Some that are to be tried now."""
        now = self._now()
        found = [message for message, waiting in self._waiting.items() if waiting.due_at <= now]
        return found[:MOST_AT_ONCE]

    def all(self) -> list[Message]:
        """All that wait, in the order of their arrival."""
        return list(self._waiting)
