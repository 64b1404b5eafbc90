"""The seeder: runs `start_requests` once for the whole run, beside the crawl."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from orbweb.engine.callbacks import as_outputs
from orbweb.engine.ledger import Ledger
from orbweb.engine.options import EngineOptions, RunBlocking
from orbweb.engine.outputs import Admission, Refused
from orbweb.engine.session import Session
from orbweb.engine.stats import Stats
from orbweb.engine.traces import own_trace
from orbweb.errors import RunLost, contained
from orbweb.frontier.base import SEED_ID, Held, Nack, NewRequest, SeedCode
from orbweb.log import get_logger
from orbweb.model.reasons import Reason
from orbweb.model.request import Request

FLUSH_SECONDS = 0.2
"""A slow generator's seeds are in the frontier this soon."""

PENDING_POLL_SECONDS = 0.05
"""How often is looked whether fewer requests are pending; nobody says when."""

TRIES = 3
"""How often one node runs `start_requests` when it raises."""

log = get_logger("orbweb.engine")


class _End(Enum):
    """How one run of `start_requests` ended."""

    DONE = "done"
    AGAIN = "again"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class SeedTools:
    """What the seeder works with."""

    start_requests: Callable[[], Any]
    admission: Admission
    session: Session
    ledger: Ledger
    options: EngineOptions
    stats: Stats
    run_blocking: RunBlocking
    pending: Callable[[], int]
    """How many requests the run has, without pseudo-requests, as far as this node knows."""
    on_added: Callable[[int], None]
    """Called when so many seeds have entered."""


class SeedSource:
    """Reads `start_requests`, whatever it is, into a bounded queue of admitted requests.

    Plain generators are read in a thread, so they may block; async ones on the event loop. A seed
    that cannot be taken is counted and logged, and the rest goes on.
    """

    def __init__(self, tools: SeedTools, epoch: str) -> None:
        self.finished = False
        self.error: Exception | None = None
        self._tools = tools
        self._epoch = epoch
        self._limit = tools.options.seed_batch
        self._refused: dict[str, int] = {}
        self._ready: deque[NewRequest] = deque()
        self._ordinal = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    async def read(self) -> None:
        """Read to the end. An error of `start_requests` is kept in `error`."""
        try:
            with contained():
                await self._read()
        except (asyncio.CancelledError, RunLost):
            raise
        except Exception as error:
            self.error = error
        finally:
            self.finished = True
            self._changed.set()

    async def wait(self) -> None:
        """Wait until a batch is full, the end has come, or some time has passed."""
        late = False

        def on_time() -> None:
            nonlocal late
            late = True
            self._changed.set()

        timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, on_time)
        try:
            while not self.finished and not late and len(self._ready) < self._limit:
                await self._changed.wait()
                self._changed.clear()
        finally:
            timer.cancel()

    def take(self) -> list[NewRequest]:
        """Hand over one batch, perhaps an empty one."""
        batch = [self._ready.popleft() for _ in range(min(len(self._ready), self._limit))]
        self._room.set()
        return batch

    def refused(self) -> dict[str, int]:
        """How many seeds were not taken until now, by reason."""
        return self._refused.copy()

    async def _read(self) -> None:
        function = self._tools.start_requests
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            result = function()
        else:
            result = await self._tools.run_blocking(function)
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, AsyncIterable):
            async for output in result:
                self._accept(output)
                await self._wait_for_room()
            return
        iterator = iter(as_outputs(result))
        while await self._tools.run_blocking(self._read_chunk, iterator):
            self._changed.set()
            await self._wait_for_room()

    def _read_chunk(self, iterator: Iterator[Any]) -> bool:
        """Read up to one batch, in a thread; True when there may be more."""
        for count, output in enumerate(iterator, 1):
            self._accept(output)
            if count == self._limit:
                return True
        return False

    async def _wait_for_room(self) -> None:
        if len(self._ready) >= self._limit:
            self._changed.set()
        while len(self._ready) >= 2 * self._limit:
            self._room.clear()
            await self._room.wait()

    def _accept(self, output: Any) -> None:
        ordinal = self._ordinal
        self._ordinal += 1
        if not isinstance(output, Request):
            self._refuse(
                Refused(
                    Reason.BAD_URL,
                    f"start_requests may yield requests only, not {type(output).__name__}: "
                    f"{str(output)[:80]!r}",
                )
            )
            return
        admitted = self._tools.admission.seed(output, self._epoch, ordinal)
        if isinstance(admitted, NewRequest):
            self._ready.append(admitted)
        else:
            self._refuse(admitted)

    def _refuse(self, refused: Refused) -> None:
        self._tools.stats.skipped(refused.reason)
        self._refused[refused.reason] = self._refused.get(refused.reason, 0) + 1
        self._tools.stats.incr("seeds_refused")
        log.warning("seed not taken (%s): %s", refused.reason, refused.text)


