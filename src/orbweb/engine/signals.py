"""Signals: what this node meets at hosts, told to the fleet soon and in few calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from orbweb.download.base import Meeting
from orbweb.engine.session import Session
from orbweb.frontier.base import SLACK_MS, Held, Signal

INTERVAL_SECONDS = 0.25
"""Least time between two reports when all is well."""

URGENT_SECONDS = 0.05
"""Least time between two reports when something is bad."""

REPORT_BATCH = 500
"""Hosts in one report."""

MOST_HOSTS = 20_000
"""Hosts that are remembered while the store does not answer; of others nothing is noted."""

VOID_SECONDS = 60.0
"""No turn is older than this when it is used."""


@dataclass(slots=True)
class _Tally:
    """What was met at one host since the last report."""

    good: int = 0
    bad: int = 0
    streak: int = 0
    refused: int = 0
    seconds: float = 0.0

    def signal(self, host: str) -> Signal:
        latency_ms = round(self.seconds * 1000)
        return Signal(host, self.good, self.bad, self.streak, self.refused, latency_ms)


class Signals:
    """Gathers what is met, and tells it from one task. Nothing is told when nothing was met.

    A host that asks to be left alone is told of before anything else; until the store has
    answered, nobody of this node sends to it, and turns that were given before are void.
    """

    def __init__(self, session: Session, clock: Callable[[], float]) -> None:
        self._session = session
        self._clock = clock
        self._tallies: dict[str, _Tally] = {}
        self._urgent = False
        self._told_at = -INTERVAL_SECONDS
        self._holds: dict[str, tuple[float, asyncio.Future[None]]] = {}
        self._held_off_at: dict[str, float] = {}
        self._woken = asyncio.Event()
        self._moves: deque[tuple[Held, int, asyncio.Future[None]]] = deque()

    # -- what pacers say and ask

    def note(self, meeting: Meeting, seconds: float) -> None:
        """Remember what came of a send that took so long."""
        tally = self._tallies.get(meeting.host)
        if tally is None:
            if len(self._tallies) >= MOST_HOSTS:
                return
            tally = self._tallies[meeting.host] = _Tally()
        tally.seconds += seconds
        if meeting.healthy:
            tally.good += 1
            tally.streak = 0
        else:
            tally.bad += 1
            tally.streak += 1
            tally.refused += meeting.refused
            self._urgent = True
        self._woken.set()

    async def hold_off(self, host: str, seconds: float) -> None:
        """Let the whole fleet leave a host alone; returns when the store has it."""
        known = self._holds.get(host)
        if known is None:
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._holds[host] = seconds, told
        else:
            told = known[1]
            self._holds[host] = max(seconds, known[0]), told
        self._woken.set()
        await asyncio.shield(told)

    def is_held_off(self, host: str) -> bool:
        """The host has asked to be left alone, and the store does not know of it yet."""
        return host in self._holds

    def is_void(self, host: str, asked: float) -> bool:
        """Whether a turn that was asked for then is void, as its host was held off later."""
        at = self._held_off_at.get(host)
        return at is not None and asked <= at

    async def told(self, host: str) -> None:
        """Wait until the store knows all that the host has asked for."""
        while (hold := self._holds.get(host)) is not None:
            await asyncio.shield(hold[1])

    def move(self, held: Held, mark: int) -> asyncio.Future[None]:
        """Let the time that was reserved for a send begin now; done when the store has answered."""
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._moves.append((held, mark, moved))
        self._woken.set()
        return moved

    # -- the service

    async def run(self) -> None:
        """Tell what is noted, until cancelled."""
        while True:
            self._woken.clear()
            await self._tell_urgent()
            due = self._due()
            if due is not None and due <= self._clock():
                await self._report()
                continue
            await self._sleep_until(due)

    async def flush(self) -> None:
        """Tell what is left."""
        await self._tell_urgent()
        while self._tallies:
            await self._report()

    def _due(self) -> float | None:
        if not self._tallies:
            return None
        return self._told_at + (URGENT_SECONDS if self._urgent else INTERVAL_SECONDS)

    async def _sleep_until(self, at: float | None) -> None:
        if self._woken.is_set():
            return
        pause = None if at is None else max(at - self._clock(), 0.001)
        try:
            async with asyncio.timeout(pause):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _report(self) -> None:
        hosts = list(self._tallies)[:REPORT_BATCH]
        signals = [self._tallies.pop(host).signal(host) for host in hosts]
        if not self._tallies:
            self._urgent = False
        self._told_at = self._clock()
        await self._session.report(signals)

    async def _tell_urgent(self) -> None:
        while self._holds or self._moves:
            while self._moves:
                held, mark, moved = self._moves.popleft()
                await self._session.permit(held, mark, SLACK_MS)
                _done(moved)
            await self._tell_holds()

    async def _tell_holds(self) -> None:
        while self._holds and not self._moves:
            host, (seconds, told) = next(iter(self._holds.items()))
            await self._session.hold_off(host, round(seconds * 1000))
            if self._holds[host][0] > seconds:  # it has asked for more meanwhile
                continue
            del self._holds[host]
            self._void(host)
            _done(told)

    def _void(self, host: str) -> None:
        now = self._clock()
        self._held_off_at.pop(host, None)
        self._held_off_at[host] = now
        while self._held_off_at[(oldest := next(iter(self._held_off_at)))] < now - VOID_SECONDS:
            del self._held_off_at[oldest]


def _done(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
