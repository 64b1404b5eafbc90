"""The poller: asks where tasks come from, on one node for the whole run, and takes them in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from orbweb.engine.ledger import Ledger
from orbweb.engine.options import EngineOptions, TaskOptions
from orbweb.engine.seeder import PENDING_POLL_SECONDS, TRIES, Source
from orbweb.engine.session import Session
from orbweb.engine.traces import own_trace
from orbweb.errors import RunLost
from orbweb.frontier.base import SeedCode, SeedReply
from orbweb.frontier.tasks import NewTask, task_request, unpack_task
from orbweb.log import get_logger

LONGEST_PAUSE_SECONDS = 60.0
"""Between two polls of a source that raises."""

log = get_logger("orbweb.engine")


class TaskSource(Protocol):
    """What the engine asks of a spider with a source of its own. `TaskSpider` documents each."""

    async def poll(self, limit: int) -> Sequence[NewTask]: ...
    async def recover(self, open_tasks: Sequence[NewTask]) -> None: ...


@dataclass(frozen=True, slots=True)
class PollTools:
    """What the poller works with."""

    source: TaskSource
    session: Session
    ledger: Ledger
    options: EngineOptions
    tasks: TaskOptions
    pending: Callable[[], int]
    """How many requests the run has, without pseudo-requests, as far as this node knows."""
    on_added: Callable[[int], None]
    """Called when so many tasks have entered."""


class Poller(Source):
    """Takes over the seeding of a run with tasks: polls, and lets in what there is.

    A list in the store is moved from in the same step. What a source of the spider's own has given
    is known to this node alone until it is in: when the node dies before that, `recover` of the
    next one may find it again.

    The run's source is exhausted after so many empty polls with nothing else pending.
    """

    def __init__(self, tools: PollTools) -> None:
        super().__init__(tools.session, tools.ledger, tools.options.lease_seconds)
        self._tools = tools
        self._tasks = tools.tasks
        self._owns_source = not tools.tasks.list_key
        self._polling = asyncio.Lock()
        self._finishing = False
        self._woken = asyncio.Event()
        self._failures = 0

    async def finish(self) -> None:
        """Let a poll that is under way take in what it gets, and begin no other."""
        self._finishing = True
        self._woken.set()
        async with self._polling:
            pass

    async def _work_while_held(self) -> None:
        empty, looks_for_lost, has_rested = 0, True, False
        while self.active and self.failed is None:
            await self._wait_until_wanted()
            rests = empty >= self._tasks.exhaust_polls - 1 and self._tools.pending() == 0
            if rests and not has_rested:  # nothing is open: what is marked as taken was lost
                looks_for_lost = has_rested = True
            async with self._polling:
                if self._finishing:
                    return
                found, looked = await self._try(looks_for_lost, final=rests and not self._stays)
            looks_for_lost = looks_for_lost and not looked
            if found:
                empty, has_rested = 0, False
            else:
                empty += 1
                await self._pause()

    @property
    def _stays(self) -> bool:
        return self._tools.options.run.keep_alive

    async def _try(self, looks_for_lost: bool, *, final: bool) -> tuple[int, bool]:
        """Poll once; how many tasks there were, and whether the lost ones were looked for."""
        try:
            if looks_for_lost:
                await self._recover()
            found = await self._poll(final=final)
        except RunLost:
            raise
        except Exception as error:
            self._note(error)
            return 0, False
        self._failures, self.trouble = 0, ""
        return found, True

    async def _poll(self, *, final: bool) -> int:
        """Ask once and let in what there is; returns how many tasks."""
        if not self._owns_source:
            return self._note_reply(await self._take(final))
        tasks = await self._tools.source.poll(self._tasks.batch)
        if not tasks and not final:
            return 0
        final = final and not tasks
        requests = [task_request(task) for task in tasks]
        push = self._session.seed_push
        reply = await push(self._token, self._batch + 1, final, requests)
        if reply.code is SeedCode.GAP:  # what was polled before is in no longer
            self._batch = reply.cursor
            reply = await push(self._token, self._batch + 1, final, requests)
            await self._recover()
        if reply.code is SeedCode.STALE and tasks:
            log.warning(
                "%d tasks came too late, as another node polls now; recover_tasks finds them",
                len(tasks),
            )
        found = self._note_reply(reply._replace(added=len(tasks)))
        if final:
            self._token = ""
        return found

    async def _take(self, final: bool) -> SeedReply:
        take, tasks = self._session.take_tasks, self._tasks
        reply = await take(self._token, self._batch + 1, final, tasks.batch, tasks.list_key)
        if reply.code is SeedCode.GAP:
            self._batch = reply.cursor
            reply = await take(self._token, self._batch + 1, final, tasks.batch, tasks.list_key)
        if reply.code is SeedCode.OK and final and not reply.added:
            self._token = ""
        return reply

    def _note_reply(self, reply: SeedReply) -> int:
        if reply.code is SeedCode.STALE:
            self._token = ""
            return 0
        self._batch += 1
        self._tools.on_added(reply.added)
        return reply.added

    async def _recover(self) -> None:
        if not self._owns_source:
            return
        found = await self._session.open_tasks()
        tasks = [NewTask(name, unpack_task(value)) for name, value in found]
        await self._tools.source.recover(tasks)

    async def _wait_until_wanted(self) -> None:
        limit = self._tools.options.seed_pending_limit
        try:
            while limit and self._tools.pending() > limit and not self._finishing:
                self.waits = True
                await asyncio.sleep(PENDING_POLL_SECONDS)
        finally:
            self.waits = False

    async def _pause(self) -> None:
        seconds = self._tasks.poll_seconds
        if self._failures:
            seconds = min(max(seconds, 2.0**self._failures), LONGEST_PAUSE_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _note(self, error: Exception) -> None:
        self._failures += 1
        self.trouble = f"{type(error).__name__}: {error}"[:200]
        log.error(
            "the source of tasks raised (%d in a row)", self._failures, exc_info=own_trace(error)
        )
        if self._failures >= TRIES and not self._stays:
            self.failed = error
