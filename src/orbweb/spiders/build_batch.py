"""Assembly of batches: workers that go from batch to batch, and the master that opens them."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from orbweb.batch.monitor import BatchMonitor, MonitorOptions, moment
from orbweb.batch.schedule import parse_schedule
from orbweb.batch.work import BatchWork, run_of
from orbweb.engine.options import RunBlocking
from orbweb.engine.report import RunReport
from orbweb.engine.shutdown import ExitCode, hold_signals
from orbweb.engine.threads import CallbackThreads, loop_factory
from orbweb.errors import ConfigError, RunLost, StoreUnavailable
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import RunState
from orbweb.frontier.notes import NoteBook, NoteKind
from orbweb.frontier.servers import Servers
from orbweb.log import get_logger
from orbweb.settings import Settings
from orbweb.settings.log import configure_log
from orbweb.settings.names import SYNONYMS
from orbweb.sources.base import BatchRecord, BatchStore
from orbweb.spiders.batch import BatchSpider
from orbweb.spiders.batch_worker import LOOK_SECONDS, BatchWorker, RunningMonitor
from orbweb.spiders.build import crawl
from orbweb.spiders.build_servers import open_servers
from orbweb.spiders.start import Start, settings_of
from orbweb.spiders.watching import watching

DATABASE_THREADS = 4

DATABASE_SECONDS = 30
"""How long a node that starts waits for a database that does not answer."""

GO_ON = "start the spider again to go on with the batch"

OWN_SETTINGS: Mapping[str, Any] = {
    "RUN_ID": "",  # the batch's
    "DEDUP_SCOPE": "run",
    "SPIDER_KEEP_ALIVE": False,  # a batch ends, the node may stay
}
"""Settings that the run of a batch always has."""

USUAL_SETTINGS: Mapping[str, Any] = {
    "TASK_DEDUP": True,  # what one row has crawled is seen for the others
    "TASK_EXHAUST_POLLS": 1,  # the table says for sure that no row is left
}
"""Settings that it has unless they are chosen."""

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
    """The store of a spider; its `prepare` comes first. Raises `ConfigError`."""
    store = spider.batch_store
    if store is None:
        from orbweb.spiders.batch_store import sql_store  # needs SQLAlchemy

        store = sql_store(spider, settings)
    return store


def _ready_settings(spider: BatchSpider, start: Start) -> Settings:
    settings = settings_of(spider, start)
    if settings["DEDUP_SCOPE"] == "spider":
        raise ConfigError(
            f"DEDUP_SCOPE is spider ({settings.origin('DEDUP_SCOPE')}), with which a second batch "
            "would crawl nothing. What a batch has seen is forgotten with it: remove the setting"
        )
    parse_schedule_of(settings)
    configure_log(settings)
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
        ask = _threads(stack)
        store = await _open_store(spider, settings, ask, stack)
        servers, _, _ = await open_servers(settings, start.directory or Path.cwd(), stack)
        watch = await stack.enter_async_context(watching(lambda: settings, servers))
        monitor = None
        if start.monitor:
            made = _make_monitor(spider, settings, store, servers, ask, once=start.once)
            monitor = await stack.enter_async_context(_running(made))
        crawl_batch = partial(_crawl_batch, spider, settings, start, store, ask)
        report = await BatchWorker(spider, settings, store, ask, crawl_batch, monitor).run()
        if watch is not None and report.run_lost:
            await watch.end(report)
        return report


def _threads(stack: AsyncExitStack) -> RunBlocking:
    """Threads that ask the database; one that hangs does not hold up the end."""
    threads = CallbackThreads(DATABASE_THREADS, "orbweb-batch")
    stack.callback(threads.close)
    return threads.run


async def _open_store(
    spider: BatchSpider, settings: Settings, ask: RunBlocking, stack: AsyncExitStack
) -> BatchStore:
    store = batch_store(spider, settings)
    if spider.batch_store is None:
        stack.callback(store.close)
    deadline = asyncio.get_running_loop().time() + DATABASE_SECONDS
    said = False
    while True:
        try:
            await ask(store.prepare)
        except StoreUnavailable as error:
            if spider.stop_asked or asyncio.get_running_loop().time() >= deadline:
                raise
            if not said:
                log.warning("%s; waiting for it for %d s", error, DATABASE_SECONDS)
            said = True
            await asyncio.sleep(LOOK_SECONDS)
        else:
            spider.use_store(store)
            return store


async def _crawl_batch(
    spider: BatchSpider,
    settings: Settings,
    start: Start,
    store: BatchStore,
    ask: RunBlocking,
    batch: BatchRecord,
) -> RunReport:
    """Work on one batch, which is a run of its own."""
    spider.begin_batch(BatchWork(store, batch.number, settings["BATCH_PUSH_LIMIT"], ask))
    chosen = {
        name: value
        for name, value in start.overrides.items()
        if SYNONYMS.get(name, name) not in OWN_SETTINGS
    }
    usual = {
        name: value for name, value in USUAL_SETTINGS.items() if settings.origin(name) == "default"
    }
    own = {**OWN_SETTINGS, "RUN_ID": run_of(batch.number)}
    start = replace(start, overrides={**chosen, **usual, **own}, go_on=GO_ON, watch=False)
    return await crawl(spider, settings_of(spider, start), start)


# -- the master


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
    ready = False
    async with AsyncExitStack() as stack:
        stack.callback(hold_signals(spider.stop, settings["GRACEFUL_TIMEOUT"], lambda: not ready))
        ask = _threads(stack)
        try:
            store = await _open_store(spider, settings, ask, stack)
            servers, _, _ = await open_servers(settings, start.directory or Path.cwd(), stack)
        except StoreUnavailable:
            if not spider.stop_asked:
                raise
        ready = True
        if spider.stop_asked:
            log.warning("stopped before it was the master of the batches: nothing was done")
            return int(ExitCode.STOPPED)
        await stack.enter_async_context(watching(lambda: settings, servers))
        monitor = _make_monitor(spider, settings, store, servers, ask, once=once)
        stack.callback(_on_signals(monitor.stop))
        ended = await monitor.run()
        if once and ended is None:
            due = monitor.next_due
            when = f"before {moment(due.at_ms)}" if due else "now"
            log.warning("no batch is due %s: nothing was done", when)
            return int(ExitCode.NOTHING_DONE)
        return int(ExitCode.DONE)


def _make_monitor(
    spider: BatchSpider,
    settings: Settings,
    store: BatchStore,
    servers: Servers,
    ask: RunBlocking,
    *,
    once: bool,
) -> BatchMonitor:
    admin = Admin(servers, settings["REDIS_KEY_PREFIX"], shards=settings["FRONTIER_SHARDS"])
    options = MonitorOptions(
        name=spider.batch_name,
        holder=uuid.uuid4().hex,
        schedule=parse_schedule_of(settings),
        lease_seconds=settings["SPIDER_TASK_LEASE"],
        report_seconds=settings["BATCH_MONITOR_INTERVAL"],
        carry=settings["BATCH_UNFINISHED"] == "carry",
        once=once,
    )
    notes = NoteBook(servers.of_shard(0), settings["REDIS_KEY_PREFIX"])

    async def promise(due_ms: int, cause: str) -> None:
        said = {"due_ms": due_ms, "cause": cause}
        await notes.leave(NoteKind.SCHEDULE, spider.redis_key, said)

    return BatchMonitor(
        options,
        store.records(spider.redis_key),
        store.tasks,
        StoredRuns(admin, spider.redis_key),
        ask,
        promise,
    )


class StoredRuns:
    """See `BatchRuns`: the runs of batches in the store."""

    def __init__(self, admin: Admin, job: str) -> None:
        self._admin = admin
        self._job = job

    async def state(self, number: int) -> RunState | None:
        try:
            found = await self._admin.look(self._job, run_of(number))
        except RunLost:  # it was reset in this moment
            return None
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
