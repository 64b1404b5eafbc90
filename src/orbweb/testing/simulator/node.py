"""A simulated node: the production engine and keeper on two virtual threads."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from orbweb.download.base import DownloadError, Gate
from orbweb.download.chain import Chain
from orbweb.engine.engine import Engine, EngineParts
from orbweb.engine.options import EngineOptions, TaskOptions, World
from orbweb.frontier.base import HOLD_ID, SEED_ID, Frontier, Held
from orbweb.model import codec
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.testing.simulator.history import Exit
from orbweb.testing.simulator.plan import Plan, TasksFrom
from orbweb.testing.simulator.server import connect
from orbweb.testing.simulator.sink import SinkPipeline
from orbweb.testing.virtual import VirtualLoop

if TYPE_CHECKING:
    from orbweb.testing.simulator.site import Page
    from orbweb.testing.simulator.world import Simulation

GRACEFUL_SECONDS = 4.0
MAX_HOLD_SECONDS = 90.0
WATCHDOG_SECONDS = 8.0


class Node:
    """One process. `alive` until it exits or is killed; nothing of it runs afterwards."""

    def __init__(self, simulation: Simulation, slot: int, incarnation: int) -> None:
        self.simulation = simulation
        self.timeline = simulation.timeline
        self.slot = slot
        self.name = f"n{slot}.{incarnation}"
        self.alive = True
        self.cut_until_ms = 0
        self.skew_ms = simulation.mutant.skew_ms(self.timeline.rng)
        self.stop_asked_ms: int | None = None
        self.disturbed_ms = 0
        """When the node was last stopped, wedged or cut off; until then it owes no quick exit."""
        self.loop = VirtualLoop(self.timeline, f"{self.name} engine")
        self.keeper_loop = VirtualLoop(self.timeline, f"{self.name} keeper")
        self.joined_done = False
        self.engine = Engine(self._parts())
        self.loop.create_task(self._main())

    def _parts(self) -> EngineParts:
        simulation, plan = self.simulation, self.simulation.plan
        connection = self._connection()
        rng = random.Random(self.timeline.rng.random())
        pipeline = SinkPipeline(self, simulation.sink)
        tasks = simulation.task_spider(self) if plan.tasks else None
        spider = tasks or Spider(self)
        buffer = simulation.mutant.buffer(
            {"sink": pipeline}, rng=rng, run_blocking=self._run_blocking
        )
        return EngineParts(
            frontier=connection,
            control=connection,
            spider=spider,
            spider_base=Hooks,
            chain=Chain(Downloader(self)),
            buffer=buffer,
            codec=codec,
            options=EngineOptions(
                node=self.name,
                spider="simulation",
                run=plan.config,
                concurrency=plan.concurrency,
                max_held=plan.max_held,
                idle_poll_seconds=1.0,
                watchdog_seconds=WATCHDOG_SECONDS,
                max_hold_seconds=MAX_HOLD_SECONDS,
                graceful_seconds=GRACEFUL_SECONDS,
                seed_batch=3,
                seed_pending_limit=60 if tasks else 0,
                tasks=_task_options(plan) if tasks else None,
            ),
            world=World(
                clock=self.timeline.seconds,
                rng=rng,
                run_blocking=self._run_blocking,
                background=KeeperLoop(self),
                connect=self._connect,
            ),
            tasks=tasks,
        )

    async def _main(self) -> None:
        report = await self.engine.run()
        # A node that comes at the end has the source of tasks asked once more.
        idle = {HOLD_ID, SEED_ID} if self.simulation.plan.tasks else {HOLD_ID}
        facts = Exit(
            report.exit_code,
            report.state,
            len(self.simulation.server.pending() - idle),
            self.joined_done,
        )
        self.simulation.log("exit", self.name, report.why, facts)
        stopped = report.state == "stopped"
        self.simulation.on_exit(self, report.exit_code, stopped=stopped)

    @asynccontextmanager
    async def _connect(self, epoch: str) -> AsyncIterator[Frontier]:
        yield self._connection()

    def _connection(self) -> Any:
        simulation = self.simulation
        mutant, shards = simulation.mutant, simulation.plan.shards
        return connect(simulation.network, self, mutant.frontier, mutant.sharded, shards)

    async def _run_blocking(self, func: Callable[..., Any], /, *args: Any) -> Any:
        """A thread of the pool takes a moment, then does its work at one instant."""
        await asyncio.sleep(self.timeline.rng.choice([0.001, 0.01, 0.1]))
        return func(*args)

    # -- what happens to it

    def end(self) -> None:
        """Take the process away. Its coroutines are kept until the simulation is over."""
        self.alive = False
        self.loop.abandon()
        self.keeper_loop.abandon()

    def pause(self, milliseconds: int) -> None:
        """SIGSTOP, and SIGCONT after a time."""
        self.wedge(milliseconds)
        self.keeper_loop.paused_until_ms = self.loop.paused_until_ms

    def wedge(self, milliseconds: int) -> None:
        """The event loop of the engine stands still; the keeper's does not."""
        until = self.timeline.now_ms + milliseconds
        self.loop.paused_until_ms = max(self.loop.paused_until_ms, until)
        self.disturbed_ms = self.loop.paused_until_ms

    def cut(self, milliseconds: int) -> None:
        """No packet reaches the store or comes back for a time."""
        self.cut_until_ms = self.timeline.now_ms + milliseconds

    def terminate(self) -> None:
        """SIGTERM."""
        if self.stop_asked_ms is None:
            self.stop_asked_ms = self.timeline.now_ms
        self.loop.call_soon_threadsafe(self.engine.shutdown.on_signal, signal.SIGTERM)


