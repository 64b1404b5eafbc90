"""Turns: when a request may be sent, what becomes of one that is missed, and who must wait."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orbweb.download.base import Meeting, TurnMissed
from orbweb.engine.pacer import Detour, Pacer, PacerTools, Turn
from orbweb.engine.session import Session
from orbweb.engine.signals import Signals
from orbweb.errors import HostBusy, LeaseLost, StoreUnavailable
from orbweb.frontier.base import Held, Permit, PermitCode, Signal
from orbweb.testing.virtual import Timeline, VirtualLoop

HOST = "shop.example"
HELD = Held("id", "n:1")
GOOD = Meeting(HOST, True)


class Store:
    """A frontier that gives the permits of a list, after a time; virtual seconds."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.permits: list[Permit] = []
        self.seconds = 0.001
        self.asked: list[int] = []
        self.slacks: list[int] = []
        self.reports: list[tuple[float, list[Signal]]] = []
        self.pauses: list[tuple[str, int]] = []
        self.away_until = 0.0

    async def _answer(self) -> None:
        await asyncio.sleep(self.seconds)
        if self.timeline.seconds() < self.away_until:
            raise StoreUnavailable("away")

    async def permit(self, id: str, token: str, mark: int, slack_ms: int) -> Permit:
        await self._answer()
        self.asked.append(mark)
        self.slacks.append(slack_ms)
        return self.permits.pop(0) if self.permits else Permit(PermitCode.GRANTED)

    async def report(self, signals: Any) -> None:
        await self._answer()
        self.reports.append((self.timeline.seconds(), list(signals)))

    async def hold_off(self, pauses: Any) -> None:
        await self._answer()
        self.pauses += pauses

    async def recover(self) -> int:
        return 0


class Street:
    """A host, a store and the pacers of one node, in virtual time."""

    def __init__(self) -> None:
        self.timeline = Timeline(random.Random(1))
        self.store = Store(self.timeline)
        self.lease_valid = True
        self.renewals = 0
        store: Any = self.store
        clock = self.timeline.seconds
        session = Session(
            store, store, node="n", lease_ms=60_000, clock=clock, rng=random.Random(1)
        )
        self.signals = Signals(session, clock)
        self.tools = PacerTools(session, self.signals, clock, calm_seconds=1.0)

    @property
    def now(self) -> float:
        return self.timeline.seconds()

    def pacer(self, start_ms: int = 0, mark: int = 0, trip: float = 0.0) -> Pacer:
        async def renew() -> None:
            self.renewals += 1
            self.lease_valid = True

        turn = Turn.of(self.now - trip, self.now, start_ms, mark)
        return Pacer(HELD, HOST, turn, self.tools, is_held=lambda: self.lease_valid, renew=renew)

    async def send(self, pacer: Pacer, connect: float = 0.0) -> float:
        """Send once; returns when, in seconds from now on."""
        began = self.now
        while True:
            await pacer.ready()
            await asyncio.sleep(connect)
            try:
                await pacer.enter()
            except TurnMissed:
                continue
            pacer.sent()
            return round(self.now - began, 3)


def play(scene: Callable[[Street], Coroutine[Any, Any, None]]) -> Street:
    """Run a scene in virtual time, with the service of the signals beside it."""
    street = Street()
    loop = VirtualLoop(street.timeline)

    async def main() -> None:
        service = asyncio.create_task(street.signals.run())
        try:
            await scene(street)
        finally:
            service.cancel()

    task = loop.create_task(main())
    ended = street.timeline.run(street.timeline.now_ms + 3_600_000, task.done)
    errors = loop.errors
    loop.unwind()
    loop.close()
    assert ended, "the scene did not end"
    task.result()
    assert errors == []
    return street


