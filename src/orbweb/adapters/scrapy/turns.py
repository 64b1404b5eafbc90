"""The turns that the fleet takes at a host, where its politeness is the store's business."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from orbweb.download.base import Meeting, TurnMissed
from orbweb.engine.ledger import Ledger
from orbweb.engine.pacer import Pacer, PacerTools, Turn
from orbweb.engine.session import Session
from orbweb.engine.signals import Signals
from orbweb.errors import HostBusy, LeaseLost
from orbweb.frontier.base import Held, Lease

GRANTED, BUSY, LOST = "granted", "busy", "lost"


class Turns:
    """Says when a request may be sent. Lives in the room's loop."""

    def __init__(self, session: Session, ledger: Ledger, *, clock: Callable[[], float]) -> None:
        self._session = session
        self._ledger = ledger
        self._clock = clock
        self._signals = Signals(session, clock)
        self._tools = PacerTools(session, self._signals, clock, calm_seconds=0.0)

    async def run(self) -> None:
        """Tell the fleet what is met at hosts, until cancelled."""
        await self._signals.run()

    async def wait(self, lease: Lease, turn: Turn, decide: Callable[[str], None]) -> None:
        """Call `decide` with `GRANTED` at the host's turn, or soon after with what hinders it."""
        pacer = Pacer(
            lease.held,
            lease.host,
            turn,
            self._tools,
            is_held=lambda: self._ledger.valid(lease.held, self._clock()),
            renew=lambda: self._renew(lease.held),
        )
        try:
            await _enter(pacer)
        except LeaseLost:
            decide(LOST)
        except HostBusy:
            decide(BUSY)
        else:
            pacer.sent()
            decide(GRANTED)

    async def met(self, meeting: Meeting, seconds: float) -> None:
        """Tell what came of a send; a host that asks for it is left alone by all."""
        self._signals.note(meeting, seconds)
        if meeting.retry_after is not None:
            await self._signals.hold_off(meeting.host, meeting.retry_after)

    async def _renew(self, held: Held) -> None:
        if held in self._ledger:
            lost, _, sent = await self._session.renew([held])
            if not lost:
                self._ledger.renewed([held], sent)
                return
        raise LeaseLost(f"lease of {held.id} is lost")


async def _enter(pacer: Pacer) -> None:
    while True:
        await pacer.ready()
        with suppress(TurnMissed):
            await pacer.enter()
            return