class Source:
    """Holds the seeding when nobody else does: one node at a time asks where the work comes from.

    A node that dies leaves it to another one when its lease has expired.
    """

    def __init__(self, session: Session, ledger: Ledger, lease_seconds: float) -> None:
        self.failed: Exception | None = None
        """Why this node has given up."""
        self.trouble = ""
        """Why its source gives nothing now."""
        self.waits = False
        """It has work, and waits until fewer requests are pending."""
        self._session = session
        self._ledger = ledger
        self._lease_seconds = lease_seconds
        self._token = ""
        self._batch = 0

    @property
    def active(self) -> bool:
        """This node is the one that seeds."""
        return bool(self._token)

    async def run(self) -> None:
        """Seed whenever nobody does, until cancelled or until this node has failed to.

        Also when the seeding has ended it asks from time to time: a store that lost its last
        writes may want the end of the seeds once more.
        """
        while self.failed is None:
            reply, sent = await self._session.seed_claim()
            if reply.code is not SeedCode.OK:
                await asyncio.sleep(self._ask_again_seconds(reply.code))
                continue
            self._token, self._batch = reply.token, reply.cursor
            held = Held(SEED_ID, reply.token)
            self._ledger.add(held, sent)
            self._ledger.finishing(held)
            try:
                await self._work_while_held()
            finally:
                self._ledger.remove(held)

    async def finish(self) -> None:
        """Return when nothing is in the air that would be lost if `run` were cancelled now."""

    async def release(self) -> None:
        """Let another node take over at once instead of when the lease expires."""
        if self._token:
            await self._session.nack([Nack(SEED_ID, self._token, counted=False)])

    async def _work_while_held(self) -> None:
        """Work until the end has come, the lease is another's, or this node has failed."""
        raise NotImplementedError

    def _ask_again_seconds(self, code: SeedCode) -> float:
        lease = self._lease_seconds
        return max(lease, 5.0) if code is SeedCode.DONE else min(max(lease / 10, 0.2), 5.0)


class Seeder(Source):
    """Takes over the seeding when nobody holds it, and pushes the seeds in numbered batches.

    A node that dies leaves the seeding to another one, which runs `start_requests` from the
    beginning; what is in already is dropped as a duplicate. So each seed enters exactly once.
    """

    def __init__(self, tools: SeedTools, epoch: str) -> None:
        super().__init__(tools.session, tools.ledger, tools.options.lease_seconds)
        self.seeds = 0
        """New requests that this node has added."""
        self._tools = tools
        self._epoch = epoch
        self._tries = 0

    async def _work_while_held(self) -> None:
        """Run `start_requests` until it has come to its end or is another's."""
        while self.failed is None and await self._seed() is _End.AGAIN:
            pass

    async def _seed(self) -> _End:
        source = SeedSource(self._tools, self._epoch)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(source.read())
            end = await self._push_all(source)
            reading.cancel()
        if end is _End.DONE and source.error is not None:
            await self._note_error(source.error)
            return _End.AGAIN
        return end

    async def _push_all(self, source: SeedSource) -> _End:
        told: dict[str, int] = {}
        while True:
            await source.wait()
            await self._wait_until_wanted()
            batch, refused = source.take(), source.refused()
            last = source.finished and not len(source)
            final = last and source.error is None
            if batch or final or refused != told:
                end = await self._push(batch, final, refused)
                if end is not None:
                    return end
                told = refused
            if last:
                return _End.DONE

    async def _push(
        self, batch: list[NewRequest], final: bool, refused: Mapping[str, int]
    ) -> _End | None:
        """Push one batch; None means go on."""
        push = self._tools.session.seed_push
        reply = await push(self._token, self._batch + 1, final, batch, tuple(refused.items()))
        if reply.code is SeedCode.STALE:
            self._token = ""
            return _End.STALE
        if reply.code is SeedCode.GAP:
            log.warning("the store was rolled back: start_requests runs again")
            self._batch = reply.cursor
            return _End.AGAIN
        self._batch += 1
        self.seeds += reply.added
        self._tools.on_added(reply.added)
        if final:
            self._token = ""
        return None

    async def _wait_until_wanted(self) -> None:
        limit = self._tools.options.seed_pending_limit
        try:
            while limit and self._tools.pending() > limit:
                self.waits = True
                await asyncio.sleep(PENDING_POLL_SECONDS)
        finally:
            self.waits = False

    async def _note_error(self, error: Exception) -> None:
        self._tries += 1
        log.error(
            "start_requests raised (try %d of %d); seeds before that, which are in: %d",
            self._tries,
            TRIES,
            self.seeds,
            exc_info=own_trace(error),
        )
        if self._tries >= TRIES:
            self.failed = error
            await self.release()
        else:
            await asyncio.sleep(2.0 ** (self._tries - 1))
