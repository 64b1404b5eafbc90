"""When changes that came before their row are tried again."""

from __future__ import annotations

from orbweb.consume.base import Message
from orbweb.consume.early import MOST_AT_ONCE, MOST_WAITING, TRIES, EarlyChanges


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def message(number: int) -> Message:
    return Message("topic/0", str(number), b"")


def test_the_pause_doubles_and_there_is_an_end() -> None:
    clock = Clock()
    early = EarlyChanges(clock)
    early.note(message(1))
    waited = []
    while early.all():
        before = clock.seconds
        while not early.due():
            clock.seconds += 0.5
        waited.append(clock.seconds - before)
        early.note(message(1))
    assert waited == [2.0**number for number in range(TRIES)]


def test_what_is_stored_is_forgotten() -> None:
    early = EarlyChanges(Clock())
    early.note(message(1))
    early.forget(message(1))
    early.forget(message(2))
    assert early.all() == []


def test_there_are_never_very_many() -> None:
    clock = Clock()
    early = EarlyChanges(clock)
    for number in range(MOST_WAITING + 5):
        early.note(message(number))
    assert early.all() == [message(number) for number in range(5, MOST_WAITING + 5)]
    clock.seconds = 1.0
    assert len(early.due()) == MOST_AT_ONCE
