"""The gate of pages that a person fetches by hand: nobody's lease, yet polite to the host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from orbweb.download.base import Gate, Meeting
from orbweb.errors import HostBusy

CLEARING_SECONDS = 0.25
"""Turns that nodes were given before the fleet was held off are used within this time."""

LONGEST_WAIT_SECONDS = 60.0
"""For a longer time nobody waits at a prompt."""


class Fleet(Protocol):
    """What the nodes that share a store do with a host."""

    async def wait_seconds(self, host: str) -> float:
        """How long the host is not to be asked. Raises `HostBusy` when an operator paused it."""

    async def gap_seconds(self, host: str) -> float:
        """The gap that is kept there now; 0 when there is none."""

    async def hold_off(self, host: str, seconds: float) -> None:
        """Let no node ask the host for so long."""


class Manners:
    """What all gates of a trial share: when each host was asked last, and what it asks for.

    Where a fleet shares the host it is held off for a moment, so that this send keeps its distance
    from the nodes' sends too.
    """

    def __init__(
        self,
        gap_seconds: float,
        fleet: Fleet | None,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`gap_seconds`: what the settings ask for, where nothing else is known."""
        self._gap = gap_seconds
        self._fleet = fleet
        self._clock = clock
        self._sleep = sleep
        self._delays: dict[str, float] = {}
        self._free_at: dict[str, float] = {}

    def gate(self, host: str) -> TrialGate:
        """The gate for one request to a host."""
        return TrialGate(host, self)

    async def clear(self, host: str) -> None:
        """Wait until the host may be asked. Raises `HostBusy` when that is not soon."""
        wait = self._free_at.get(host, 0.0) - self._clock()
        gap = max(self._gap, self._delays.get(host, 0.0))
        if self._fleet is not None:
            if host not in self._free_at:
                wait = max(wait, await self._fleet.wait_seconds(host))
            gap = max(gap, await self._fleet.gap_seconds(host))
        if wait > LONGEST_WAIT_SECONDS:
            raise HostBusy(f"{host} asks to be left alone for {wait:.0f} s more")
        if wait > 0:
            await self._sleep(wait)
        if gap > 0 and self._fleet is not None:
            await self._fleet.hold_off(host, CLEARING_SECONDS + gap)
            await self._sleep(CLEARING_SECONDS)
        self._free_at[host] = self._clock() + gap

    async def asked_for_rest(self, host: str, seconds: float) -> None:
        """The host wants to be left alone (Retry-After): by the fleet too."""
        self._free_at[host] = max(self._free_at.get(host, 0.0), self._clock() + seconds)
        if self._fleet is not None:
            await self._fleet.hold_off(host, seconds)

    def crawl_delay(self, host: str, seconds: float) -> None:
        """What robots.txt asks for."""
        self._delays[host] = seconds


class TrialGate:
    """See `Gate`."""

    def __init__(self, host: str, manners: Manners) -> None:
        self._host = host
        self._manners = manners

    async def ready(self) -> None:
        await self._manners.clear(self._host)

    async def enter(self) -> None:
        """The connection may be used at once: `ready` has waited."""

    def sent(self) -> None:
        """Nobody counts the sends of a trial."""

    async def met(self, meeting: Meeting) -> None:
        if meeting.retry_after is not None:
            await self._manners.asked_for_rest(meeting.host, meeting.retry_after)

    async def crawl_delay(self, host: str, seconds: float) -> None:
        self._manners.crawl_delay(host, seconds)

    def elsewhere(self, host: str) -> Gate:
        return self._manners.gate(host)