def _task_options(plan: Plan) -> TaskOptions:
    return TaskOptions(
        list_key="tasks" if plan.tasks is TasksFrom.LIST else "",
        poll_seconds=1.0,
        batch=3,
        exhaust_polls=2,
        shares_dedup=plan.shares_dedup,
    )


class KeeperLoop:
    """Runs the keeper on the second virtual thread of a node. See `Background`."""

    def __init__(self, node: Node) -> None:
        self._loop = node.keeper_loop
        self._task: asyncio.Task[None] | None = None

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = self._loop.create_task(run())

    async def stop(self) -> None:
        if self._task is None:
            return
        self._loop.call_soon_threadsafe(self._task.cancel)
        for _ in range(20):
            if self._task.done():
                return
            await asyncio.sleep(0.05)


class Downloader:
    """Fetches pages of the simulated site. See `orbweb.download.base.Downloader`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._leases: dict[Any, Held] = {}

    async def fetch(self, request: Request, gate: Gate | None = None) -> Response:
        if gate is not None:
            await gate.enter()
            gate.sent()
        node = self._node
        page = node.simulation.page_of(request.url)
        answer = asyncio.get_running_loop().create_future()
        node.simulation.visit(node, page, self._lease_of(request), answer)
        visit = await answer
        if visit <= page.flaky:
            raise DownloadError(Reason.CONNECTION, f"{request.url}: the site hung up")
        headers = {"visit": str(visit)}
        if page.leads_to:
            headers["location"] = node.simulation.site.pages[page.leads_to].url
            return Response(request.url, 302, headers=headers, request=request)
        return Response(request.url, headers=headers, request=request)

    def _lease_of(self, request: Request) -> Held:
        """The lease under which the running task works: a redirect's own request has none."""
        task = asyncio.current_task()
        if request.lease_token:
            self._leases[task] = Held(request.id, request.lease_token)
        return self._leases[task]

    async def close(self) -> None:
        return


class Hooks:
    """A spider's hooks that do nothing."""

    def download_midware(self, request: Request) -> None:
        return

    def validate(self, request: Request, response: Response) -> None:
        return

    def exception_request(
        self, request: Request, response: Response | None, exc: Exception
    ) -> None:
        return

    def failed_request(self, request: Request, response: Response | None) -> None:
        return

    def start_callback(self) -> None:
        return

    def end_callback(self) -> None:
        return


class Spider(Hooks):
    """Crawls the simulated site; its seeds come slowly."""

    name = "simulation"

    def __init__(self, node: Node) -> None:
        self._node = node

    async def start_requests(self) -> AsyncIterator[Request]:
        simulation = self._node.simulation
        site, rng = simulation.site, self._node.timeline.rng
        fails_at = simulation.next_seed_error(len(site.seeds))
        for position, name in enumerate(site.seeds):
            await asyncio.sleep(rng.choice([0.0, 0.05, 0.4]))
            if position == fails_at:
                raise OSError("the list of seeds is not readable now")
            yield self._request(site.pages[name], twin=position in site.twin_seeds)

    async def parse(self, request: Request, response: Response) -> AsyncIterator[Any]:
        page = self._node.simulation.page_of(response.url)
        if page.stuck and response.headers["visit"] == "1":
            await asyncio.get_running_loop().create_future()
        if self._node.timeline.rng.random() < 0.3:
            await asyncio.sleep(0.02)
        for output in self._outputs(page):
            yield output

    def parse_plain(self, request: Request, response: Response) -> list[Any]:
        return list(self._outputs(self._node.simulation.page_of(response.url)))

    def _outputs(self, page: Page) -> Any:
        for number in range(page.items):
            yield {"page": page.name, "number": number}
        if page.bad_item:
            yield {"page": page.name, "number": -1}
        pages = self._node.simulation.site.pages
        for link in page.followed:
            yield self._request(pages[link])
        if page.raises:
            raise LookupError("no such element")
        for link in page.twins:
            yield self._request(pages[link], twin=True)

    def _request(self, page: Page, *, twin: bool = False) -> Request:
        callback = "parse_plain" if page.plain_def and not page.raises and not page.stuck else None
        return Request(page.url, callback=callback, dont_filter=twin)
