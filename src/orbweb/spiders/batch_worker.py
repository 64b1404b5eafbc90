"""A worker of batches: waits for one to be open, works on it, waits for the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from orbweb.batch.monitor import BatchMonitor, moment
from orbweb.engine.options import RunBlocking
from orbweb.engine.report import RunReport
from orbweb.engine.shutdown import ExitCode
from orbweb.errors import StoreUnavailable
from orbweb.log import event, get_logger
from orbweb.settings import Settings
from orbweb.sources.base import BatchRecord, BatchState, BatchStore
from orbweb.spiders.batch import BatchSpider

LOOK_SECONDS = 0.5
"""How often a worker without a batch looks whether there is one."""

log = get_logger("orbweb.batch")


class RunningMonitor:
    """A monitor at work beside the node."""

    def __init__(self, monitor: BatchMonitor, task: asyncio.Task[Any]) -> None:
        self._monitor = monitor
        self._task = task

    @property
    def over(self) -> bool:
        """It has come to its end. Raises what it has failed with."""
        if self._task.done():
            self._task.result()
        return self._task.done()

    @property
    def next_due_ms(self) -> int:
        """When the next batch is due; 0 while one goes on."""
        due = self._monitor.next_due
        return due.at_ms if due else 0


class BatchWorker:
    """Goes from batch to batch: waits for one to be open, and works on it to the end of its run."""

    def __init__(
        self,
        spider: BatchSpider,
        settings: Settings,
        store: BatchStore,
        ask: RunBlocking,
        crawl: Callable[[BatchRecord], Awaitable[RunReport]],
        monitor: RunningMonitor | None,
    ) -> None:
        """`crawl` works on one batch to the end of its run, or until this node is stopped."""
        self._spider = spider
        self._settings = settings
        self._crawl = crawl
        self._store = store
        self._records = store.records(spider.redis_key)
        self._ask = ask
        self._monitor = monitor
        self._report: RunReport | None = None
        self._worked = 0
        """The last batch that this node has worked on."""
        self._again_at = 0.0
        self._patience = settings["TASK_EXHAUST_POLLS"] * settings["TASK_POLL_INTERVAL"]

    async def run(self) -> RunReport:
        """Work until there is no more to wait for; the report is that of the last batch."""
        while (batch := await self._next()) is not None:
            self._report = await self._crawl(batch)
            self._worked = batch.number
            self._again_at = _now() + self._settings["BATCH_MONITOR_INTERVAL"]
            if self._spider.stop_asked:
                break
            if self._report.state != "done" and not await self._was_abandoned(batch):
                break
        return self._report or await self._nothing()

    async def _next(self) -> BatchRecord | None:
        """The next batch to work on; None when this node waits for none."""
        began = _now()
        while not self._spider.stop_asked:
            try:
                if (batch := await self._latest()) is not None and await self._has_work(batch):
                    return batch
            except StoreUnavailable as error:
                log.debug("the batches cannot be read: %s", error)
            enough = self._report is not None or _now() - began >= self._patience
            if enough and not self._stays():
                return None
            await asyncio.sleep(LOOK_SECONDS)
        return None

    def _stays(self) -> bool:
        """Whether this node waits for the next batch."""
        if self._monitor is not None:
            return not self._monitor.over
        return bool(self._settings["SPIDER_KEEP_ALIVE"])

    async def _has_work(self, batch: BatchRecord) -> bool:
        """Whether it was not worked on here, or rows are left although its run has ended."""
        if batch.state is not BatchState.OPEN:
            return False
        if batch.number != self._worked:
            return True
        if _now() < self._again_at:
            return False
        self._again_at = _now() + self._settings["BATCH_MONITOR_INTERVAL"]
        return not (await self._ask(self._store.tasks.count, batch.number)).finished

    async def _was_abandoned(self, batch: BatchRecord) -> bool:
        """Whether its run was stopped because the next batch was due."""
        try:
            latest = await self._latest()
        except StoreUnavailable:
            return False
        return latest is not None and (
            latest.number != batch.number or latest.state is BatchState.ABANDONED
        )

    async def _latest(self) -> BatchRecord | None:
        found = await self._ask(self._records.recent, 1)
        return found[0] if found else None

    async def _nothing(self) -> RunReport:
        """There was no batch to work on."""
        why = "no batch is open, and none is due"
        if self._monitor is None:
            why = (
                "no batch is open: start_monitor() or orbweb run SPIDER --monitor opens them; "
                "keep_alive=True waits for one"
            )
        elif self._monitor.next_due_ms:
            why = f"no batch is due before {moment(self._monitor.next_due_ms)}"
        stopped = self._spider.stop_asked
        if stopped:
            why = "stop() was called"
        event(log, "batch_none", level=logging.WARNING, job=self._spider.redis_key, why=why)
        return RunReport(
            spider=self._spider.name,
            state="stopped" if stopped else "no_batch",
            exit_code=int(ExitCode.STOPPED if stopped else ExitCode.NOTHING_DONE),
            why=why,
            elapsed_seconds=0.0,
            counts={},
            reasons={},
            run=None,
            show_summary=self._settings["RUN_SUMMARY_ENABLE"],
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
