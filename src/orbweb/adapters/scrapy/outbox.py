"""The outbox: what a crawl has to tell the store, in order, in few calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orbweb.adapters.scrapy.seeding import Seed, SeedEnd, Seeding, SeedRefused
from orbweb.engine.ledger import Ledger
from orbweb.engine.session import Session
from orbweb.frontier.base import Ack, Held, Nack, NewRequest

OUTCOME_BATCH = 200
CHILDREN_BATCH = 2000
"""Links in one call, so that one call never keeps the store busy for long."""


class Add(NamedTuple):
    """A request that no page under a lease has given."""

    request: NewRequest


class Emit(NamedTuple):
    """Links of a long page that enter before its end."""

    held: Held
    step: int
    children: Sequence[NewRequest]


class Fetched(NamedTuple):
    """A body has arrived: its host may be sent the next request."""

    held: Held


class Keep(NamedTuple):
    """Values that go to the end of a list of the project's, before what follows."""

    key: str
    values: Sequence[bytes]


Note = Ack | Nack | Add | Emit | Fetched | Keep | Seed | SeedRefused | SeedEnd


@dataclass(slots=True)
class _Load:
    """What goes to the store in one round, sorted; in this order."""

    keeps: list[Keep] = field(default_factory=list)
    adds: list[NewRequest] = field(default_factory=list)
    emits: list[Emit] = field(default_factory=list)
    seeds: list[Seed | SeedRefused | SeedEnd] = field(default_factory=list)
    fetched: list[Held] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    nacks: list[Nack] = field(default_factory=list)
    links: int = 0

    def take(self, note: Note) -> None:
        match note:
            case Ack():
                self.acks.append(note)
                self.links += len(note.children)
            case Nack():
                self.nacks.append(note)
            case Add():
                self.adds.append(note.request)
                self.links += 1
            case Emit():
                self.emits.append(note)
                self.links += len(note.children)
            case Fetched():
                self.fetched.append(note.held)
            case Keep():
                self.keeps.append(note)
            case Seed() | SeedRefused() | SeedEnd():
                self.seeds.append(note)
                self.links += 1

    @property
    def full(self) -> bool:
        outcomes = len(self.acks) + len(self.nacks)
        return outcomes >= OUTCOME_BATCH or self.links >= CHILDREN_BATCH


class Outbox:
    """Notes wait in a queue, into which any thread may put them, until the store has them.

    A page's links stand before its ack, or in it. One round takes the oldest notes and hands in
    links before outcomes, so that at no instant a page is finished whose links are not there.
    """

    def __init__(
        self,
        notes: deque[Note],
        session: Session,
        ledger: Ledger,
        seeding: Seeding,
        keep: Callable[[Keep], Awaitable[None]],
        on_acked: Callable[[Sequence[Ack], Sequence[bool]], None],
    ) -> None:
        """`keep` returns when the values are in the list."""
        self.calls = 0
        """Calls to the store so far."""
        self._notes = notes
        self._session = session
        self._ledger = ledger
        self._seeding = seeding
        self._keep = keep
        self._on_acked = on_acked

    def __len__(self) -> int:
        return len(self._notes)

    async def flush(self) -> bool:
        """Tell the store all that has gathered; whether there was anything."""
        told = False
        while self._notes:
            load = _Load()
            while self._notes and not load.full:
                load.take(self._notes.popleft())
            await self._tell(load)
            told = True
        return told

    async def _tell(self, load: _Load) -> None:
        for keep in load.keeps:
            self.calls += 1
            await self._keep(keep)
        if load.adds:
            self.calls += 1
            await self._session.add(load.adds)
        for emit in load.emits:
            self.calls += 1
            await self._session.emit(emit.held, emit.step, emit.children)
        if load.seeds:
            self.calls += 1
            await self._seeding.push(load.seeds)
        if load.fetched:
            self.calls += 1
            await self._session.fetched(load.fetched)
        if load.acks:
            self.calls += 1
            await self._tell_acks(load.acks)
        if load.nacks:
            self.calls += 1
            await self._session.nack(load.nacks)
            for nack in load.nacks:
                self._ledger.remove(Held(nack.id, nack.token))

    async def _tell_acks(self, acks: Sequence[Ack]) -> None:
        kept = await self._session.ack(acks)
        for ack in acks:
            self._ledger.remove(Held(ack.id, ack.token))
        self._on_acked(acks, kept)
