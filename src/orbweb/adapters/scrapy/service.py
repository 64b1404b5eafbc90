"""What runs in a room's own loop: the courier, and beside it renewals and chores."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from orbweb.adapters.scrapy.config import RoomConfig
from orbweb.adapters.scrapy.courier import Courier, Crawl, End
from orbweb.adapters.scrapy.join import join_run, leave_run
from orbweb.adapters.scrapy.outbox import Keep, Note, Outbox
from orbweb.adapters.scrapy.seeding import SeedEnd, Seeding
from orbweb.adapters.scrapy.starts import WAIT_SECONDS, Starts, is_refused_key, not_kept
from orbweb.adapters.scrapy.turns import Turns
from orbweb.engine.keeper import Keeper, KeeperOptions
from orbweb.engine.ledger import Ledger
from orbweb.engine.session import Session
from orbweb.errors import RunLost, StoreUnavailable
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import Held, Opened
from orbweb.frontier.embedded import EmbeddedStore
from orbweb.frontier.lost import tell_lost
from orbweb.frontier.notes import NoteBook
from orbweb.frontier.server import connect
from orbweb.frontier.servers import Servers, judge_all, reach
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.log import get_logger

WATCHDOG_SECONDS = 300.0
MAX_HOLD_SECONDS = 6 * 3600.0

IDLE_BEAT_SECONDS = 20.0
"""How often a worker that holds nothing says that it lives."""

COLLECT_BUSY_SECONDS = 0.5
COLLECT_IDLE_SECONDS = 120.0
"""Pauses between two pieces of past runs that are cleared away, and when there was nothing."""

COLLECT_KEYS = 200
LEAVE_SECONDS = 1.0
BLOCKING_MARGIN_SECONDS = 15.0

log = get_logger("orbweb.scrapy")


class Owner(Crawl, Protocol):
    """The crawl that is served. All but `pulse` and `beat` is called in the crawl's own loop."""

    def on_open(self, opened: Opened) -> None:
        """The run was joined."""

    def on_lost(self, held: Sequence[Held]) -> None:
        """Other workers may hold these now."""

    def on_overdue(self, held: Sequence[Held]) -> None:
        """These have been worked on for longer than anything should take."""

    def on_outage(self) -> None:
        """The store did not answer; it may have lost its last writes."""

    def on_beat(self) -> None:
        """Called at each sign of life: the crawl's loop moves."""

    def pulse(self) -> int:
        """How often `on_beat` was called."""

    def beat(self) -> bytes:
        """What the worker says of itself."""


