"""Virtual time: loops that jump from event to event and can be stopped like processes."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from orbweb.testing.virtual import Livelock, Timeline, VirtualLoop

START_MS = 1_000_000


@pytest.fixture
def timeline() -> Timeline:
    return Timeline(random.Random(1), START_MS)


@pytest.fixture
def loop(timeline: Timeline) -> Any:
    loop = VirtualLoop(timeline)
    yield loop
    loop.unwind()
    loop.close()


def run(timeline: Timeline, until_ms: int = START_MS + 3_600_000) -> bool:
    return timeline.run(until_ms, lambda: False)


async def note(log: list[tuple[int, str]], timeline: Timeline, name: str, *pauses: float) -> None:
    for pause in pauses:
        await asyncio.sleep(pause)
        log.append((timeline.now_ms - START_MS, name))


def test_an_hour_of_sleep_takes_no_time(timeline: Timeline, loop: VirtualLoop) -> None:
    log: list[tuple[int, str]] = []
    loop.create_task(note(log, timeline, "a", 3599.0))
    run(timeline)
    assert log == [(3_599_000, "a")]


def test_two_loops_share_one_clock(timeline: Timeline, loop: VirtualLoop) -> None:
    log: list[tuple[int, str]] = []
    other = VirtualLoop(timeline)
    loop.create_task(note(log, timeline, "a", 1.0, 1.0))
    other.create_task(note(log, timeline, "b", 0.5, 1.0))
    run(timeline)
    other.close()
    assert log == [(500, "b"), (1000, "a"), (1500, "b"), (2000, "a")]


def test_a_paused_loop_runs_what_is_due_when_it_goes_on(
    timeline: Timeline, loop: VirtualLoop
) -> None:
    log: list[tuple[int, str]] = []
    loop.create_task(note(log, timeline, "a", 1.0, 1.0))
    loop.paused_until_ms = START_MS + 5000
    run(timeline)
    assert log == [(6000, "a"), (7000, "a")]


def test_an_abandoned_loop_never_runs_again(timeline: Timeline, loop: VirtualLoop) -> None:
    log: list[tuple[int, str]] = []
    loop.create_task(note(log, timeline, "a", 1.0, 1.0))
    timeline.call_in(1500, loop.abandon)
    run(timeline)
    assert log == [(1000, "a")]


def test_unwinding_closes_coroutines_that_wait_in_their_finally(
    timeline: Timeline, loop: VirtualLoop
) -> None:
    unwound = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            unwound.append("began")
            await asyncio.sleep(100)

    loop.create_task(stubborn())
    timeline.run(START_MS + 10, lambda: False)
    loop.unwind()
    assert unwound == ["began"]
    assert loop.errors == []


def test_the_loops_of_a_node_call_each_other(timeline: Timeline, loop: VirtualLoop) -> None:
    other = VirtualLoop(timeline)
    seen = []

    async def tell() -> None:
        await asyncio.sleep(1)
        other.call_soon_threadsafe(lambda: seen.append(asyncio.get_running_loop()))

    loop.create_task(tell())
    run(timeline)
    other.close()
    assert seen == [other]


def test_the_smallest_delay_moves_the_clock(timeline: Timeline, loop: VirtualLoop) -> None:
    log: list[tuple[int, str]] = []
    loop.create_task(note(log, timeline, "a", 1e-9, 1e-9))
    run(timeline)
    assert log == [(1, "a"), (2, "a")]


def test_work_that_never_lets_the_clock_move_is_reported(
    timeline: Timeline, loop: VirtualLoop
) -> None:
    def spin() -> None:
        loop.call_soon(spin)

    loop.call_soon(spin)
    with pytest.raises(Livelock, match="1000000"):
        run(timeline)


def test_an_unhandled_error_is_kept(timeline: Timeline, loop: VirtualLoop) -> None:
    loop.call_soon(lambda: 1 // 0)
    run(timeline)
    assert "ZeroDivisionError" in loop.errors[0]


def test_there_are_no_threads(loop: VirtualLoop) -> None:
    with pytest.raises(RuntimeError, match="no threads"):
        loop.run_in_executor(None, print)
