"""The engine: one node at work on one run, from joining it to the report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from orbweb.download.proxies import ProxyPool
from orbweb.engine.answers import Answers
from orbweb.engine.callbacks import Callbacks, Spider
from orbweb.engine.errands import Errands, TaskWorker
from orbweb.engine.gauge import Dials, Gauge
from orbweb.engine.items import ItemDesk
from orbweb.engine.journal import Journal
from orbweb.engine.keeper import Keeper, KeeperOptions
from orbweb.engine.knobs import Knobs
from orbweb.engine.ledger import Ledger
from orbweb.engine.options import Codec, EngineOptions, TaskOptions, World
from orbweb.engine.outputs import Admission
from orbweb.engine.pacer import Detour, PacerTools, Turn
from orbweb.engine.poller import Poller, PollTools, TaskSource
from orbweb.engine.pump import Pump
from orbweb.engine.report import Progress, Reporter, RunReport
from orbweb.engine.seeder import Seeder, SeedTools, Source
from orbweb.engine.session import Session
from orbweb.engine.shutdown import Shutdown
from orbweb.engine.signals import Signals
from orbweb.engine.stats import Stats
from orbweb.engine.step import Step
from orbweb.engine.teller import Teller
from orbweb.engine.tools import DownloadChain, StepTools
from orbweb.errors import RunLost, SpiderError, StoreUnavailable
from orbweb.frontier.base import Frontier, Held, Lease, Opened, RunControl, RunState, Status
from orbweb.frontier.items import ItemBook, MemoryItemBook
from orbweb.frontier.totals import TotalsBook
from orbweb.log import get_logger
from orbweb.model.url import host_of
from orbweb.monitor.counts import Counts
from orbweb.monitor.crawl_line import CrawlLog
from orbweb.monitor.trace import Tracer
from orbweb.pipelines.buffer import ItemBuffer

LAST_CALL_SECONDS = 0.4
"""How long an unreachable store may hold up a node that was told to stop."""

LAST_ITEMS_SECONDS = 0.3

COLLECT_BUSY_SECONDS = 0.5
COLLECT_IDLE_SECONDS = 60.0
"""Pauses between two pieces of past runs that are cleared away, and when there was nothing."""

COUNT_SECONDS = 1.0
TELL_SECONDS = 5.0

TICK_SECONDS = 0.5

log = get_logger("orbweb.engine")


class TaskSpiderCalls(TaskWorker, TaskSource, Protocol):
    """What the engine calls of a spider with tasks."""


class LiveDesk(Protocol):
    """What the engine needs of who follows the live values."""

    async def run(self) -> None:
        """Let live values hold until cancelled; the run is open."""

    def beat(self) -> Mapping[str, str | int]:
        """What the node says of them in its heartbeat."""


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What an engine is put together from."""

    frontier: Frontier
    control: RunControl
    spider: Spider
    spider_base: type
    """The class whose hooks do nothing."""
    chain: DownloadChain
    buffer: ItemBuffer
    codec: Codec
    options: EngineOptions
    world: World
    identity: Mapping[str, str] = field(default_factory=dict)
    """`run_id`, `namespace` and `redis_key`, for the summary."""
    place: Mapping[str, str | int] = field(default_factory=dict)
    """Where the node runs (host, pid), for the heartbeat."""
    vitals: Callable[[], Mapping[str, Any]] = dict
    """What the node takes of its machine, for the heartbeat."""
    show_summary: bool = True
    items: ItemBook = field(default_factory=MemoryItemBook)
    """What is known of the run's items on all nodes."""
    totals: TotalsBook | None = None
    """Where the run's counts are added up; None when the run lives in this process alone."""
    wall_ms: Callable[[], int] = lambda: 0
    """Milliseconds since 1970, to say when an item failed, and in the crawl log."""
    crawl_log: CrawlLog | None = None
    """Gets a line for each outcome."""
    tracer: Tracer | None = None
    """Is told of attempts and their phases; None: nobody wants to know."""
    collect: Callable[[], Awaitable[int]] | None = None
    """Clears a piece of what past runs have left in the store; returns how much."""
    on_new_run: Callable[[], None] | None = None
    """Called when this node has made the run, before anything of it is fetched here."""
    go_on: str = ""
    """How a run that has stopped is gone on with, where that is not by its id."""
    live: LiveDesk | None = None
    """Lets settings change while the engine runs."""
    tasks: TaskSpiderCalls | None = None
    """The spider, when it works through tasks."""
    proxies: ProxyPool | None = None
    """Through which the chain fetches."""


