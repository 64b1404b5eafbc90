"""Assembly of batches: workers that go from batch to batch, and the master that opens them."""

from __future__ import annotations

import asyncio
import logging
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from orbweb.batch.monitor import BatchMonitor, MonitorOptions, moment
from orbweb.batch.schedule import parse_schedule
from orbweb.batch.work import BatchWork, run_of
from orbweb.engine.report import RunReport
from orbweb.engine.shutdown import ExitCode, hold_signals
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import RunState
from orbweb.frontier.servers import Servers
from orbweb.log import configure, event, get_logger
from orbweb.settings import Settings
from orbweb.sources.base import BatchRecord, BatchState, BatchStore
from orbweb.sources.sql import SqlBatchStore
from orbweb.sources.sql_tasks import Columns
from orbweb.spiders.batch import BatchSpider
from orbweb.spiders.build import Start, crawl, loop_factory, open_servers, settings_of

LOOK_SECONDS = 0.5
"""How often a worker without a batch looks whether there is one."""

log = get_logger("orbweb.batch")


def run_batches(spider: BatchSpider, start: Start | None = None) -> RunReport:
    """Work on batches on an event loop of its own; blocks. See `BatchSpider.run`.

    Raises `ConfigError`, `StoreUnsafe` and `StoreUnavailable` when the work cannot begin.
    """
    start = start or Start()
    settings = _ready_settings(spider, start)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_work(spider, settings, start))


def run_monitor(spider: BatchSpider, *, once: bool = False, start: Start | None = None) -> int:
    """Be the master of the batches; blocks. Returns the exit code. Raises as `run_batches` does."""
    start = start or Start()
    settings = _ready_settings(spider, start)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_watch(spider, settings, start, once=once))


def batch_store(spider: BatchSpider, settings: Settings) -> BatchStore:
    """The store of a spider, ready for use; blocks. Raises `ConfigError`, `StoreUnavailable`."""
    store = spider.batch_store or SqlBatchStore(
        database_url(settings),
        spider.task_table,
        Columns(
            id=settings["BATCH_TASK_ID_FIELD"],
            state=settings["BATCH_TASK_STATE_FIELD"],
            time=settings["BATCH_TASK_TIME_FIELD"],
            batch=settings["BATCH_TASK_BATCH_FIELD"],
            wanted=spider.task_keys,
            condition=settings["BATCH_TASK_CONDITION"],
        ),
        record_table=settings["BATCH_RECORD_TABLE"],
        create=settings["SQL_CREATE_TABLES"],
    )
    store.prepare()
    return store


def database_url(settings: Settings) -> str:
    """Where the task table is. Raises `ConfigError` when no setting says it."""
    named: str = settings["BATCH_SQL_URL"] or settings["SQL_URL"]
    if named:
        return named
    if all(settings.origin(name) == "default" for name in ("MYSQL_HOST", "MYSQL_DB")):
        raise ConfigError(
            "BATCH_SQL_URL is empty: say where the task table is, such as "
            "mysql://user:password@host/name, postgresql://user@host/name or sqlite:///tasks.db"
        )
    url = sa.URL.create(
        "mysql",
        settings["MYSQL_USER"],
        settings["MYSQL_PASSWORD"] or None,
        settings["MYSQL_HOST"],
        settings["MYSQL_PORT"],
        settings["MYSQL_DB"],
    )
    return url.render_as_string(hide_password=False)


def _ready_settings(spider: BatchSpider, start: Start) -> Settings:
    settings = settings_of(spider, start)
    if settings["DEDUP_SCOPE"] == "spider":
        raise ConfigError(
            f"DEDUP_SCOPE is spider ({settings.origin('DEDUP_SCOPE')}), with which a second batch "
            "would crawl nothing. What a batch has seen is forgotten with it: remove the setting"
        )
    parse_schedule_of(settings)
    configure(settings["LOG_LEVEL"], settings["LOG_FILE"], settings["LOG_JSON"])
    for note in settings.notes:
        log.warning("%s", note)
    if settings["RUN_ID"]:
        log.info("RUN_ID (%s) does not apply to a BatchSpider: the batch is the run",
                 settings.origin("RUN_ID"))  # fmt: skip
    return settings


def parse_schedule_of(settings: Settings) -> Any:
    """When the batches of these settings are due. Raises `ConfigError`."""
    return parse_schedule(
        settings["BATCH_INTERVAL"], settings["BATCH_INTERVAL_UNIT"], settings["BATCH_TIME_ZONE"]
    )


# -- the work on batches


async def _work(spider: BatchSpider, settings: Settings, start: Start) -> RunReport:
    async with AsyncExitStack() as stack:
        restore = hold_signals(
            spider.stop, settings["GRACEFUL_TIMEOUT"], lambda: not spider.is_bound
        )
        stack.callback(restore)
        store = await _open_store(spider, settings, stack)
        servers, _, _ = await open_servers(settings, start.directory or Path.cwd(), stack)
        monitor = None
        if start.monitor:
            made = _make_monitor(spider, settings, store, servers, once=start.once)
            monitor = await stack.enter_async_context(_running(made))
        return await BatchWorker(spider, settings, start, store, monitor).run()


async def _open_store(spider: BatchSpider, settings: Settings, stack: AsyncExitStack) -> BatchStore:
    store = await asyncio.to_thread(batch_store, spider, settings)
    if spider.batch_store is None:
        stack.callback(store.close)
    spider.use_store(store)
    return store


