"""The pump: the one loop that claims leases and hands outcomes in, in batches."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orbweb.engine.journal import Journal
from orbweb.engine.knobs import Knobs
from orbweb.engine.ledger import Ledger
from orbweb.engine.options import EngineOptions
from orbweb.engine.pacer import Turn
from orbweb.engine.session import Session
from orbweb.engine.shutdown import Shutdown
from orbweb.engine.stats import Stats
from orbweb.engine.step import Step, Why
from orbweb.frontier.base import TASKS_HOST, Ack, Claim, Held, Lease, Nack, RunState
from orbweb.log import get_logger

CLAIM_BATCH = 100
OUTCOME_BATCH = 200
CHILDREN_BATCH = 2000
"""Links in one call of `ack`, so that one call never keeps the store busy for long."""

FETCHED_LINGER_SECONDS = 0.005
"""An ack often follows so soon that it saves the call that gives the politeness slot back."""

SUSPECT_PAUSE_MS = 100, 500

LEAST_CLAIM_SECONDS = 0.01
"""Time between two claims of which the first gave less than was wanted."""

SHORTEST_PAUSE_SECONDS = 0.001
"""Event loops count milliseconds: a shorter pause would be none, and the loop would spin."""

log = get_logger("orbweb.engine")


Begin = Callable[[Lease, Turn, int], Step]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the store said last of the run, and when."""

    state: RunState = RunState.RUNNING
    pending: int = 0
    given: int = 0
    wanted: int = 0


