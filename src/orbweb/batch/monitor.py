"""The master of a job's batches: opens them when they are due, and ends them when they are done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from orbweb.batch.forecast import Forecast
from orbweb.batch.schedule import Due, Schedule
from orbweb.errors import StoreUnavailable
from orbweb.frontier.base import RunState
from orbweb.log import event, get_logger
from orbweb.sources.base import BatchRecord, BatchRecords, BatchState, TaskCounts, TaskTable

T = TypeVar("T")

LOOK_SECONDS = 0.5
"""How often is looked whether the batch has ended or is due."""

LATE_MS = 60_000
"""A batch that is opened so long after its time is late."""

ENTER_ROWS = 5000
"""Rows that enter a batch in one transaction."""

PROMISE_SECONDS = 10.0
"""How often the master says when the next batch is due."""

OUTAGE_SECONDS = 1.0

log = get_logger("orbweb.batch")


class BatchRuns(Protocol):
    """The runs of batches in the frontier. All calls may raise `StoreUnavailable`."""

    async def state(self, number: int) -> RunState | None:
        """What the run of a batch is; None before any node has begun it."""

    async def stop(self, number: int) -> None:
        """Ask the nodes of the batch's run to stop."""


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """How a master works."""

    name: str
    """What log lines call the batches."""
    holder: str
    """A name that no other master has."""
    schedule: Schedule
    lease_seconds: float = 60.0
    report_seconds: float = 10.0
    """How often counts are written down and progress is logged."""
    carry: bool = True
    """A batch that is not done when the next one is due goes on; False = it is abandoned."""
    once: bool = False
    """End with the batch that is open or due now; when none is, at once."""