class BatchWorker:
    """Goes from batch to batch: waits for one to be open, and works on it to the end of its run."""

    def __init__(
        self,
        spider: BatchSpider,
        settings: Settings,
        start: Start,
        store: BatchStore,
        monitor: RunningMonitor | None,
    ) -> None:
        self._spider = spider
        self._settings = settings
        self._start = start
        self._store = store
        self._records = store.records(spider.redis_key)
        self._monitor = monitor
        self._report: RunReport | None = None
        self._worked = 0
        """The last batch that this node has worked on."""
        self._patience = settings["TASK_EXHAUST_POLLS"] * settings["TASK_POLL_INTERVAL"]

    async def run(self) -> RunReport:
        """Work until there is no more to wait for; the report is that of the last batch."""
        while (batch := await self._next()) is not None:
            self._report = await self._crawl(batch)
            self._worked = batch.number
            if self._spider.stop_asked:
                break
            if self._report.state != "done" and not await self._was_abandoned(batch):
                break
        return self._report or await self._nothing()

    async def _next(self) -> BatchRecord | None:
        """The next batch to work on; None when this node waits for none."""
        began = asyncio.get_running_loop().time()
        while not self._spider.stop_asked:
            batch = await self._latest()
            if batch is not None and batch.state is BatchState.OPEN and await self._has_work(batch):
                return batch
            if not self._stays():
                waited = asyncio.get_running_loop().time() - began
                if self._report is not None or waited >= self._patience:
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
        if batch.number != self._worked:
            return True
        counts = await asyncio.to_thread(self._store.tasks.count, batch.number)
        return not counts.finished

    async def _crawl(self, batch: BatchRecord) -> RunReport:
        work = BatchWork(
            self._store, batch.number, self._settings["BATCH_PUSH_LIMIT"], asyncio.to_thread
        )
        self._spider.begin_batch(work)
        overrides = {
            **self._start.overrides,
            "RUN_ID": run_of(batch.number),
            "DEDUP_SCOPE": "run",
            "SPIDER_KEEP_ALIVE": False,
        }
        if self._settings.origin("TASK_DEDUP") == "default":
            overrides["TASK_DEDUP"] = True  # what one row has crawled is seen for the others
        if self._settings.origin("TASK_EXHAUST_POLLS") == "default":
            overrides["TASK_EXHAUST_POLLS"] = 1  # the table says for sure that no row is left
        start = replace(self._start, overrides=overrides)
        return await crawl(self._spider, settings_of(self._spider, start), start)

    async def _was_abandoned(self, batch: BatchRecord) -> bool:
        """Whether its run was stopped because the next batch was due."""
        latest = await self._latest()
        return latest is not None and (
            latest.number != batch.number or latest.state is BatchState.ABANDONED
        )

    async def _latest(self) -> BatchRecord | None:
        try:
            found = await asyncio.to_thread(self._records.recent, 1)
        except StoreUnavailable as error:
            log.debug("the batches cannot be read: %s", error)
            return None
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


# -- the master


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


@asynccontextmanager
async def _running(monitor: BatchMonitor) -> AsyncIterator[RunningMonitor]:
    """A monitor at work for as long as the block lasts; it gives its role back at the end."""
    task = asyncio.create_task(monitor.run())
    try:
        yield RunningMonitor(monitor, task)
    finally:
        monitor.stop()
        await asyncio.wait([task])


async def _watch(spider: BatchSpider, settings: Settings, start: Start, *, once: bool) -> int:
    async with AsyncExitStack() as stack:
        store = await _open_store(spider, settings, stack)
        servers, _, _ = await open_servers(settings, start.directory or Path.cwd(), stack)
        monitor = _make_monitor(spider, settings, store, servers, once=once)
        stack.callback(_on_signals(monitor.stop))
        ended = await monitor.run()
        if once and ended is None:
            due = monitor.next_due
            when = f"before {moment(due.at_ms)}" if due else "now"
            log.warning("no batch is due %s: nothing was done", when)
            return int(ExitCode.NOTHING_DONE)
        return int(ExitCode.DONE)


def _make_monitor(
    spider: BatchSpider, settings: Settings, store: BatchStore, servers: Servers, *, once: bool
) -> BatchMonitor:
    admin = Admin(servers, settings["REDIS_KEY_PREFIX"], shards=settings["FRONTIER_SHARDS"])
    options = MonitorOptions(
        job=spider.redis_key,
        holder=uuid.uuid4().hex,
        schedule=parse_schedule_of(settings),
        lease_seconds=settings["SPIDER_TASK_LEASE"],
        report_seconds=settings["BATCH_MONITOR_INTERVAL"],
        carry=settings["BATCH_UNFINISHED"] == "carry",
        once=once,
    )
    return BatchMonitor(
        options,
        store.records(spider.redis_key),
        store.tasks,
        StoredRuns(admin, spider.redis_key),
        asyncio.to_thread,
    )


class StoredRuns:
    """See `BatchRuns`: the runs of batches in the store."""

    def __init__(self, admin: Admin, job: str) -> None:
        self._admin = admin
        self._job = job

    async def state(self, number: int) -> RunState | None:
        found = await self._admin.look(self._job, run_of(number))
        return found.status.state if found else None

    async def stop(self, number: int) -> None:
        found = await self._admin.look(self._job, run_of(number))
        if found is not None:
            await self._admin.stop(found)


def _on_signals(stop: Callable[[], None]) -> Callable[[], None]:
    """Let SIGTERM and SIGINT call `stop`; returns what takes that off again."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop)

    def restore() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    return restore