@asynccontextmanager
async def beside(coro: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.ensure_future(coro)
    yield task
    await task


def test_a_turn_counts_its_start_from_the_answer_and_its_end_from_the_question() -> None:
    reserved = Turn.of(asked=10.0, answered=10.003, start_ms=40, mark=7)
    assert reserved.start == pytest.approx(10.043)
    assert reserved.end == pytest.approx(10.045)
    free = Turn.of(asked=10.0, answered=10.003, start_ms=0, mark=0)
    assert (free.start, free.end) == (10.003, 10.25)


def test_a_reserved_time_is_waited_for_and_needs_no_permit() -> None:
    async def scene(street: Street) -> None:
        assert await street.send(street.pacer(start_ms=40, mark=5)) == 0.04

    assert play(scene).store.asked == []


def test_connecting_begins_before_the_turn() -> None:
    async def scene(street: Street) -> None:
        assert await street.send(street.pacer(start_ms=40, mark=5), connect=0.03) == 0.04
        assert await street.send(street.pacer(start_ms=400, mark=5), connect=0.03) == 0.4

    assert play(scene).store.asked == []


def test_a_reserved_time_that_has_passed_is_asked_for_again_with_its_mark() -> None:
    async def scene(street: Street) -> None:
        street.store.permits = [Permit(PermitCode.GRANTED, 20, 6)]
        assert await street.send(street.pacer(mark=5), connect=0.03) == 0.051

    assert play(scene).store.asked == [5]


def test_a_turn_without_a_gap_holds_for_a_quarter_of_a_second() -> None:
    async def scene(street: Street) -> None:
        assert await street.send(street.pacer(), connect=0.249) == 0.249
        assert street.store.asked == []
        assert await street.send(street.pacer(), connect=0.251) == 0.252

    assert play(scene).store.asked == [0]


def test_a_further_send_needs_a_permit_of_its_own() -> None:
    async def scene(street: Street) -> None:
        pacer = street.pacer(mark=5)
        await street.send(pacer)
        street.store.permits = [Permit(PermitCode.GRANTED, 300, 9)]
        assert await street.send(pacer) == 0.301

    assert play(scene).store.asked == [0]


@pytest.mark.parametrize(
    ("code", "error"), [(PermitCode.LATER, HostBusy), (PermitCode.LOST, LeaseLost)]
)
def test_a_permit_that_is_refused_ends_the_send(code: PermitCode, error: type[Exception]) -> None:
    async def scene(street: Street) -> None:
        street.store.permits = [Permit(code)]
        with pytest.raises(error):
            await street.send(street.pacer(mark=5), connect=0.1)

    play(scene)


def test_a_lease_that_is_in_doubt_is_renewed_before_the_send() -> None:
    async def scene(street: Street) -> None:
        pacer = street.pacer()
        await pacer.ready()
        street.lease_valid = False
        await pacer.enter()

    assert play(scene).renewals == 1


def test_a_connection_is_not_kept_waiting_for_a_turn_that_is_far_away() -> None:
    async def scene(street: Street) -> None:
        pacer = street.pacer(mark=5)
        await pacer.ready()
        await asyncio.sleep(0.1)
        street.store.permits = [Permit(PermitCode.GRANTED, 5000, 6)]
        with pytest.raises(TurnMissed):
            await pacer.enter()
        assert await street.send(pacer) == pytest.approx(5.0, abs=0.01)

    assert play(scene).store.asked == [5]


def test_while_the_store_is_away_no_connection_is_kept_waiting() -> None:
    async def scene(street: Street) -> None:
        pacer = street.pacer(mark=5)
        await pacer.ready()
        street.store.away_until = street.now + 30
        await asyncio.sleep(0.1)
        with pytest.raises(TurnMissed):
            await pacer.enter()
        assert await street.send(pacer) == pytest.approx(29, abs=3)

    play(scene)


def test_a_claim_that_was_given_again_has_no_turn_that_is_known_to_hold() -> None:
    async def scene(street: Street) -> None:
        street.store.permits = [Permit(PermitCode.GRANTED, 40, 6)]
        assert await street.send(street.pacer(mark=-1)) == 0.041

    assert play(scene).store.asked == [0]


def test_of_a_slow_store_turns_are_asked_for_that_hold_for_longer() -> None:
    async def scene(street: Street) -> None:
        street.store.seconds = 0.03
        street.store.permits = [Permit(PermitCode.GRANTED, 0, n) for n in (6, 7, 8)]
        pacer = street.pacer(mark=5, trip=0.03)
        assert await street.send(pacer) == 0.06
        await pacer.met(GOOD)
        await street.send(pacer)

    street = play(scene)
    assert street.store.asked == [5, 6, 0, 8], "the last is for another send"
    assert street.store.slacks[:3] == [20, 80, 5]


def test_a_process_that_is_stopped_while_it_sends_tells_that_it_was_late() -> None:
    async def scene(street: Street) -> None:
        pacer = street.pacer(mark=5)
        await pacer.ready()
        await pacer.enter()
        street.timeline.now_ms += 6
        pacer.sent()
        await pacer.met(GOOD)
        assert street.store.asked == [5], "before anything else is told of this request"
        free = street.pacer()
        await free.ready()
        await free.enter()
        street.timeline.now_ms += 300
        free.sent()
        await free.met(GOOD)

    assert play(scene).store.asked == [5]


def test_nobody_of_the_node_sends_until_the_store_knows_of_a_retry_after() -> None:
    async def scene(street: Street) -> None:
        street.store.seconds = 0.2
        blocked, other = street.pacer(), street.pacer()
        await street.send(blocked)
        await other.ready()
        async with beside(blocked.met(Meeting(HOST, healthy=False, retry_after=9.0))):
            await asyncio.sleep(0.001)
            street.store.permits = [Permit(PermitCode.LATER)]
            with pytest.raises(HostBusy):
                await other.enter()

    street = play(scene)
    assert street.store.pauses == [(HOST, 9000)]
    assert street.store.asked == [0], "the turn that was given before is void"


def test_another_host_is_not_held_up_by_a_retry_after() -> None:
    async def scene(street: Street) -> None:
        street.store.seconds = 0.2
        pacer = street.pacer()
        await street.send(pacer)
        async with beside(pacer.met(Meeting("other.example", False, retry_after=9.0))):
            assert await street.send(street.pacer()) == 0.0

    play(scene)


def test_a_host_that_asks_twice_is_held_off_for_the_longer_time() -> None:
    async def scene(street: Street) -> None:
        await asyncio.gather(*(street.signals.hold_off(HOST, pause) for pause in (1.0, 8.0, 3.0)))

    assert play(scene).store.pauses == [(HOST, 8000)]


def test_a_host_without_a_request_of_ours_is_cleared_before_its_robots_txt_is_fetched() -> None:
    async def scene(street: Street) -> None:
        gate = street.pacer().elsewhere("www.shop.example")
        assert isinstance(gate, Detour)
        began = street.now
        await gate.ready()
        await gate.enter()
        assert street.now - began > 1.25, "whoever was on the way has been there for a second"
        assert street.pacer().elsewhere(HOST) is not gate

    ((host, pause),) = play(scene).store.pauses
    assert host == "www.shop.example"
    assert pause == 2250
