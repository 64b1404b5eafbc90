"""The keeper: renews the leases of a node and says that the node lives."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from orbweb.engine.ledger import Ledger
from orbweb.errors import RunLost, StoreUnavailable
from orbweb.frontier.base import Frontier, Held
from orbweb.log import get_logger

RENEW_BATCH = 500
SHORTEST_PAUSE_SECONDS = 0.05

log = get_logger("orbweb.keeper")

Connect = Callable[[str], AbstractAsyncContextManager[Frontier]]
"""Opens the keeper's own connection to a run (by its epoch), in the keeper's own loop."""


class KeeperEvents(Protocol):
    """What the keeper tells the engine. Called on the keeper's own thread."""

    def on_lost(self, held: Sequence[Held]) -> None:
        """Other nodes may hold these now."""

    def on_overdue(self, held: Sequence[Held]) -> None:
        """These have been worked on for longer than `max_hold_seconds`."""

    def on_stop(self) -> None:
        """An operator asked the nodes of this run to stop."""


@dataclass(frozen=True, slots=True)
class KeeperOptions:
    """How often to renew, and when to stop renewing. All times in seconds."""

    node: str
    lease_ms: int
    interval_seconds: float
    watchdog_seconds: float
    max_hold_seconds: float


class Keeper:
    """Renews every lease of the ledger at each beat, for as long as the engine's loop is alive.

    It runs beside the engine (in production on a thread and a loop of its own), so a callback that
    blocks the engine's loop loses nothing. But when `pulse` (a counter that the engine's loop
    advances) has stood still for `watchdog_seconds`, renewing stops and other nodes take over.
    """

    def __init__(
        self,
        ledger: Ledger,
        events: KeeperEvents,
        options: KeeperOptions,
        *,
        pulse: Callable[[], int],
        beat: Callable[[], bytes],
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._options = options
        self._pulse = pulse
        self._beat = beat
        self._clock = clock
        self._rng = rng
        self._last_pulse = -1
        self._pulse_at = 0.0
        self._wedged = False
        self._out = False

    async def run(self, connect: Connect, epoch: str) -> None:
        """Beat until cancelled, or until the run is gone from the store."""
        self._pulse_at = self._clock()
        async with connect(epoch) as frontier:
            while True:
                pause = self._options.interval_seconds * self._rng.uniform(0.9, 1.0)
                try:
                    await self.beat(frontier)
                except RunLost:
                    return
                except StoreUnavailable as error:
                    pause = self._outage(error, pause)
                except Exception:
                    log.exception("renewal failed, trying again")
                await asyncio.sleep(max(pause, SHORTEST_PAUSE_SECONDS))

    async def beat(self, frontier: Frontier) -> None:
        """Renew all leases once, unless the engine's loop is wedged."""
        if self._is_wedged():
            return
        stop = False
        payload = self._beat()
        held = self._ledger.held()
        for start in range(0, max(len(held), 1), RENEW_BATCH):
            stop |= await self._renew(frontier, held[start : start + RENEW_BATCH], payload)
            payload = b""
        self._out = False
        overdue = self._ledger.overdue(self._clock(), self._options.max_hold_seconds)
        if overdue:
            self._events.on_overdue(overdue)
        if stop:
            self._events.on_stop()

    async def _renew(self, frontier: Frontier, held: Sequence[Held], beat: bytes) -> bool:
        sent = self._clock()
        lost, stop = await frontier.renew(self._options.node, self._options.lease_ms, held, beat)
        gone = set(lost)
        self._ledger.renewed((each for each in held if each not in gone), sent)
        dropped = [each for each in lost if self._ledger.remove(each)]
        if dropped:
            self._events.on_lost(dropped)
        return stop

    def _is_wedged(self) -> bool:
        pulse, now = self._pulse(), self._clock()
        if pulse != self._last_pulse:
            if self._wedged:
                log.warning("the event loop moves again after %.0f s", now - self._pulse_at)
            self._last_pulse, self._pulse_at, self._wedged = pulse, now, False
        elif now - self._pulse_at > self._options.watchdog_seconds and not self._wedged:
            self._wedged = True
            log.error(
                "the event loop has stood still for %.0f s: leases are no longer renewed, other "
                "nodes will take over. An async callback may be blocking; use a plain def for "
                "code that blocks (kill -USR2 shows where it stands)",
                now - self._pulse_at,
            )
        return self._wedged

    def _outage(self, error: StoreUnavailable, pause: float) -> float:
        if not self._out:
            self._out = True
            log.debug("renewal waits for the store: %s", error)
        return min(pause, 1.0)
