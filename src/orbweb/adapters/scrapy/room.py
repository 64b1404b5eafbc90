"""The engine room: a thread with an event loop and a connection of its own, for one crawler."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from scrapy.crawler import Crawler

from orbweb.adapters.scrapy.config import RoomConfig
from orbweb.adapters.scrapy.courier import Courier
from orbweb.adapters.scrapy.outbox import Note
from orbweb.adapters.scrapy.service import Owner, Service
from orbweb.download.base import Meeting
from orbweb.engine.ledger import Ledger
from orbweb.engine.pacer import Turn
from orbweb.engine.threads import loop_factory
from orbweb.frontier.base import Held, Lease
from orbweb.log import get_logger

if TYPE_CHECKING:
    from orbweb.adapters.scrapy.starting import Starting

log = get_logger("orbweb.scrapy")

rooms: WeakKeyDictionary[Crawler, Starting] = WeakKeyDictionary()
"""Where the start entries of a crawler come from, if Orbweb's scheduler is in charge of it."""


def room_of(crawler: Crawler) -> Starting | None:
    """What hands start entries to a spider; None when another scheduler is in charge."""
    return rooms.get(crawler)


class Tenant(Owner, Protocol):
    """The crawl that a room serves, and its end."""

    def on_failed(self, error: BaseException) -> None:
        """The room has ended by an error; before `on_open`: the run could not be joined."""

    def on_closed(self) -> None:
        """The room has ended as it was asked to."""


class Room:
    """Everything that talks to the store for one crawler.

    Its methods are called in the crawl's loop, and never wait; what they are answered is posted
    there.
    """

    def __init__(self, tenant: Tenant, config: RoomConfig, post: Callable[..., None]) -> None:
        """`post(function, *args)` calls a function in the crawl's loop, from any thread."""
        self.node = uuid.uuid4().hex
        self.ledger = Ledger(config.lease_seconds, config.lease_seconds / 8)
        self._tenant = tenant
        self._config = config
        self._post = post
        self._notes: deque[Note] = deque()
        self._service = Service(tenant, config, self.ledger, self.node, self._notes, post)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._close_asked: asyncio.Event | None = None
        self._closing = False

    @property
    def courier(self) -> Courier | None:
        """There as long as the run is joined."""
        return self._service.courier

    @property
    def waiting(self) -> int:
        """Notes that the store does not know of yet."""
        return len(self._notes)

    def open(self) -> None:
        """Join the run: `on_open` or `on_failed` follows."""
        threading.Thread(target=self._run, name="orbweb-room", daemon=True).start()

    def put(self, note: Note) -> None:
        """Hand something in. What is put first is in the store first."""
        self._notes.append(note)
        if self.courier is not None:
            self.courier.nudge()

    def ask_seeding(self, decide: Callable[[bool], None]) -> None:
        """`decide` whether this worker is to run `start()`, when that is known."""
        self._call(self._ask_seeding, decide)

    def lose_seeding(self, held: Held) -> bool:
        """Whether a lease that was lost was that of the seeding."""
        seeding = self._service.seeding
        if seeding is None or seeding.held != held:
            return False
        seeding.lose()
        return True

    def ask_turn(self, lease: Lease, turn: Turn, decide: Callable[[str], None]) -> None:
        """`decide` at the host's turn. See `Turns.wait`."""
        self._call(self._ask_turn, lease, turn, decide)

    def meet(self, meeting: Meeting, seconds: float) -> None:
        """Tell the fleet what came of a send."""
        self._call(self._meet, meeting, seconds)

    def stop(self) -> None:
        """Claim nothing more."""
        if self.courier is not None:
            self.courier.stop()

    def close(self) -> None:
        """End when the store knows everything, or does not answer: `on_closed` follows."""
        self._closing = True
        if self._close_asked is not None:
            self._call(self._close_asked.set)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the room has just ended by itself
                self._loop.call_soon_threadsafe(function, *args)

    # -- in the room's own loop

    def _ask_seeding(self, decide: Callable[[bool], None]) -> None:
        if self._service.seeding is not None:
            waiting = self._service.seeding.wait(lambda granted: self._post(decide, granted))
            self._service.spawn(waiting)

    def _ask_turn(self, lease: Lease, turn: Turn, decide: Callable[[str], None]) -> None:
        if self._service.turns is not None:
            waiting = self._service.turns.wait(lease, turn, lambda word: self._post(decide, word))
            self._service.spawn(waiting)

    def _meet(self, meeting: Meeting, seconds: float) -> None:
        if self._service.turns is not None:
            self._service.spawn(self._service.turns.met(meeting, seconds))

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._until_closed())
        except BaseException as caught:  # told to the crawl, whatever it is
            error = _first(caught)
        if error is None:
            self._post(self._tenant.on_closed)
        else:
            self._post(self._tenant.on_failed, error)

    async def _until_closed(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._close_asked = asyncio.Event()
        if self._closing:
            return
        serving = asyncio.create_task(self._service.run())
        asked = asyncio.create_task(self._close_asked.wait())
        await asyncio.wait([serving, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not serving.done() and self.courier is not None:
            self.courier.close()
            await asyncio.wait([serving], timeout=self._config.give_up)
        if not serving.done():
            if self._notes:
                log.warning(
                    "the store does not answer: %d results were not handed in. What this worker "
                    "holds returns when its leases end, and is done again",
                    self.waiting,
                )
            serving.cancel()
            await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