class BatchMonitor:
    """Opens and ends the batches of one job, one after the other.

    Many nodes may run one: the role is a lease, and who does not have it stands by. All that it
    knows is in the records, and every step may be done twice, so another node goes on from
    wherever a master died.
    """

    def __init__(
        self,
        options: MonitorOptions,
        records: BatchRecords,
        tasks: TaskTable,
        runs: BatchRuns,
        run_blocking: Callable[..., Awaitable[Any]],
        promise: Callable[[int, str], Awaitable[None]] | None = None,
    ) -> None:
        """`promise(due_ms, cause)` tells the fleet when the next batch is due, and what is in its
        way, so that others notice when it does not come."""
        self.leads = False
        """This node is the master now."""
        self.last: BatchRecord | None = None
        """The batch that this monitor has seen to its end."""
        self.next_due: Due | None = None
        """When the next batch is due, while none goes on."""
        self._options = options
        self._records = records
        self._tasks = tasks
        self._runs = runs
        self._run_blocking = run_blocking
        self._promise = promise
        self._promised: tuple[int, bool] | None = None
        self._promise_at = 0.0
        self._stopped = asyncio.Event()
        self._first_due_ms: int | None = None
        self._report_at = 0.0
        self._count_at = 0.0
        self._run: tuple[int, RunState | None] = 0, None
        self._forecast: tuple[int, Forecast] | None = None
        self._said: set[tuple[int, str]] = set()
        self._seen = 0
        self._lead_at = 0.0
        self._away = False

    def stop(self) -> None:
        """Let `run` return soon; the role is given back."""
        self._stopped.set()

    async def run(self) -> BatchRecord | None:
        """Work until told to stop; with `once` until a batch has ended or none is due.

        Returns the last batch that came to its end meanwhile.
        """
        try:
            while not self._stopped.is_set():
                pause = await self._outage_or(self._turn)
                if pause is None:
                    break
                await self._wait(pause)
        finally:
            if self.leads:
                await self._outage_or(self._give_back)
        return self.last

    async def _turn(self) -> float | None:
        """One look at the batches, and what is to be done; None when the work is over."""
        await self._lead()
        latest = await self._latest()
        await self._promise_next(latest)
        if latest is not None and latest.state.ended and latest.number == self._seen:
            self.last = latest
            if self._options.once:
                return None
        if latest is None or latest.state.ended:
            return await self._between(latest)
        self._seen, self.next_due = latest.number, None
        if self.leads:
            return await self._tend(latest)
        return LOOK_SECONDS

    # -- the role

    async def _lead(self) -> None:
        """Become or stay the master, in good time before the lease ends."""
        if self._time() < self._lead_at:
            return
        options = self._options
        lease_ms = int(options.lease_seconds * 1000)
        leads = await self._ask(self._records.lead, options.holder, lease_ms)
        if leads != self.leads or not self._lead_at:
            self.leads = leads
            event(log, "batch_master" if leads else "batch_standby", job=options.name)
        self._lead_at = self._time() + options.lease_seconds / 4

    async def _give_back(self) -> float | None:
        await self._ask(self._records.lead, self._options.holder, 0)
        return None

    async def _promise_next(self, latest: BatchRecord | None) -> None:
        """Tell when the next batch is due; again and again, so that a dead master is noticed."""
        state = (latest.number, latest.state.ended) if latest is not None else (0, True)
        if self._promise is None or not self.leads:
            return
        if state == self._promised and self._time() < self._promise_at:
            return
        now = await self._ask(self._records.now_ms)
        if latest is None or latest.state.ended:
            due, cause = self._due(latest, now), ""
        else:
            due = self._options.schedule.following(latest.due_ms, now)
            cause = f"batch {latest.number} still runs"
        await self._promise(due.at_ms, cause)
        self._promised, self._promise_at = state, self._time() + PROMISE_SECONDS

    # -- no batch goes on

    async def _between(self, latest: BatchRecord | None) -> float | None:
        now = await self._ask(self._records.now_ms)
        due = self._due(latest, now)
        if due.at_ms > now:
            if self.next_due != due:
                event(log, "batch_awaited", job=self._options.name, due=moment(due.at_ms))
            self.next_due = due
            return None if self._options.once else min((due.at_ms - now) / 1000, LOOK_SECONDS)
        if self.leads:
            await self._open(latest, due, now)
            return 0.0
        return LOOK_SECONDS

    def _due(self, latest: BatchRecord | None, now: int) -> Due:
        schedule = self._options.schedule
        if latest is not None:
            return schedule.following(latest.due_ms, now)
        if self._first_due_ms is None:
            self._first_due_ms = schedule.first(now)
        return Due(self._first_due_ms)

    async def _open(self, latest: BatchRecord | None, due: Due, now: int) -> None:
        if latest is not None and latest.state is BatchState.ABANDONED:
            await self._runs.stop(latest.number)  # a master may have died before it did so
        highest = await self._ask(self._tasks.highest_batch)
        number = max(highest, latest.number if latest else 0) + 1
        if due.missed:
            self._alarm("batch_missed", number, times=due.missed, due=moment(due.at_ms))
        elif latest is not None and now - due.at_ms > LATE_MS:
            late = round((now - due.at_ms) / 1000)
            self._alarm("batch_late", number, seconds=late, due=moment(due.at_ms))
        await self._ask(self._records.open_batch, number, due.at_ms, due.missed)

    # -- a batch goes on

    async def _tend(self, batch: BatchRecord) -> float:
        if batch.state is BatchState.OPENING:
            await self._enter(batch)
            return 0.0
        state = await self._runs.state(batch.number)
        report = self._time() >= self._report_at
        if (batch.number, state) != self._run:
            self._run, self._count_at = (batch.number, state), 0.0
        rests = state is not RunState.RUNNING and self._time() >= self._count_at
        if rests and await self._is_over(batch):
            return 0.0
        if await self._give_up(batch):
            return 0.0
        if report:
            await self._report(batch)
        return LOOK_SECONDS

    async def _enter(self, batch: BatchRecord) -> None:
        """Let all rows enter the batch; nodes begin when the last one has."""
        after = None
        while True:
            after = await self._ask(self._tasks.enter, batch.number, after, ENTER_ROWS)
            if after is None:
                break
            await self._lead()
        counts = await self._ask(self._tasks.count, batch.number)
        await self._ask(self._records.note, batch.number, counts)
        await self._ask(self._records.ready, batch.number)
        event(
            log, "batch_opened", job=self._options.name, batch=batch.number, tasks=counts.total,
            schedule=self._options.schedule,
        )  # fmt: skip

    async def _is_over(self, batch: BatchRecord) -> bool:
        """End the batch if every row has come to an end. Rows that are left wait for a worker."""
        self._count_at = self._time() + self._options.report_seconds
        counts = await self._ask(self._tasks.count, batch.number)
        if not counts.finished:
            return False
        await self._end(batch, counts, BatchState.DONE)
        return True

    async def _give_up(self, batch: BatchRecord) -> bool:
        """The next batch is due: abandon this one, or say that it holds the next one up."""
        now = await self._ask(self._records.now_ms)
        due = self._options.schedule.following(batch.due_ms, now)
        if due.at_ms > now:
            return False
        if self._options.carry:
            self._alarm_once("batch_overdue", batch.number, next_was_due=moment(due.at_ms))
            return False
        counts = await self._ask(self._tasks.count, batch.number)
        await self._end(batch, counts, BatchState.ABANDONED)
        await self._runs.stop(batch.number)
        return True

    async def _end(self, batch: BatchRecord, counts: TaskCounts, state: BatchState) -> None:
        if await self._ask(self._records.end_batch, batch.number, counts, state):
            level = logging.INFO if state is BatchState.DONE else logging.WARNING
            event(
                log, f"batch_{state}", level=level, job=self._options.name, batch=batch.number,
                done=counts.done, failed=counts.failed, left=counts.total - counts.settled,
            )  # fmt: skip

    async def _report(self, batch: BatchRecord) -> None:
        """Write down how far the batch is, log it, and say if it will be late."""
        self._report_at = self._time() + self._options.report_seconds
        counts = await self._ask(self._tasks.count, batch.number)
        await self._ask(self._records.note, batch.number, counts)
        now = await self._ask(self._records.now_ms)
        if self._forecast is None or self._forecast[0] != batch.number:
            self._forecast = batch.number, Forecast(batch.opened_ms)
        outlook = self._forecast[1].look(now, counts)
        event(
            log, "batch_progress", job=self._options.name, batch=batch.number, done=counts.done,
            failed=counts.failed, total=counts.total, rate=f"{outlook.per_second:.1f}/s",
            ends=moment(outlook.ends_ms) if outlook.ends_ms else "unknown",
        )  # fmt: skip
        due = self._options.schedule.following(batch.due_ms, now)
        if outlook.ends_ms and due.at_ms > now and outlook.ends_ms > due.at_ms:
            self._alarm_once(
                "batch_slow", batch.number, ends=moment(outlook.ends_ms), next=moment(due.at_ms)
            )

    # -- alarms, outages, time

    def _alarm(self, name: str, number: int, **fields: Any) -> None:
        event(
            log, name, level=logging.WARNING, job=self._options.name, batch=number, **fields
        )  # fmt: skip

    def _alarm_once(self, name: str, number: int, **fields: Any) -> None:
        if (number, name) not in self._said:
            self._said.add((number, name))
            self._alarm(name, number, **fields)

    async def _latest(self) -> BatchRecord | None:
        found: list[BatchRecord] = await self._ask(self._records.recent, 1)
        return found[0] if found else None

    async def _ask(self, call: Callable[..., T], *args: Any) -> T:
        answer: T = await self._run_blocking(call, *args)
        return answer

    async def _outage_or(self, step: Callable[[], Awaitable[float | None]]) -> float | None:
        """A step, or a pause while the store or the database is away."""
        try:
            pause = await step()
        except StoreUnavailable as error:
            if not self._away:
                log.warning("batches wait: %s", error)
            self._away = True
            return OUTAGE_SECONDS
        if self._away:
            log.warning("batches go on")
        self._away = False
        return pause

    def _time(self) -> float:
        return asyncio.get_running_loop().time()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return


def moment(at_ms: int) -> str:
    """Local date and time."""
    return datetime.fromtimestamp(at_ms / 1000).isoformat(" ", "seconds")
