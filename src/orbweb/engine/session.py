"""The session: every call of a node to its frontier, repeated until the store has answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from orbweb.errors import StoreUnavailable
from orbweb.frontier.base import (
    Ack,
    Claim,
    Frontier,
    Held,
    Nack,
    NackResult,
    NewRequest,
    Opened,
    Permit,
    RunConfig,
    RunControl,
    SeedReply,
    Signal,
    Status,
)
from orbweb.log import get_logger
from orbweb.monitor.counts import Counts

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0

Revive = Callable[[], Awaitable[None]]

log = get_logger("orbweb.engine")


class Session:
    """One node's conversation with the store.

    A call whose answer was lost may have happened, so it is repeated with the *same* arguments
    until there is an answer; the frontier makes that harmless. Only cancellation ends the
    repetition, and `RunLost` passes up. An outage is logged once when it begins and once when it
    is over. `clock` gives monotonic seconds, `rng` the jitter of the pauses.
    """

    def __init__(
        self,
        frontier: Frontier,
        control: RunControl,
        *,
        node: str,
        lease_ms: int,
        clock: Callable[[], float],
        rng: random.Random,
        revive: Revive | None = None,
        counts: Counts | None = None,
    ) -> None:
        """`revive` is awaited in an outage before each repetition, for a store that is ours.

        `counts` are told how long calls take, and of outages.
        """
        self.node = node
        self.lease_ms = lease_ms
        self.outage_since: float | None = None
        self._frontier = frontier
        self._control = control
        self._clock = clock
        self._rng = rng
        self._revive = revive
        self._counts = counts or Counts()
        self._opened = False
        self._claims = 0
        self._seed_claims = 0

    async def open(self, config: RunConfig) -> Opened:
        """See `RunControl.open`."""
        opened = (await self._repeat(lambda: self._control.open(config)))[0]
        self._opened = True
        return opened

    async def claim(self, want: int) -> tuple[Claim, float]:
        """Claim under the next sequence number; also tells when the answered call was sent."""
        self._claims += 1
        seq = self._claims
        return await self._repeat(lambda: self._frontier.claim(self.node, seq, want, self.lease_ms))

    async def renew(
        self, held: Sequence[Held], beat: bytes = b""
    ) -> tuple[list[Held], bool, float]:
        """Renew; returns the lost leases, whether to stop, and when the answered call was sent."""
        (lost, stopping), sent = await self._repeat(
            lambda: self._frontier.renew(self.node, self.lease_ms, held, beat)
        )
        return lost, stopping, sent

    async def fetched(self, held: Sequence[Held]) -> None:
        """See `Frontier.fetched`."""
        await self._repeat(lambda: self._frontier.fetched(held))

    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        """See `Frontier.ack`."""
        return (await self._repeat(lambda: self._frontier.ack(acks)))[0]

    async def emit(self, held: Held, step: int, children: Sequence[NewRequest]) -> bool:
        """See `Frontier.emit`."""
        return (await self._repeat(lambda: self._frontier.emit(*held, step, children)))[0]

    async def nack(self, nacks: Sequence[Nack]) -> list[NackResult]:
        """See `Frontier.nack`."""
        return (await self._repeat(lambda: self._frontier.nack(nacks)))[0]

    async def add(self, requests: Sequence[NewRequest]) -> int:
        """See `RunControl.add`."""
        return (await self._repeat(lambda: self._control.add(requests)))[0]

    async def repeat(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call that a frontier does not know until the store has answered."""
        return (await self._repeat(call))[0]

    async def permit(self, held: Held, mark: int, slack_ms: int) -> tuple[Permit, float]:
        """See `Frontier.permit`; also tells when the answered call was sent."""
        return await self._repeat(lambda: self._frontier.permit(*held, mark, slack_ms))

    async def report(self, signals: Sequence[Signal]) -> None:
        """See `Frontier.report`. What the store does not hear of is not told again."""
        try:
            await self._frontier.report(signals)
        except StoreUnavailable as error:
            log.debug("what was met at %d hosts is not reported: %s", len(signals), error)

    async def crawl_delay(self, host: str, ms: int) -> None:
        """Tell what robots.txt of a host asks for."""
        await self._repeat(lambda: self._frontier.report([Signal(host, crawl_delay_ms=ms)]))

    async def hold_off(self, host: str, ms: int) -> None:
        """See `Frontier.hold_off`."""
        await self._repeat(lambda: self._frontier.hold_off([(host, ms)]))

    async def visit(self, held: Held, fingerprint: int, host: str) -> bool | None:
        """See `Frontier.visit`."""
        return (await self._repeat(lambda: self._frontier.visit(*held, fingerprint, host)))[0]

    async def seed_claim(self) -> tuple[SeedReply, float]:
        """Ask for the seeding under the next sequence number; also tells when it was sent."""
        self._seed_claims += 1
        seq = self._seed_claims
        return await self._repeat(lambda: self._control.seed_claim(self.node, seq, self.lease_ms))

    async def seed_push(
        self,
        token: str,
        batch: int,
        final: bool,
        requests: Sequence[NewRequest],
        refused: Sequence[tuple[str, int]] = (),
    ) -> SeedReply:
        """See `RunControl.seed_push`."""
        push = self._control.seed_push
        return (await self._repeat(lambda: push(token, batch, final, requests, refused)))[0]

    async def take_tasks(
        self, token: str, batch: int, final: bool, most: int, key: str
    ) -> SeedReply:
        """See `RunControl.take_tasks`."""
        call = self._control.take_tasks
        return (await self._repeat(lambda: call(token, batch, final, most, key)))[0]

    async def open_tasks(self) -> list[tuple[str, bytes]]:
        """See `RunControl.open_tasks`."""
        return (await self._repeat(self._control.open_tasks))[0]

    async def status(self) -> Status:
        """See `RunControl.status`."""
        return (await self._repeat(self._control.status))[0]

    async def settled(self) -> bool:
        """See `RunControl.settled`."""
        return (await self._repeat(self._control.settled))[0]

    async def _repeat(self, call: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        attempt = 0
        while True:
            sent = self._clock()
            try:
                if attempt:
                    if self._revive is not None:
                        await self._revive()
                    if self._opened:
                        await self._frontier.recover()
                    sent = self._clock()
                answer = await call()
            except StoreUnavailable as error:
                self._note_outage(error)
            else:
                self._counts.store_answered(self._clock() - sent)
                if self.outage_since is not None:
                    self._note_return()
                return answer, sent
            attempt += 1
            await asyncio.sleep(self._pause(attempt))

    def _pause(self, attempt: int) -> float:
        longest = min(FIRST_PAUSE_SECONDS * 2.0 ** min(attempt, 10), LONGEST_PAUSE_SECONDS)
        return longest * self._rng.uniform(0.5, 1.0)

    def _note_outage(self, error: StoreUnavailable) -> None:
        if self.outage_since is None:
            self.outage_since = self._clock()
            self._counts.outages += 1
            log.warning("store unavailable, waiting for it: %s", error)

    def _note_return(self) -> None:
        if self.outage_since is not None:
            log.warning("store is back after %.1f s", self._clock() - self.outage_since)
            self.outage_since = None