class Engine:
    """Works on one run until it is done, lost, or the node is asked to stop.

    The nesting of its task groups is the order of its end: seeding and steps, then the storing of
    items, then the keeper of the leases.
    """

    def __init__(self, parts: EngineParts) -> None:
        world, options = parts.world, parts.options
        self.stats = Stats(world.clock)
        self.shutdown = Shutdown(options.graceful_seconds, world.clock)
        self.place = dict(parts.place)
        """Where the node runs and can be asked, for the heartbeat."""
        self._parts = parts
        self._options = options
        self._world = world
        self._callbacks = Callbacks(parts.spider, world.run_blocking, parts.spider_base)
        journal = self._make_journal()
        self.knobs = Knobs.of(options)
        """What of the engine may change while it runs; set them on its loop, then `poke`."""
        self._admission = Admission(
            lambda: self.knobs.links,
            parts.codec,
            self._callbacks.knows,
            journal.skipped,
            shares_dedup=options.tasks is not None and options.tasks.shares_dedup,
        )
        self._ledger = Ledger(options.lease_seconds, options.margin_seconds)
        self._session = Session(
            parts.frontier,
            parts.control,
            node=options.node,
            lease_ms=options.run.lease_ms,
            clock=world.clock,
            rng=world.rng,
            revive=world.revive,
            counts=self.stats.counts,
        )
        self._signals = Signals(self._session, world.clock)
        self._pacing = PacerTools(
            self._session, self._signals, world.clock, options.calm_seconds, self.stats.counts
        )
        self._pump = Pump(
            self._session,
            self._ledger,
            options,
            self.knobs,
            self.stats,
            self.shutdown,
            journal,
            clock=world.clock,
            rng=world.rng,
        )
        self._items = ItemDesk(
            parts.items,
            node=options.node,
            filters=options.filter_items,
            counts=options.count_items,
            wall_ms=parts.wall_ms,
        )
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seeder: Source | None = None
        self._answers = Answers()
        self._pulse = 0
        self._gauge = self._make_gauge()
        self._teller = self._make_teller()
        self._reporter = Reporter(
            options.spider,
            self.stats,
            outputs=lambda: parts.buffer.targets,
            identity=parts.identity,
            show_summary=parts.show_summary,
            go_on=parts.go_on,
        )

    # -- what others see

    def progress(self) -> Progress:
        """A snapshot of the work; may be taken at any time on the engine's loop."""
        return self._gauge.progress()

    def poke(self) -> None:
        """Look at the knobs again; call it on the engine's loop."""
        self._pump.poke(0)

    def keep_calm(self, seconds: float) -> None:
        """The gap that hosts are given of which the node has no turn."""
        self._pacing.calm_seconds = seconds

    def beat(self) -> bytes:
        """What the node says of itself, as of half a second ago; from any thread."""
        return self._gauge.last_words()

    def stop(self, reason: str = "stop() was called") -> None:
        """Ask the node to stop; call it on the engine's loop."""
        self.shutdown.request(reason)

    def stop_soon(self, reason: str) -> None:
        """Like `stop`, from any thread. Does nothing when the engine does not run."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.shutdown.request, reason)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call code of the spider: a coroutine here, anything else in a thread."""
        return await self._callbacks.call(function, *args)

    async def sitemaps(self, url: str) -> tuple[str, ...]:
        """The sitemaps that robots.txt of this URL's site names; await it on the engine's loop."""
        gate = Detour(host_of(url), self._pacing)
        return await self._parts.chain.sitemaps(url, gate)

    def wait_sitemaps(self, url: str) -> tuple[str, ...]:
        """`sitemaps` for other threads."""
        if self._loop is None or self._loop is asyncio._get_running_loop():
            raise SpiderError(
                "wait_sitemaps is for callbacks that are no coroutines: await sitemaps"
            )
        return asyncio.run_coroutine_threadsafe(self.sitemaps(url), self._loop).result()

    # -- the run

    async def run(self) -> RunReport:
        """Work to the end and tell how it was. Does not raise for what can happen to a run."""
        parts = self._parts
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self.shutdown.on_change(self._on_shutdown)
        try:
            opened = await self._open()
            if opened is None:
                return self._reporter.stopped(self.shutdown.reason, None)
            if opened.status.state is RunState.DONE:
                return self._reporter.joined_finished(opened.status)
            if opened.state is RunState.NEW and parts.on_new_run is not None:
                parts.on_new_run()
            self._items.attach(opened.epoch)
            if parts.totals is not None:
                parts.totals.attach(opened.epoch)
            return await self._report(await self._crawl(opened))
        except asyncio.CancelledError:
            if self.shutdown.abort_code is None or self._task is None:
                raise
            self._task.uncancel()
            return self._reporter.aborted(self.shutdown.abort_code, self.shutdown.reason)
        except Exception as error:
            return self._reporter.failed(_cause(error))

    async def _open(self) -> Opened | None:
        """Join the run; None when the node is told to stop before the store answers."""
        try:
            async with self._until_deadline():
                return await self._session.open(self._options.run)
        except TimeoutError:
            log.warning("the store does not answer; nothing was done")
            return None

    async def _crawl(self, opened: Opened) -> bool:
        """True when the run is done, False when this node stopped before."""
        self._reporter.opened(opened, self._options.node)
        self._seeder = self._make_seeder(opened.epoch)
        keeper = self._make_keeper()
        connect = self._world.connect
        await self._call_hook("start_callback")
        self._world.background.start(lambda: keeper.run(connect, opened.epoch))
        try:
            async with asyncio.TaskGroup() as services:
                services.create_task(self._parts.buffer.run())
                work = [self._tick, self._collect, self._count, self._tell, self._signals.run]
                if self._parts.live is not None:
                    work.append(self._parts.live.run)
                chores = [services.create_task(chore()) for chore in work]
                try:
                    done = await self._work(opened.epoch, self._seeder)
                finally:
                    await self._parts.buffer.close(LAST_ITEMS_SECONDS)
                for chore in chores:
                    chore.cancel()
                await self._tell_counts()
                await self._tell_last()
        finally:
            await self._world.background.stop()
        if done:
            await self._call_hook("end_callback")
        return done

    async def _work(self, epoch: str, seeder: Source) -> bool:
        tools = self._step_tools(epoch)
        async with asyncio.TaskGroup() as group:

            def begin(lease: Lease, turn: Turn, at_ms: int) -> Step:
                step = Step(lease, turn, tools, at_ms)
                step.start(group)
                return step

            seeding = group.create_task(self._seed(seeder))
            try:
                async with self._until_deadline():
                    done = await self._pump.run(begin)
                    await seeder.finish()
                    await _ended(seeding)
                    await seeder.release()
            except TimeoutError:
                log.warning("the store does not answer; what is held returns when its lease ends")
                done = False
                self._pump.abandon()
            seeding.cancel()
        return done

    async def _seed(self, seeder: Source) -> None:
        await seeder.run()
        if seeder.failed is not None:
            self._pump.give_up_seeding()

    def _on_shutdown(self) -> None:
        if self._task is not None and self.shutdown.abort_code is not None:
            self._task.cancel()

    @asynccontextmanager
    async def _until_deadline(self) -> AsyncIterator[None]:
        """End the block with `TimeoutError` when the time of a node that is to stop is over."""
        async with asyncio.timeout(None) as limit:

            def shorten() -> None:
                deadline = self.shutdown.deadline
                if deadline is not None and not limit.expired():
                    left = deadline - self._world.clock() + LAST_CALL_SECONDS
                    limit.reschedule(asyncio.get_running_loop().time() + left)

            forget = self.shutdown.on_change(shorten)
            shorten()
            try:
                yield
            finally:
                forget()

    async def _tick(self) -> None:
        """Show the keeper that the loop moves, keep the rate, watch the time limit."""
        while True:
            self._pulse += 1
            self._gauge.sample()
            limit = self.knobs.max_runtime_seconds
            if 0 < limit <= self.stats.elapsed:
                self.shutdown.request(f"SPIDER_MAX_RUNTIME of {limit:g} s is over")
            await asyncio.sleep(TICK_SECONDS)

    async def _collect(self) -> None:
        """Clear away what past runs have left, a piece at a time."""
        while self._parts.collect is not None:
            cleared = 0
            with suppress(StoreUnavailable):
                cleared = await self._parts.collect()
            pause = COLLECT_BUSY_SECONDS if cleared else COLLECT_IDLE_SECONDS
            await asyncio.sleep(pause * self._world.rng.uniform(0.5, 1.5))

    async def _count(self) -> None:
        """Tell what the items look like, as they come."""
        while True:
            await asyncio.sleep(COUNT_SECONDS)
            with suppress(StoreUnavailable):
                await self._items.flush()

    async def _tell(self) -> None:
        """Add to the run's totals what this node has counted."""
        while self._teller is not None:
            await asyncio.sleep(TELL_SECONDS * self._world.rng.uniform(0.8, 1.0))
            with suppress(StoreUnavailable):
                await self._teller.tell()

    async def _tell_counts(self) -> None:
        """The last counts; a store that is away does not hold up the end."""
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(LAST_CALL_SECONDS if self.shutdown.requested else 10.0):
                await self._items.flush()
                if self._teller is not None:
                    await self._teller.tell()

    async def _tell_last(self) -> None:
        """Tell what was met at hosts, and that the node ends, if the store answers at once."""
        with suppress(TimeoutError, RunLost):
            async with asyncio.timeout(LAST_CALL_SECONDS):
                await self._signals.flush()
                if self._session.outage_since is None:
                    await self._session.renew((), self._gauge.goodbye())

    async def _call_hook(self, name: str) -> None:
        """Call a hook of the spider, if it has one; a node that is to stop waits no longer."""
        if not self._callbacks.overrides(name):
            return
        try:
            async with self._until_deadline():
                await self._callbacks.call(getattr(self._parts.spider, name))
        except TimeoutError:
            if not self.shutdown.requested:
                raise
            log.warning("%s has not come to its end; the node stops without it", name)

    # -- putting it together

    def _step_tools(self, epoch: str) -> StepTools:
        parts = self._parts
        return StepTools(
            options=self._options,
            knobs=self.knobs,
            epoch=epoch,
            desk=self._pump,
            session=self._session,
            ledger=self._ledger,
            pacing=self._pacing,
            chain=parts.chain,
            spider=parts.spider,
            callbacks=self._callbacks,
            admission=self._admission,
            codec=parts.codec,
            buffer=parts.buffer,
            items=self._items,
            stats=self.stats,
            clock=self._world.clock,
            rng=self._world.rng,
            tracer=parts.tracer,
            answers=self._answers,
            errands=Errands(parts.tasks, self._callbacks) if parts.tasks is not None else None,
        )

    def _make_journal(self) -> Journal:
        identity, options = self._parts.identity, self._options
        return Journal(
            self._parts.crawl_log,
            job=identity.get("redis_key", options.spider),
            run=identity.get("run_id", ""),
            node=options.node,
            wall_ms=self._parts.wall_ms,
            drop_params=options.drop_query_params,
            tracer=self._parts.tracer,
        )

    def _make_seeder(self, epoch: str) -> Source:
        if self._options.tasks is not None:
            return Poller(self._poll_tools(self._parts.tasks, self._options.tasks))
        tools = SeedTools(
            start_requests=self._parts.spider.start_requests,
            admission=self._admission,
            session=self._session,
            ledger=self._ledger,
            options=self._options,
            stats=self.stats,
            run_blocking=self._world.run_blocking,
            pending=lambda: self._pump.pending,
            on_added=self._pump.poke,
        )
        return Seeder(tools, epoch)

    def _poll_tools(self, source: TaskSpiderCalls | None, tasks: TaskOptions) -> PollTools:
        if source is None:
            raise SpiderError(f"{self._options.spider} is no TaskSpider, so it has no tasks")
        return PollTools(
            source=source,
            session=self._session,
            ledger=self._ledger,
            options=self._options,
            tasks=tasks,
            pending=lambda: self._pump.pending,
            on_added=self._pump.poke,
        )

    def _make_keeper(self) -> Keeper:
        options = self._options
        return Keeper(
            self._ledger,
            _KeeperLink(asyncio.get_running_loop(), self._pump, self.shutdown),
            KeeperOptions(
                node=options.node,
                lease_ms=options.run.lease_ms,
                interval_seconds=options.beat_seconds,
                watchdog_seconds=options.watchdog_seconds,
                max_hold_seconds=options.max_hold_seconds,
            ),
            pulse=lambda: self._pulse,
            beat=self.beat,
            clock=self._world.clock,
            rng=self._world.rng,
        )

    def _make_teller(self) -> Teller | None:
        totals = self._parts.totals
        return Teller(totals, self._options.node, self._counted) if totals is not None else None

    def _counted(self) -> Counts:
        """All that this node has counted, what its items look like among it."""
        self.stats.counts.see(self._items.tally)
        return self.stats.counts

    def _make_gauge(self) -> Gauge:
        parts = self._parts
        dials = Dials(
            options=self._options,
            knobs=self.knobs,
            stats=self.stats,
            pump=self._pump,
            session=self._session,
            buffer=parts.buffer,
            place=self.place,
            vitals=parts.vitals,
            counted=self._counted,
            is_seeding=lambda: self._seeder is not None and self._seeder.active,
            seeding_waits=lambda: self._seeder is not None and self._seeder.waits,
            is_stopping=lambda: self.shutdown.requested,
            answers=self._answers,
            source_error=lambda: self._seeder.trouble if self._seeder is not None else "",
            proxies=parts.proxies,
            config=parts.live.beat if parts.live is not None else dict,
        )
        return Gauge(dials, self._world.clock)

    # -- the end

    async def _report(self, done: bool) -> RunReport:
        status = await self._last_status()
        if self._seeder is not None and self._seeder.failed is not None:
            return self._reporter.unseeded(self._seeder.failed, status)
        if done:
            return self._reporter.done(status)
        if status is not None and self._rests(status):
            return self._reporter.rested(self.shutdown.reason, status)
        return self._reporter.stopped(self.shutdown.reason, status)

    def _rests(self, status: Status) -> bool:
        """An operator has stopped a run with tasks when nothing but its source was left."""
        left = status.pending - status.seeding - status.hold + status.tasks
        return self._options.tasks is not None and status.stopping and left == 0

    async def _last_status(self) -> Status | None:
        try:
            async with asyncio.timeout(LAST_CALL_SECONDS if self.shutdown.requested else 10.0):
                return await self._session.status()
        except (TimeoutError, RunLost):
            return None


class _KeeperLink:
    """Passes what the keeper says on to the engine's loop. See `KeeperEvents`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pump: Pump, shutdown: Shutdown) -> None:
        self._loop = loop
        self._pump = pump
        self._shutdown = shutdown

    def on_lost(self, held: Sequence[Held]) -> None:
        self._loop.call_soon_threadsafe(self._pump.lose, held)

    def on_overdue(self, held: Sequence[Held]) -> None:
        self._loop.call_soon_threadsafe(self._pump.expire, held)

    def on_stop(self) -> None:
        self._loop.call_soon_threadsafe(self._shutdown.request, "an operator asked the run to stop")


def _cause(error: BaseException) -> BaseException:
    """The first error of a group; `RunLost` before all others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    lost, rest = error.split(RunLost)
    return _cause((lost or rest or error).exceptions[0])


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
