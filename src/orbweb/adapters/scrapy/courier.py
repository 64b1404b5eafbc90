"""The courier: the one loop between a crawl and the store. It hands in outcomes and claims work.

It runs on a thread of its own, so that Scrapy's loop never waits for the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from orbweb.adapters.scrapy.outbox import Outbox
from orbweb.adapters.scrapy.starts import Starts
from orbweb.engine.ledger import Ledger
from orbweb.engine.session import Session
from orbweb.frontier.base import Ack, Claim, Nack, RunState
from orbweb.model.reasons import Reason

CLAIM_BATCH = 100

LINGER_SECONDS = 0.005
"""Outcomes gather for so long, unless work is running out."""

ACTIVE_SECONDS = 0.25
"""How often is asked for work while others have some: theirs may give more."""

IDLE_SECONDS = 20.0
"""How often is asked when there is none in the whole run."""

LEAST_CLAIM_SECONDS = 0.01
"""Time between two claims of which the first gave less than was wanted."""


class Crawl(Protocol):
    """What the courier tells the crawl. Called in the crawl's own loop, in order."""

    def on_claimed(self, claim: Claim, asked: float, answered: float) -> None:
        """Requests to work on, perhaps none; when they were asked for and came."""

    def on_acked(self, acks: Sequence[Ack], kept: Sequence[bool]) -> None:
        """What became of finished requests; False: the lease was lost."""

    def on_over(self) -> None:
        """The run is done: nobody has work, and none can come."""

    def on_stop(self, reason: str) -> None:
        """The worker is to close."""


@dataclass(frozen=True, slots=True)
class End:
    """When a worker closes by itself."""

    idle_seconds: float = 0.0
    """So long after the last event of the whole crawl."""
    resident: bool = False
    """Not before it is told to."""


class Courier:
    """See the module. `want`, `nudge`, `stop` and `close` may be used from any thread."""

    def __init__(
        self,
        session: Session,
        ledger: Ledger,
        outbox: Outbox,
        starts: Starts | None,
        crawl: Crawl,
        post: Callable[..., None],
        end: End,
        *,
        clock: Callable[[], float],
    ) -> None:
        """`post(function, *args)` calls a function in the crawl's loop, after all posted before."""
        self.sent = 0
        """Requests that were posted to the crawl so far."""
        self._calls = 0
        self._session = session
        self._ledger = ledger
        self._outbox = outbox
        self._starts = starts
        self._crawl = crawl
        self._post = post
        self._end = end
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._nudged = False
        self._wanted = 0
        self._starts_wanted = False
        self._target = 1
        self._stopping = False
        self._closing = False
        self._claim_at = 0.0
        self._said_over = False
        self._untimed = False

    @property
    def calls(self) -> int:
        """Calls to the store so far, renewals aside."""
        return self._calls + self._outbox.calls

    # -- from the crawl

    def want(self, requests: int, target: int, *, starts: bool) -> None:
        """The crawl has room for so many requests, of `target`, and perhaps for start entries."""
        self._wanted, self._target, self._starts_wanted = requests, target, starts
        if self._is_due() and (self._untimed or self._clock() >= self._claim_at):
            self.nudge()

    def nudge(self) -> None:
        """There is something to do."""
        if not self._nudged and self._loop is not None:
            self._nudged = True
            with suppress(RuntimeError):  # the room has just ended by itself
                self._loop.call_soon_threadsafe(self._woken.set)

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopping = True
        self.nudge()

    def close(self) -> None:
        """End when the store knows everything."""
        self._stopping = self._closing = True
        self.nudge()

    # -- the loop

    async def run(self) -> None:
        """Work until closed."""
        self._loop = asyncio.get_running_loop()
        self._nudged = False
        while True:
            await self._flush()
            if not self._stopping:
                await self._take_starts()
                if self._is_due() and self._clock() >= self._claim_at:
                    await self._claim()
            if self._closing and not len(self._outbox):
                return
            await self._wait()

    async def _flush(self) -> None:
        if len(self._outbox) and not self._is_urgent():
            await asyncio.sleep(LINGER_SECONDS)
        self._woken.clear()
        self._nudged = False
        if await self._outbox.flush():
            self._said_over = False
            self._claim_at = min(self._claim_at, self._clock())

    def _is_urgent(self) -> bool:
        return self._stopping or self._is_due()

    def _is_due(self) -> bool:
        """Work is running out: half of what the crawl has room for is not there."""
        return self._wanted > 0 and self._wanted * 2 >= self._target

    async def _take_starts(self) -> None:
        starts = self._starts
        if starts is not None and starts.ready and self._starts_wanted and self._is_due():
            self._calls += 1
            if await starts.take():
                self._claim_at = self._clock()

    async def _claim(self) -> None:
        want = min(self._wanted, CLAIM_BATCH)
        self._calls += 1
        claim, asked = await self._session.claim(want)
        answered = self._clock()
        if self._stopping:
            await self._give_back(claim)
            return
        for lease in claim.leases:
            self._ledger.add(lease.held, asked)
        self._wanted = 0
        self.sent += len(claim.leases)
        self._post(self._crawl.on_claimed, claim, asked, answered)
        self._claim_at = answered + self._pause(claim, want)
        if claim.stopping:
            self._post(self._crawl.on_stop, "an operator asked the run to stop")
        elif claim.state is RunState.DONE and not claim.leases:
            await self._maybe_over(claim)

    async def _give_back(self, claim: Claim) -> None:
        """The worker was told to stop while it asked."""
        if claim.leases:
            self._calls += 1
            await self._session.nack(
                [Nack(*lease.held, counted=False, reason=Reason.STOPPED) for lease in claim.leases]
            )

    def _pause(self, claim: Claim, want: int) -> float:
        if len(claim.leases) >= want:
            return 0.0
        working = claim.pending - self._end.resident > 0
        pause = ACTIVE_SECONDS if working else IDLE_SECONDS
        if claim.wait_ms >= 0:
            pause = min(pause, max(claim.wait_ms / 1000, LEAST_CLAIM_SECONDS))
        return pause

    async def _maybe_over(self, claim: Claim) -> None:
        """The run is done: close, unless more may come."""
        if self._said_over or len(self._outbox):
            return
        if self._starts is not None:
            self._calls += 1
            if await self._starts.take():
                self._claim_at = self._clock()
                return
        if self._end.idle_seconds:
            self._calls += 1
            finished = (await self._session.status()).finished_at_ms
            left = self._end.idle_seconds - (claim.at_ms - finished) / 1000
            if left > 0:
                self._claim_at = min(self._claim_at, self._clock() + left)
                return
        if await self._session.settled():
            self._said_over = True
            self._post(self._crawl.on_over)

    async def _wait(self) -> None:
        """Sleep until there is something to hand in, or it is time to claim."""
        if len(self._outbox) or self._closing:
            return
        timer = None
        self._untimed = self._stopping or not self._is_due()
        if not self._untimed:
            pause = max(self._claim_at - self._clock(), 0.001)
            timer = asyncio.get_running_loop().call_later(pause, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            self._untimed = False
            if timer is not None:
                timer.cancel()
