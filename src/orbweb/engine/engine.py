"""The engine: one node at work on one run, from joining it to the report."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from orbweb.engine.callbacks import Callbacks, Spider
from orbweb.engine.keeper import Keeper, KeeperOptions
from orbweb.engine.ledger import Ledger
from orbweb.engine.options import Codec, EngineOptions, World
from orbweb.engine.outputs import Admission, LinkRules
from orbweb.engine.pump import Pump
from orbweb.engine.report import Progress, RunReport
from orbweb.engine.seeder import Seeder, SeedTools
from orbweb.engine.session import Session
from orbweb.engine.shutdown import ExitCode, Shutdown
from orbweb.engine.stats import Stats
from orbweb.engine.step import DownloadChain, Step, StepTools
from orbweb.errors import RunLost
from orbweb.frontier.base import Frontier, Held, Lease, Opened, RunControl, RunState, Status
from orbweb.log import get_logger
from orbweb.pipelines.buffer import ItemBuffer

LAST_CALL_SECONDS = 0.4
"""How long an unreachable store may hold up a node that was told to stop."""

LAST_ITEMS_SECONDS = 0.3
RATE_SECONDS = 10.0
TICK_SECONDS = 0.5

log = get_logger("orbweb.engine")


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
    show_summary: bool = True
    on_new_run: Callable[[], None] | None = None
    """Called when this node has made the run, before anything of it is fetched here."""


class Engine:
    """Works on one run until it is done, lost, or the node is asked to stop.

    The nesting of its task groups is the order of its end: seeding and steps, then the storing of
    items, then the keeper of the leases.
    """

    def __init__(self, parts: EngineParts) -> None:
        world, options = parts.world, parts.options
        self.stats = Stats(world.clock)
        self.shutdown = Shutdown(options.graceful_seconds, world.clock)
        self._parts = parts
        self._options = options
        self._world = world
        self._callbacks = Callbacks(parts.spider, world.run_blocking, parts.spider_base)
        self._admission = Admission(_link_rules(options), parts.codec, self._callbacks.knows)
        self._ledger = Ledger(options.lease_seconds, options.margin_seconds)
        self._session = Session(
            parts.frontier,
            parts.control,
            node=options.node,
            lease_ms=options.run.lease_ms,
            clock=world.clock,
            rng=world.rng,
            revive=world.revive,
        )
        self._pump = Pump(
            self._session,
            self._ledger,
            options,
            self.stats,
            self.shutdown,
            clock=world.clock,
            rng=world.rng,
        )
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seeder: Seeder | None = None
        self._pulse = 0
        self._beat = b""
        self._samples: deque[tuple[float, int]] = deque()

    # -- what others see

    def progress(self) -> Progress:
        """A snapshot of the work; may be taken at any time on the engine's loop."""
        counts = self.stats
        return Progress(
            elapsed_seconds=counts.elapsed,
            pages=counts.get("request_ok"),
            pages_per_second=self._rate(),
            items=counts.get("item"),
            failed=counts.get("request_failed"),
            retried=counts.get("retry"),
            skipped={name: count for name, count in counts.reasons.items() if name != "done"},
            pending=self._pump.answer.pending,
            held=self._pump.held,
            fetching=self._pump.fetching,
            seeding=self._is_seeding(),
            limited_by=self._limited_by(),
        )

    def stop(self, reason: str = "stop() was called") -> None:
        """Ask the node to stop; call it on the engine's loop."""
        self.shutdown.request(reason)

    def stop_soon(self, reason: str) -> None:
        """Like `stop`, from any thread. Does nothing when the engine does not run."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.shutdown.request, reason)

    # -- the run

    async def run(self) -> RunReport:
        """Work to the end and tell how it was. Does not raise for what can happen to a run."""
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self.shutdown.on_change(self._on_shutdown)
        try:
            opened = await self._open()
            if opened is None:
                return self._make("stopped", ExitCode.STOPPED, self.shutdown.reason, None)
            if opened.status.state is RunState.DONE:
                return self._joined_finished(opened.status)
            if opened.state is RunState.NEW and self._parts.on_new_run is not None:
                self._parts.on_new_run()
            return await self._report(await self._crawl(opened))
        except asyncio.CancelledError:
            if self.shutdown.abort_code is None or self._task is None:
                raise
            self._task.uncancel()
            return self._make("aborted", self.shutdown.abort_code, self.shutdown.reason, None)
        except Exception as error:
            return self._failed(_cause(error))

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
        log.info(
            "run %s: %s, node %s, %d pending",
            opened.epoch,
            "joined" if opened.state is RunState.RUNNING else "new",
            self._options.node,
            opened.status.pending,
        )
        self._seeder = self._make_seeder(opened.epoch)
        keeper = self._make_keeper()
        connect = self._world.connect
        await self._call_hook("start_callback")
        self._world.background.start(lambda: keeper.run(connect, opened.epoch))
        try:
            async with asyncio.TaskGroup() as services:
                services.create_task(self._parts.buffer.run())
                ticker = services.create_task(self._tick())
                try:
                    done = await self._work(opened.epoch, self._seeder)
                finally:
                    await self._parts.buffer.close(LAST_ITEMS_SECONDS)
                ticker.cancel()
        finally:
            await self._world.background.stop()
        if done:
            await self._call_hook("end_callback")
        return done

    async def _work(self, epoch: str, seeder: Seeder) -> bool:
        tools = self._step_tools(epoch)
        async with asyncio.TaskGroup() as group:

            def begin(lease: Lease) -> Step:
                step = Step(lease, tools)
                step.start(group)
                return step

            seeding = group.create_task(self._seed(seeder))
            try:
                async with self._until_deadline():
                    done = await self._pump.run(begin)
                    await _ended(seeding)
                    await seeder.release()
            except TimeoutError:
                log.warning("the store does not answer; what is held returns when its lease ends")
                done = False
                self._pump.abandon()
            seeding.cancel()
        return done

    async def _seed(self, seeder: Seeder) -> None:
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
            self._beat = self._describe()
            now = self._world.clock()
            self._samples.append((now, self.stats.get("request_ok")))
            while now - self._samples[0][0] > RATE_SECONDS:
                self._samples.popleft()
            limit = self._options.max_runtime_seconds
            if 0 < limit <= self.stats.elapsed:
                self.shutdown.request(f"SPIDER_MAX_RUNTIME of {limit:g} s is over")
            await asyncio.sleep(TICK_SECONDS)

    async def _call_hook(self, name: str) -> None:
        if self._callbacks.overrides(name):
            await self._callbacks.call(getattr(self._parts.spider, name))

    # -- putting it together

    def _step_tools(self, epoch: str) -> StepTools:
        parts = self._parts
        return StepTools(
            options=self._options,
            epoch=epoch,
            desk=self._pump,
            session=self._session,
            ledger=self._ledger,
            chain=parts.chain,
            spider=parts.spider,
            callbacks=self._callbacks,
            admission=self._admission,
            codec=parts.codec,
            buffer=parts.buffer,
            stats=self.stats,
            clock=self._world.clock,
            rng=self._world.rng,
        )

    def _make_seeder(self, epoch: str) -> Seeder:
        tools = SeedTools(
            start_requests=self._parts.spider.start_requests,
            admission=self._admission,
            session=self._session,
            ledger=self._ledger,
            options=self._options,
            stats=self.stats,
            run_blocking=self._world.run_blocking,
            pending=lambda: self._pump.answer.pending,
            on_added=self._pump.poke,
        )
        return Seeder(tools, epoch)

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
            beat=lambda: self._beat,
            clock=self._world.clock,
            rng=self._world.rng,
        )

    def _describe(self) -> bytes:
        """What the node says of itself in its heartbeat."""
        counts = self.stats.as_dict()
        beat = {
            **self._parts.place,
            "spider": self._options.spider,
            "elapsed": round(self.stats.elapsed, 1),
            "pages": counts["request_ok"],
            "failed": counts["request_failed"],
            "items": counts["item"],
            "held": self._pump.held,
            "fetching": self._pump.fetching,
            "rate": round(self._rate(), 2),
            "limited_by": self._limited_by(),
            "stopping": self.shutdown.requested,
        }
        return json.dumps(beat).encode()

    # -- numbers

    def _rate(self) -> float:
        samples = list(self._samples)
        if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
            return 0.0
        return (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0])

    def _is_seeding(self) -> bool:
        return self._seeder is not None and self._seeder.active

    def _limited_by(self) -> str:
        pump, answer = self._pump, self._pump.answer
        if self._session.outage_since is not None:
            return "store"
        if pump.saturated or self._parts.buffer.full:
            return "sink"
        if pump.fetching >= self._options.concurrency:
            return "concurrency"
        if answer.pending - pump.held > self._is_seeding():
            return "hosts"
        return "seeding" if self._is_seeding() else "nothing"

    # -- the end

    async def _report(self, done: bool) -> RunReport:
        status = await self._last_status()
        if self._seeder is not None and self._seeder.failed is not None:
            why = f"start_requests failed: {self._seeder.failed!r}; correct it and start again"
            return self._make("failed", ExitCode.CRASH, why, status)
        if not done:
            log.warning("stopped early (%s); start again to go on", self.shutdown.reason)
            return self._make("stopped", ExitCode.STOPPED, self.shutdown.reason, status)
        report = self._make("done", ExitCode.DONE, "the run is done", status)
        if status is not None and report.pages == 0:
            why = f"the run ended without a single good page: {_counted(report)}"
            log.warning("%s", why)
            return self._make("done", ExitCode.NOTHING_DONE, why, status)
        return report

    async def _last_status(self) -> Status | None:
        try:
            async with asyncio.timeout(LAST_CALL_SECONDS if self.shutdown.requested else 10.0):
                return await self._session.status()
        except (TimeoutError, RunLost):
            return None

    def _joined_finished(self, status: Status) -> RunReport:
        report = self._make("joined_finished", ExitCode.NOTHING_DONE, "", status)
        why = (
            f"this run was finished before: {_counted(report)}. Nothing was done now. "
            "Give the next run its own RUN_ID, or start with --fresh"
        )
        log.warning("%s", why)
        return self._make("joined_finished", ExitCode.NOTHING_DONE, why, status)

    def _failed(self, error: BaseException) -> RunReport:
        if isinstance(error, RunLost):
            log.error("%s: this node stops, the run did not end", error)
        else:
            log.error("the node failed", exc_info=error)
        return self._make("failed", ExitCode.CRASH, f"{type(error).__name__}: {error}", None)

    def _make(self, state: str, code: int, why: str, status: Status | None) -> RunReport:
        return RunReport(
            spider=self._options.spider,
            state=state,
            exit_code=int(code),
            why=why,
            elapsed_seconds=self.stats.elapsed,
            counts=self.stats.as_summary_dict(),
            reasons=dict(self.stats.reasons),
            run=status,
            outputs=self._parts.buffer.targets,
            identity=self._parts.identity,
            show_summary=self._parts.show_summary,
        )


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


def _link_rules(options: EngineOptions) -> LinkRules:
    return LinkRules(
        depth_limit=options.depth_limit,
        url_length_limit=options.url_length_limit,
        allowed_domains=options.allowed_domains,
        drop_query_params=options.drop_query_params,
    )


def _counted(report: RunReport) -> str:
    reasons: dict[str, Any] = dict(report.run.reasons) if report.run else {}
    parts = [f"{report.pages} pages", f"{report.run.items if report.run else 0} items"]
    parts += [f"{count} {name}" for name, count in sorted(reasons.items()) if name != "done"]
    return ", ".join(parts)


def _cause(error: BaseException) -> BaseException:
    """The first error of a group; `RunLost` before all others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    lost, rest = error.split(RunLost)
    return _cause((lost or rest or error).exceptions[0])


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