class Service:
    """One worker's side of the conversation with the store, in one event loop."""

    def __init__(
        self,
        owner: Owner,
        config: RoomConfig,
        ledger: Ledger,
        node: str,
        notes: deque[Note],
        post: Callable[..., None],
    ) -> None:
        """`post(function, *args)` calls a function in the crawl's loop, after all posted before."""
        self.courier: Courier | None = None
        """There once the run was joined."""
        self.seeding: Seeding | None = None
        self.turns: Turns | None = None
        self._owner = owner
        self._config = config
        self._ledger = ledger
        self._node = node
        self._notes = notes
        self._post = post
        self._rng = random.Random()
        self._url = config.url
        self._chores: list[asyncio.Task[None]] = []
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Join the run, serve the crawl until the courier is closed, and leave.

        Raises `ConfigError`, `StoreUnsafe` and `StoreUnavailable` when the run cannot be joined,
        `RunLost` when it is gone.
        """
        config = self._config
        async with AsyncExitStack() as stack:
            servers = await self._reach(stack)
            frontier = ValkeyFrontier(
                servers.of_shard(0),
                prefix=config.prefix,
                job=config.job,
                run=config.run_id,
                replicated=servers.several,
            )
            session = Session(
                frontier,
                frontier,
                node=self._node,
                lease_ms=config.run.lease_ms,
                clock=time.monotonic,
                rng=self._rng,
                revive=self._note_outage,
            )
            admin = Admin(servers, config.prefix)
            opened = await join_run(session, frontier, admin, config)
            try:
                await self._serve(session, frontier, admin, opened)
            except* RunLost:
                await self._tell_lost(servers, admin, opened)
                raise
            with suppress(TimeoutError, StoreUnavailable, RedisError, OSError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await leave_run(frontier, self._node)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something beside the courier, until it closes."""
        if self._group is None:
            coroutine.close()
        else:
            task = self._group.create_task(coroutine)
            self._chores.append(task)
            task.add_done_callback(self._chores.remove)

    async def _tell_lost(self, servers: Servers, admin: Admin, opened: Opened) -> None:
        """A run that another has taken the place of was flushed, or finished, by a worker."""
        config = self._config
        with suppress(StoreUnavailable, RunLost):
            if await admin.look(config.job, config.run_id) is None:
                notes = NoteBook(servers.of_shard(0), config.prefix)
                await tell_lost(admin, notes, config.job, config.run_id, opened.epoch)

    async def _note_outage(self) -> None:
        self._post(self._owner.on_outage)

    async def _reach(self, stack: AsyncExitStack) -> Servers:
        config = self._config
        if config.embedded:
            embedded = EmbeddedStore(Path.cwd())
            self._url = await asyncio.to_thread(embedded.__enter__)
            stack.callback(embedded.release)
        servers = await reach(self._url, config.prefix, config.store_timeout)
        stack.push_async_callback(servers.aclose)
        for warning in judge_all(await servers.facts()):
            log.warning("%s", warning)
        client = servers.of_shard(0)
        if isinstance(client, Redis):
            client.single_connection_client = True  # all that is said takes turns on one
        return servers

    async def _serve(
        self, session: Session, frontier: ValkeyFrontier, admin: Admin, opened: Opened
    ) -> None:
        config, owner = self._config, self._owner
        self.seeding = Seeding(session, self._ledger, lease_seconds=config.lease_seconds)
        if config.politeness:
            self.turns = Turns(session, self._ledger, clock=time.monotonic)
        outbox = Outbox(
            self._notes,
            session,
            self._ledger,
            self.seeding,
            keep=lambda keep: session.repeat(lambda: _keep(frontier, keep)),
            on_acked=lambda acks, kept: self._post(owner.on_acked, acks, kept),
        )
        starts = Starts(session, frontier, config.source) if config.source is not None else None
        courier = Courier(
            session,
            self._ledger,
            outbox,
            starts,
            owner,
            self._post,
            End(config.idle_before_close, config.run.keep_alive),
            clock=time.monotonic,
        )
        async with asyncio.TaskGroup() as self._group:
            self.spawn(self._renew(frontier))
            self.spawn(self._collect(admin))
            if starts is not None:
                self.spawn(self._watch(starts, courier))
                self.spawn(self._end_seeding(self.seeding))
            if self.turns is not None:
                self.spawn(self.turns.run())
            self.courier = courier
            self._post(owner.on_open, opened)
            await courier.run()
            await self.seeding.release()
            for chore in list(self._chores):
                chore.cancel()
        self._group = None

    async def _renew(self, frontier: ValkeyFrontier) -> None:
        config = self._config
        keeper = Keeper(
            self._ledger,
            _KeeperLink(self._owner, self._post),
            KeeperOptions(
                node=self._node,
                lease_ms=config.run.lease_ms,
                interval_seconds=config.beat_seconds,
                watchdog_seconds=WATCHDOG_SECONDS,
                max_hold_seconds=MAX_HOLD_SECONDS,
            ),
            pulse=self._owner.pulse,
            beat=self._owner.beat,
            clock=time.monotonic,
            rng=self._rng,
        )
        idle = min(IDLE_BEAT_SECONDS, config.lease_seconds / 3)
        while True:
            pause = config.beat_seconds if len(self._ledger) else idle
            self._post(self._owner.on_beat)
            try:
                await keeper.beat(frontier)
            except StoreUnavailable as error:
                log.debug("renewal waits for the store: %s", error)
                pause = min(pause, 1.0)
            await asyncio.sleep(pause * self._rng.uniform(0.9, 1.0))

    async def _collect(self, admin: Admin) -> None:
        """Clear away what past runs have left, a piece at a time."""
        while True:
            await asyncio.sleep(COLLECT_BUSY_SECONDS)
            cleared = 1
            while cleared:
                cleared = 0
                with suppress(StoreUnavailable):
                    cleared, _ = await admin.collect(COLLECT_KEYS)
                await asyncio.sleep(COLLECT_BUSY_SECONDS)
            await asyncio.sleep(COLLECT_IDLE_SECONDS * self._rng.uniform(0.5, 1.0))

    async def _watch(self, starts: Starts, courier: Courier) -> None:
        async with _blocking(self._url) as client:
            await starts.watch(client, courier.nudge)

    async def _end_seeding(self, seeding: Seeding) -> None:
        """Start entries are what the run begins with: nobody's `start()` is waited for."""
        granted = asyncio.get_running_loop().create_future()
        await seeding.wait(granted.set_result)
        if granted.result():
            await seeding.push([SeedEnd(done=True)])


class _KeeperLink:
    """Passes what the keeper says on to the crawl's loop. See `KeeperEvents`."""

    def __init__(self, owner: Owner, post: Callable[..., None]) -> None:
        self._owner = owner
        self._post = post

    def on_lost(self, held: Sequence[Held]) -> None:
        self._post(self._owner.on_lost, held)

    def on_overdue(self, held: Sequence[Held]) -> None:
        self._post(self._owner.on_overdue, held)

    def on_stop(self) -> None:
        self._post(self._owner.on_stop, "an operator asked the run to stop")


async def _keep(frontier: ValkeyFrontier, keep: Keep) -> None:
    try:
        await frontier.caller.execute("RPUSH", keep.key, *keep.values)
    except ResponseError as error:
        if not is_refused_key(error):
            raise StoreUnavailable(f"{keep.key}: {error}") from error
        log.warning("%s", not_kept(keep.key, len(keep.values), error))
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"{keep.key}: {error}") from error


@asynccontextmanager
async def _blocking(url: str) -> AsyncIterator[Redis]:
    """A client whose calls may take as long as an entry is waited for."""
    client = connect(url, WAIT_SECONDS + BLOCKING_MARGIN_SECONDS)
    try:
        yield client
    finally:
        await client.aclose()
