"""Seeding by `start()`: one worker of the fleet runs it, and its requests enter once."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from orbweb.engine.ledger import Ledger
from orbweb.engine.session import Session
from orbweb.frontier.base import SEED_ID, Held, Nack, NewRequest, SeedCode
from orbweb.log import get_logger

KEPT_BATCHES = 100
"""So many batches are kept, for a store that lost its last writes and wants them again."""

log = get_logger("orbweb.scrapy")


class Seed(NamedTuple):
    """A request that `start()` has yielded."""

    request: NewRequest


class SeedRefused(NamedTuple):
    """A request that `start()` has yielded was not taken."""

    reason: str


class SeedEnd(NamedTuple):
    """`start()` has come to its end, or, where it did not, another worker is to run it."""

    done: bool


class _Batch(NamedTuple):
    """What was pushed in one step."""

    number: int
    requests: Sequence[NewRequest]
    final: bool
    refused: Sequence[tuple[str, int]]


class Seeding:
    """The seeding of the run, as far as this worker has to do with it."""

    def __init__(self, session: Session, ledger: Ledger, *, lease_seconds: float) -> None:
        self._session = session
        self._ledger = ledger
        self._lease_seconds = lease_seconds
        self._token = ""
        self._batch = 0
        self._refused: Counter[str] = Counter()
        """By reason, since `start()` began."""
        self._sent: deque[_Batch] = deque(maxlen=KEPT_BATCHES)

    @property
    def held(self) -> Held | None:
        """The lease of the seeding, while this worker has it."""
        return Held(SEED_ID, self._token) if self._token else None

    async def wait(self, decide: Callable[[bool], None]) -> None:
        """`decide` when it is known: True, this worker is to run `start()`; False, it was run.

        A worker that dies while it seeds is replaced by the next one that asks.
        """
        while True:
            reply, sent = await self._session.seed_claim()
            if reply.code is SeedCode.DONE:
                decide(False)
                return
            if reply.code is SeedCode.OK:
                self._token, self._batch = reply.token, reply.cursor
                held = Held(SEED_ID, reply.token)
                self._ledger.add(held, sent)
                self._ledger.finishing(held)
                decide(True)
                return
            await asyncio.sleep(min(max(self._lease_seconds / 10, 0.2), 5.0))

    def lose(self) -> None:
        """Another worker seeds now."""
        self._token = ""

    async def push(self, notes: Sequence[Seed | SeedRefused | SeedEnd]) -> None:
        """Let requests enter, in one step, and with the end of `start()` the seeding's end.

        What was not taken is counted in the same step.
        """
        if not self._token:
            return
        end = next((note for note in notes if isinstance(note, SeedEnd)), None)
        requests = [note.request for note in notes if isinstance(note, Seed)]
        refused = Counter(note.reason for note in notes if isinstance(note, SeedRefused))
        self._refused += refused
        final = end is not None and end.done
        if requests or refused or final:
            self._batch += 1
            totals = tuple(self._refused.items())
            self._sent.append(_Batch(self._batch, requests, final, totals))
            await self._push(self._batch)
        if end is not None:
            await self.release(given_back=not end.done)

    async def release(self, *, given_back: bool = True) -> None:
        """Let another worker take over at once instead of when the lease expires."""
        if self._token:
            held = Held(SEED_ID, self._token)
            self._token = ""
            if given_back:
                await self._session.nack([Nack(*held, counted=False)])
            self._ledger.remove(held)

    async def _push(self, first: int) -> None:
        for batch in list(self._sent):
            if batch.number < first or not self._token:
                continue
            reply = await self._session.seed_push(
                self._token, batch.number, batch.final, batch.requests, batch.refused
            )
            if reply.code is SeedCode.STALE:
                log.warning("another worker runs start() now")
                self._ledger.remove(Held(SEED_ID, self._token))
                self._token = ""
            elif reply.code is SeedCode.GAP:
                await self._push_again(reply.cursor + 1)
                return

    async def _push_again(self, first: int) -> None:
        """The store lost its last writes."""
        if self._sent[0].number <= first:
            await self._push(first)
            return
        log.error("the store was rolled back too far: another worker is to run start() again")
        await self.release()
