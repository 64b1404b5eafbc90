"""How a crawl begins, in Scrapy's own loop: start entries, and whose turn `start()` is."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable

from twisted.internet.defer import Deferred

from orbweb.adapters.scrapy.outbox import Keep
from orbweb.adapters.scrapy.room import Room
from orbweb.adapters.scrapy.seeding import SeedEnd
from orbweb.adapters.scrapy.starts import StartBatch, read_batch
from orbweb.adapters.scrapy.threads import answer, pause
from orbweb.adapters.scrapy.work import Work
from orbweb.frontier.base import Lease
from orbweb.model.reasons import Reason

MOST_WAITING = 2000
"""`start()` pauses while more than this is on its way to the store."""

PAUSE_SECONDS = 0.05


class Starting:
    """Hands start entries to the spider, batch by batch, and decides whether it runs `start()`."""

    def __init__(
        self, room: Room, settle: Callable[[Work], None], count_refused: Callable[[int], None]
    ) -> None:
        """`settle` hands in a batch that is over."""
        self.current: Work | None = None
        """The batch of which requests are made now."""
        self._room = room
        self._settle = settle
        self._count_refused = count_refused
        self._arrived: deque[tuple[Work, StartBatch]] = deque()
        self._awaited: Deferred[None] | None = None
        self._seeding: Deferred[bool] | None = None
        self._seeds = False
        self._ended = False
        self.failed = False
        """`start()` has raised here."""

    @property
    def waiting(self) -> bool:
        """There are entries here of which no requests are made yet."""
        return bool(self._arrived)

    # -- start entries

    def arrive(self, lease: Lease) -> Work:
        """A batch was leased to this worker."""
        work = Work(lease, None)
        self._arrived.append((work, read_batch(lease)))
        self._awake()
        return work

    async def start_batches(self) -> AsyncIterator[StartBatch]:
        """Batches, until the run is over or the worker stops. One is done when the next is asked
        for; whoever does not come back leaves a dead letter with the entries."""
        while not self._ended:
            if not self._arrived:
                self._awaited = Deferred()
                await answer(self._awaited)
                continue
            work, batch = self._arrived.popleft()
            self.current = work
            try:
                yield batch
                work.fail(Reason.START_ENTRIES, "")
            except GeneratorExit:
                work.fail(Reason.CALLBACK_ERROR, "start() came to an end within these entries")
                raise
            finally:
                self._finish(work, batch)

    def _finish(self, work: Work, batch: StartBatch) -> None:
        self.current = None
        if batch.refused and not work.give_back and not work.lost:
            self._count_refused(len(batch.refused))
            self._room.put(Keep(f"{batch.key}:bad", batch.refused))
        work.ended = True
        self._settle(work)

    # -- start()

    async def may_start(self) -> bool:
        """Whether this worker is to run `start()`; answered when that is known."""
        if self._ended:
            return False
        self._seeding = Deferred()
        self._room.ask_seeding(self._decide)
        return await answer(self._seeding)

    async def room_for_seeds(self) -> None:
        """Wait while too much is on its way."""
        while self._room.waiting > MOST_WAITING and not self._ended:
            await pause(PAUSE_SECONDS)

    def seeded(self) -> None:
        """`start()` has come to its end."""
        if self._seeds:
            self._seeds = False
            self._room.put(SeedEnd(done=True))

    def give_up_seeding(self, error: BaseException | None = None) -> None:
        """`start()` has not come to its end: another worker is to run it."""
        if self._seeds:
            self._seeds = False
            self.failed = isinstance(error, Exception)
            self._room.put(SeedEnd(done=False))

    def _decide(self, granted: bool) -> None:
        self._seeds = granted
        seeding, self._seeding = self._seeding, None
        if seeding is None:
            self.give_up_seeding()
        else:
            seeding.callback(granted)

    # -- the end

    def end(self) -> None:
        """No more entries come."""
        self._ended = True
        self._awake()
        seeding, self._seeding = self._seeding, None
        if seeding is not None:
            seeding.callback(False)

    def stop(self) -> None:
        """Give everything back."""
        self.end()
        for work, _ in self._arrived:
            work.give_back = work.ended = True
            self._settle(work)
        self._arrived.clear()
        if self.current is not None:
            work, self.current = self.current, None
            work.give_back = work.ended = True
            self._settle(work)
        self.give_up_seeding()

    def _awake(self) -> None:
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            awaited.callback(None)
