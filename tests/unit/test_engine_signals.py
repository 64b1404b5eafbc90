"""Signals: what a node meets at hosts is told in few calls, soon when it is bad."""

from __future__ import annotations

import asyncio

from tests.unit.test_engine_pacer import HOST, Street, play

from orbweb.download.base import Meeting
from orbweb.engine import signals as module
from orbweb.frontier.base import Signal

GOOD, BAD = Meeting(HOST, True), Meeting(HOST, False)
REFUSED = Meeting(HOST, False, refused=True)


def test_nothing_is_told_when_nothing_was_met() -> None:
    async def scene(street: Street) -> None:
        await asyncio.sleep(10)
        await street.signals.flush()

    assert play(scene).store.reports == []


def test_what_was_met_at_a_host_is_added_up() -> None:
    async def scene(street: Street) -> None:
        for meeting in (BAD, GOOD, GOOD, BAD, REFUSED):
            street.signals.note(meeting, 0.1)
        street.signals.note(Meeting("other.example", True), 0.02)
        await street.signals.flush()

    ((_, signals),) = play(scene).store.reports
    assert signals == [
        Signal(HOST, good=2, bad=3, streak=2, refused=1, latency_ms=500),
        Signal("other.example", good=1, latency_ms=20),
    ]


def test_good_news_is_told_four_times_a_second_at_most() -> None:
    async def scene(street: Street) -> None:
        for _ in range(1000):
            street.signals.note(GOOD, 0.01)
            await asyncio.sleep(0.002)

    street = play(scene)
    times = [at for at, _ in street.store.reports]
    assert 7 <= len(times) <= 9
    assert sum(signal.good for _, signals in street.store.reports for signal in signals) >= 850


def test_bad_news_is_told_within_50_milliseconds() -> None:
    async def scene(street: Street) -> None:
        for _ in range(3):
            street.signals.note(GOOD, 0.01)
            await asyncio.sleep(0.26)
        street.signals.note(GOOD, 0.01)
        await asyncio.sleep(0.03)
        street.signals.note(BAD, 0.01)
        began = street.now
        await asyncio.sleep(0.1)
        assert began <= street.store.reports[-1][0] <= began + 0.05

    assert play(scene).store.reports[-1][1][0].bad == 1


def test_what_the_store_does_not_hear_of_is_not_told_twice() -> None:
    async def scene(street: Street) -> None:
        street.store.away_until = street.now + 1
        street.signals.note(BAD, 0.01)
        await asyncio.sleep(2)
        street.signals.note(GOOD, 0.01)
        await asyncio.sleep(1)

    ((_, signals),) = play(scene).store.reports
    assert signals == [Signal(HOST, good=1, latency_ms=10)]


def test_memory_and_calls_are_bounded() -> None:
    async def scene(street: Street) -> None:
        for number in range(module.MOST_HOSTS + 10):
            street.signals.note(Meeting(f"h{number}", True), 0.01)
        await street.signals.flush()

    reports = play(scene).store.reports
    assert max(len(signals) for _, signals in reports) == module.REPORT_BATCH
    assert sum(len(signals) for _, signals in reports) == module.MOST_HOSTS
