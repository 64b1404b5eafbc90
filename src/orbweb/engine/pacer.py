"""The pacer: each send of a step waits for its host's turn, and is made within it or not at all."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from orbweb.download.base import Gate, Meeting, TurnMissed
from orbweb.engine.session import Session
from orbweb.engine.signals import Signals
from orbweb.errors import HostBusy, LeaseLost
from orbweb.frontier.base import SLACK_MS, Held, PermitCode
from orbweb.monitor.counts import Counts

SLACK_GROWTH = 4
"""A turn that was missed is asked for again with so many times the slack, so that the next or the
one after is not missed, however slow the store or this process is; a longer gap is the price."""

MOST_SLACK_MS = 1000

IDLE_SECONDS = 0.25
"""How long a turn without a reserved time holds: afterwards its host may have been paused."""

AHEAD_SECONDS = 0.05
"""Connecting begins so long before the turn: most connections stand when it comes."""

PATIENCE_SECONDS = 1.0
"""A connection that stands is kept waiting for no longer than this."""


@dataclass(frozen=True, slots=True)
class Turn:
    """When a host may be sent a request, in seconds of the engine's clock.

    The store has counted from some moment between `asked` and the answer: so the start counts from
    the answer and the end from the question, and whatever the way took, both are kept.
    """

    asked: float
    start: float
    end: float
    mark: int

    @classmethod
    def of(
        cls, asked: float, answered: float, start_ms: int, mark: int, slack_ms: int = SLACK_MS
    ) -> Turn:
        """The turn that a claim or a permit gives, which was asked and answered then.

        A negative mark is that of a claim that was given again: its time may have passed.
        """
        if mark < 0:
            return cls(asked, answered, -math.inf, 0)
        delay = start_ms / 1000
        length = slack_ms / 1000 if mark else IDLE_SECONDS
        return cls(asked, answered + delay, asked + delay + length, mark)


@dataclass(slots=True)
class PacerTools:
    """What the pacers of an engine share."""

    session: Session
    signals: Signals
    clock: Callable[[], float]
    calm_seconds: float
    """The gap that a host without a turn of ours is given (see `Detour`)."""
    counts: Counts = field(default_factory=Counts)
    """Is told how long requests wait for their turn, and of turns that were missed."""


class Pacer:
    """The gate of one step. See `Gate`.

    The lease comes with the first turn; each further send has a turn of its own.
    """

    def __init__(
        self,
        held: Held,
        host: str,
        turn: Turn,
        tools: PacerTools,
        *,
        is_held: Callable[[], bool],
        renew: Callable[[], Awaitable[None]],
    ) -> None:
        """`is_held`: nobody else can hold the lease now; if not, `renew` or raise `LeaseLost`."""
        self._held = held
        self._host = host
        self._turn: Turn | None = turn
        self._tools = tools
        self._is_held = is_held
        self._renew = renew
        self._slack_ms = SLACK_MS
        self._claimed: float | None = tools.clock()
        self._began = 0.0
        self._used: Turn | None = None
        self._corrected: asyncio.Future[None] | None = None

    @property
    def seconds(self) -> float:
        """Since the last send began."""
        return self._tools.clock() - self._began if self._began else 0.0

    async def ready(self) -> None:
        """See `Gate`."""
        tools = self._tools
        self._began = tools.clock()
        await tools.signals.told(self._host)
        if not self._is_held():
            await self._renew()
        if self._turn is None or self._is_stale(self._turn):
            await self._ask()
        while self._turn is not None:
            pause = self._turn.start - AHEAD_SECONDS - tools.clock()
            if pause <= 0:
                return
            await asyncio.sleep(_whole_ms(pause))

    async def enter(self) -> None:
        """See `Gate`."""
        if not self._is_time():
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._wait()
            except TimeoutError:
                raise TurnMissed from None
        self._began = self._tools.clock()
        if self._claimed is not None:
            self._tools.counts.waited(self._began - self._claimed)
            self._claimed = None
        self._used, self._turn, self._slack_ms = self._turn, None, SLACK_MS

    def sent(self) -> None:
        """See `Gate`. A process may be stopped at any moment, in the middle of a send too, and what
        is sent may leave only at the end of this turn of the event loop.

        So a send that was late after all moves the time that is reserved: the next one of the host,
        by whatever node, keeps its distance from this one.
        """
        used = self._used
        if used is not None and used.mark:
            self._look_back(used)
            asyncio.get_running_loop().call_soon(self._look_back, used)

    async def met(self, meeting: Meeting) -> None:
        """See `Gate`."""
        tools = self._tools
        if self._corrected is not None:
            await asyncio.shield(self._corrected)
            self._corrected = None
        tools.signals.note(meeting, tools.clock() - self._began)
        if meeting.retry_after is not None:
            await tools.signals.hold_off(meeting.host, meeting.retry_after)

    async def crawl_delay(self, host: str, seconds: float) -> None:
        """See `Gate`."""
        await self._tools.session.crawl_delay(host, round(seconds * 1000))

    def elsewhere(self, host: str) -> Gate:
        """See `Gate`."""
        return Detour(host, self._tools) if host != self._host else self

    def _look_back(self, used: Turn) -> None:
        if self._corrected is None and self._tools.clock() > used.end:
            self._tools.counts.late += 1
            self._corrected = self._tools.signals.move(self._held, used.mark)

    async def _wait(self) -> None:
        tools = self._tools
        while not self._is_time():
            if not self._is_held():
                await self._renew()
            await tools.signals.told(self._host)
            turn = self._turn
            if turn is None or self._is_stale(turn):
                await self._ask()
            elif (pause := turn.start - tools.clock()) > PATIENCE_SECONDS:
                raise TurnMissed
            elif pause > 0:
                await asyncio.sleep(_whole_ms(pause))

    def _is_time(self) -> bool:
        """The lease and the turn hold at this very moment."""
        turn, now = self._turn, self._tools.clock()
        return (
            turn is not None
            and turn.start <= now
            and not self._is_stale(turn)
            and not self._tools.signals.is_held_off(self._host)
            and self._is_held()
        )

    def _is_stale(self, turn: Turn) -> bool:
        """The turn has passed, or the host has been held off since it was given."""
        if self._tools.signals.is_void(self._host, turn.asked):
            return True
        return self._tools.clock() > turn.end

    async def _ask(self) -> None:
        mark = 0
        if self._turn is not None:
            mark = self._turn.mark
            self._slack_ms = min(self._slack_ms * SLACK_GROWTH, MOST_SLACK_MS)
        slack_ms = self._slack_ms
        self._tools.counts.permits += 1
        permit, asked = await self._tools.session.permit(self._held, mark, slack_ms)
        if permit.code is PermitCode.LATER:
            raise HostBusy(f"{self._host} is not to be fetched from now")
        if permit.code is PermitCode.LOST:
            raise LeaseLost(f"lease of {self._held.id} is lost")
        answered = self._tools.clock()
        self._turn = Turn.of(asked, answered, permit.start_ms, permit.mark, slack_ms)


class Detour:
    """The gate to a host of which the step has no request, for its robots.txt. See `Gate`.

    The fleet is held off the host for a moment, so that this send keeps its distance too.
    """

    def __init__(self, host: str, tools: PacerTools) -> None:
        self._host = host
        self._tools = tools
        self._began = 0.0

    async def ready(self) -> None:
        """See `Gate`."""
        calm = self._tools.calm_seconds
        await self._tools.signals.told(self._host)
        if calm > 0:
            clearing = calm + IDLE_SECONDS
            await self._tools.signals.hold_off(self._host, clearing + calm)
            await asyncio.sleep(clearing)
        self._began = self._tools.clock()

    async def enter(self) -> None:
        """See `Gate`."""
        self._began = self._tools.clock()

    def sent(self) -> None:
        """See `Gate`."""

    async def met(self, meeting: Meeting) -> None:
        """See `Gate`."""
        self._tools.signals.note(meeting, self._tools.clock() - self._began)
        if meeting.retry_after is not None:
            await self._tools.signals.hold_off(meeting.host, meeting.retry_after)

    async def crawl_delay(self, host: str, seconds: float) -> None:
        """See `Gate`."""
        await self._tools.session.crawl_delay(host, round(seconds * 1000))

    def elsewhere(self, host: str) -> Gate:
        """See `Gate`."""
        return Detour(host, self._tools)


def _whole_ms(seconds: float) -> float:
    """Event loops round timers to milliseconds, some down: a shorter sleep would end too early."""
    return math.ceil(seconds * 1000) / 1000