class Pump:
    """Keeps the fetch slots full and the store informed. See `Desk`.

    Outcomes gather while a call is under way and for a few milliseconds more, so under load a page
    costs a fraction of a round trip. What a node holds is bounded: slow storage slows claiming.
    """

    def __init__(
        self,
        session: Session,
        ledger: Ledger,
        options: EngineOptions,
        knobs: Knobs,
        stats: Stats,
        shutdown: Shutdown,
        journal: Journal,
        *,
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self.answer = Answer()
        self._session = session
        self._ledger = ledger
        self._options = options
        self._knobs = knobs
        self._stats = stats
        self._shutdown = shutdown
        self._journal = journal
        self._clock = clock
        self._rng = rng
        self._steps: dict[Held, Step] = {}
        self._fetching: set[Held] = set()
        self._fetched: dict[Held, float] = {}
        self._acks: deque[Ack] = deque()
        self._nacks: deque[Nack] = deque()
        self._woken = asyncio.Event()
        self._claim_at = 0.0
        self._added = 0
        self._seeding_failed = False
        self._suspect: Held | None = None
        shutdown.on_change(self._woken.set)

    # -- what others see

    @property
    def held(self) -> int:
        """Leases in work, or with an outcome that the store does not know yet."""
        return len(self._steps) + len(self._acks) + len(self._nacks)

    @property
    def pending(self) -> int:
        """Requests of the run that are not finished: as the store said last, and added since."""
        seeding = self.answer.pending > 0
        known = self.answer.pending - seeding - self._options.run.keep_alive
        return max(0, known) + self._added

    @property
    def fetching(self) -> int:
        """Leases that take a fetch slot."""
        return len(self._fetching)

    @property
    def saturated(self) -> bool:
        """Claiming waits because too much is held."""
        return self.held >= self._knobs.max_held

    def lose(self, held: Sequence[Held]) -> None:
        """These leases belong to others now: cancel the work on them."""
        self._cancel(held, Why.LOST)

    def expire(self, held: Sequence[Held]) -> None:
        """These leases have been held for too long: cancel the work and give them back."""
        self._cancel(held, Why.OVERDUE)

    def abandon(self) -> None:
        """Cancel all work; nothing more is told to the store."""
        for step in list(self._steps.values()):
            step.cancel(Why.SHUTDOWN)

    def poke(self, added: int) -> None:
        """So many new requests can be claimed."""
        self._added += added
        self._claim_at = min(self._claim_at, self._clock())
        self._woken.set()

    def give_up_seeding(self) -> None:
        """This node cannot seed: it ends when nothing but the seeding is pending."""
        self._seeding_failed = True
        self._woken.set()

    def _cancel(self, held: Sequence[Held], why: Why) -> None:
        for each in held:
            step = self._steps.get(each)
            if step is not None:
                step.cancel(why)

    # -- what steps hand in

    def fetched(self, step: Step) -> None:
        """See `Desk`."""
        if step.held in self._fetching:
            self._fetching.discard(step.held)
            if step.lease.host != TASKS_HOST:  # nothing was fetched, so no slot was taken
                self._fetched[step.held] = self._clock() + FETCHED_LINGER_SECONDS
            self._woken.set()

    def settle(self, step: Step, outcome: Ack | Nack) -> None:
        """See `Desk`."""
        self._leave(step)
        self._journal.settle(step.attempt, outcome)
        if isinstance(outcome, Ack):
            self._acks.append(outcome)
        else:
            self._nacks.append(outcome)

    def drop(self, step: Step) -> None:
        """See `Desk`."""
        self._leave(step)
        self._ledger.remove(step.held)
        self._stats.lost()

    def _leave(self, step: Step) -> None:
        self._steps.pop(step.held, None)
        self._fetching.discard(step.held)
        self._fetched.pop(step.held, None)
        self._woken.set()

    # -- the loop

    async def run(self, begin: Begin) -> bool:
        """Work until the run is done (True) or the node is asked to stop (False).

        `begin` starts the step of a lease, at its host's turn; the data that it fetches are no
        older than that time of the store (ms). Returns with nothing held.
        """
        while not self._shutdown.requested:
            await self._flush(linger=True)
            want = self._want()
            if want > 0 and self._clock() >= self._claim_at:
                claim = await self._claim(want, begin)
                if claim.state is RunState.DONE and not claim.leases:
                    if await self._is_over():
                        return True
                elif self._only_seeding_left(claim):
                    return False
            await self._wait()
        await self._drain()
        status = await self._session.status()
        return status.state is RunState.DONE and await self._session.settled()

    def _want(self) -> int:
        want = min(
            self._knobs.concurrency - len(self._fetching),
            self._knobs.max_held - self.held,
            CLAIM_BATCH,
        )
        if self._options.stop_after_pages:
            left = self._options.stop_after_pages - self._stats.get("request_ok")
            want = min(want, left - self.held)
        return want

    async def _claim(self, want: int, begin: Begin) -> Claim:
        added = self._added
        claim, sent = await self._session.claim(want)
        self._added -= added
        answered = self._clock()
        suspects = []
        for lease in claim.leases:
            self._ledger.add(lease.held, sent)
            if self._is_suspect(lease):
                suspects.append(lease)
            else:
                self._begin(lease, claim.at_ms, sent, answered, begin)
        chosen = await self._isolate(suspects)
        if chosen is not None:
            self._begin(chosen, claim.at_ms, sent, answered, begin)
        self.answer = Answer(claim.state, claim.pending, len(claim.leases), want)
        pause = 0.0
        if len(claim.leases) < want:
            pause = self._options.idle_poll_seconds
            if claim.wait_ms >= 0:
                pause = min(pause, max(claim.wait_ms / 1000, LEAST_CLAIM_SECONDS))
        self._claim_at = self._clock() + pause
        if claim.stopping:
            self._shutdown.request("an operator asked the run to stop")
        return claim

    def _is_suspect(self, lease: Lease) -> bool:
        """Nodes have died with it so often that it may be what kills them."""
        return lease.deliveries >= max(2, self._options.run.max_deliveries - 2)

    async def _isolate(self, suspects: list[Lease]) -> Lease | None:
        """The one suspect that may work now; the others have been given back when it begins.

        So a page that kills its node takes no innocent page with it into the dead letters.
        """
        chosen = suspects.pop(0) if suspects and self._suspect not in self._steps else None
        for lease in suspects:
            backoff_ms = int(self._rng.uniform(*SUSPECT_PAUSE_MS))
            self._nacks.append(Nack(*lease.held, backoff_ms, counted=False))
        if chosen is not None:
            self._suspect = chosen.held
            while self._nacks:
                await self._tell_nacks()
        return chosen

    def _begin(self, lease: Lease, at_ms: int, sent: float, answered: float, begin: Begin) -> None:
        turn = Turn.of(sent, answered, lease.start_ms, lease.mark)
        self._fetching.add(lease.held)
        self._steps[lease.held] = begin(lease, turn, at_ms + int(lease.start_ms))

    async def _is_over(self) -> bool:
        """The run is done: whatever is still in work here was done elsewhere."""
        self.lose(list(self._steps))
        await self._flush(linger=False)
        return await self._session.settled()

    def _only_seeding_left(self, claim: Claim) -> bool:
        pseudo = 1 + self._options.run.keep_alive
        return self._seeding_failed and not self.held and claim.pending <= pseudo

    async def _wait(self) -> None:
        """Sleep until a step hands something in or it is time to claim or to report fetched."""
        if self._shutdown.requested or self._has_outcomes():
            return
        due = []
        if self._want() > 0:
            due.append(self._claim_at)
        if self._fetched:
            due.append(min(self._fetched.values()))
        await self._sleep_until(min(due) if due else None)

    async def _sleep_until(self, at: float | None) -> None:
        if at is None:
            await self._woken.wait()
        elif not self._woken.is_set():
            pause = at - self._clock()
            if pause <= 0:
                return
            pause = max(pause, SHORTEST_PAUSE_SECONDS)
            timer = asyncio.get_running_loop().call_later(pause, self._woken.set)
            try:
                await self._woken.wait()
            finally:
                timer.cancel()
        self._woken.clear()

    # -- telling the store

    def _has_outcomes(self) -> bool:
        return bool(self._acks or self._nacks)

    async def _flush(self, *, linger: bool) -> None:
        """Hand in what has gathered; afterwards there may be something new to claim."""
        if linger and self._steps and not self._is_batch_full():
            await asyncio.sleep(self._options.linger_seconds)
        self._woken.clear()
        told = await self._tell_fetched()
        while self._has_outcomes():
            if self._acks:
                await self._tell_acks()
            if self._nacks:
                await self._tell_nacks()
            told = True
        if told:
            self._claim_at = min(self._claim_at, self._clock())
            self._check_page_limit()

    def _is_batch_full(self) -> bool:
        """Enough has gathered: half of the slots are free, or a full batch of outcomes waits."""
        outcomes = len(self._acks) + len(self._nacks)
        return outcomes >= OUTCOME_BATCH or self._want() * 2 >= self._knobs.concurrency

    async def _tell_fetched(self) -> bool:
        now = self._clock()
        due = [held for held, at in self._fetched.items() if at <= now][:OUTCOME_BATCH]
        if not due:
            return False
        await self._session.fetched(due)
        for held in due:
            self._fetched.pop(held, None)
        return True

    async def _tell_acks(self) -> None:
        acks = self._next_acks()
        for ack, kept in zip(acks, await self._session.ack(acks), strict=True):
            self._acks.popleft()
            self._ledger.remove(Held(ack.id, ack.token))
            self._journal.acked(ack, kept)
            if kept:
                self._stats.acked(ack)
            else:
                self._stats.lost()

    def _next_acks(self) -> list[Ack]:
        acks: list[Ack] = []
        children = 0
        for ack in self._acks:
            children += len(ack.children)
            if acks and (len(acks) >= OUTCOME_BATCH or children > CHILDREN_BATCH):
                break
            acks.append(ack)
        return acks

    async def _tell_nacks(self) -> None:
        nacks = [self._nacks[i] for i in range(min(len(self._nacks), OUTCOME_BATCH))]
        for nack, result in zip(nacks, await self._session.nack(nacks), strict=True):
            self._nacks.popleft()
            self._ledger.remove(Held(nack.id, nack.token))
            self._journal.nacked(nack, result)
            self._stats.nacked(nack, result)

    def _check_page_limit(self) -> None:
        limit = self._options.stop_after_pages
        if limit and self._stats.get("request_ok") >= limit:
            self._shutdown.request(f"{limit} pages were asked for and are done")

    # -- the end

    async def _drain(self) -> None:
        """Let running steps finish within the time given, then give the rest back."""
        while self._steps:
            await self._flush(linger=False)
            deadline = self._shutdown.deadline
            if deadline is not None and self._clock() >= deadline:
                for step in list(self._steps.values()):
                    step.cancel(Why.SHUTDOWN)
                break
            if self._steps and not self._has_outcomes():
                await self._sleep_until(deadline)
        await self._flush(linger=False)
