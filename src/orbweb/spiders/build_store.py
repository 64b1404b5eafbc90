"""A frontier and all that belongs to it: in this process, or in a store that nodes share."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orbweb.download.robots import (
    MemoryRobotsStore,
    RobotsStore,
)
from orbweb.engine.options import Codec
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import Frontier, RunControl, Tunable
from orbweb.frontier.configbook import ConfigBook
from orbweb.frontier.items import ItemBook, MemoryItemBook, RunCounts, ValkeyItemBook
from orbweb.frontier.jobbook import JobBook
from orbweb.frontier.local_seen import LocalSeenFrontier
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.memory_seen import Seen
from orbweb.frontier.memory_state import MemoryShard
from orbweb.frontier.robots import ValkeyRobotsStore
from orbweb.frontier.runbook import RunBook
from orbweb.frontier.servers import Servers
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.frontier.spread import shared_frontier
from orbweb.frontier.totals import RunTotals
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.log import get_logger
from orbweb.settings import Settings
from orbweb.spiders.base import BaseSpider
from orbweb.spiders.build_live import begin_live, live_node, say_replaced, tell_switches
from orbweb.spiders.build_seen import (
    LOCAL_FILTERS,
    dedup_scope,
    fill_watch,
    memory_watch,
    say_scope,
    seen_config,
)
from orbweb.spiders.build_servers import open_servers, server_warnings
from orbweb.spiders.codecs import ObjectCodec, WireCodec
from orbweb.spiders.distributed import Spider
from orbweb.spiders.live import LiveNode
from orbweb.spiders.start import Start

COLLECT_KEYS = 200
"""Keys of past runs that are unlinked in one step."""


log = get_logger("orbweb.engine")


@dataclass(frozen=True, slots=True)
class Store:
    """A frontier, and what belongs to it."""

    frontier: Frontier
    control: RunControl
    tunable: Tunable
    robots: RobotsStore
    codec: Codec
    connect: Callable[[str], Any]
    items: ItemBook
    counts: RunCounts
    identity: Mapping[str, str]
    url: str = ""
    servers: Servers | None = None
    revive: Callable[[], Any] | None = None
    collect: Callable[[], Awaitable[int]] | None = None
    watch: Callable[[], Awaitable[None]] | None = None
    """Looks whether the filter of seen requests fills up."""
    totals: RunTotals | None = None
    """What nodes have counted; None without a store."""
    book: JobBook | None = None
    """What nodes tell others of the job; None without a store."""
    runs: RunBook | None = None
    """What is kept of the job's runs; None without a store."""
    epoch: Callable[[], str] = str
    """The incarnation that this node works on; empty before it has begun."""


async def open_store(
    spider: BaseSpider, settings: Settings, start: Start, stack: AsyncExitStack, node: str
) -> tuple[Store, LiveNode]:
    """The store that this spider works on, and the settings as they hold there.

    Raises `ConfigError`, `StoreUnsafe` and `StoreUnavailable`.
    """
    if isinstance(spider, Spider):
        return await _open_shared(spider, settings, start, stack, node)
    live = live_node(spider, settings, start, node)
    await begin_live(live, stack)
    settings = live.settings
    shard = MemoryShard(wall_ms)
    frontier = MemoryFrontier(shard, spider.name)

    items = MemoryItemBook()

    @asynccontextmanager
    async def same(epoch: str) -> AsyncIterator[Frontier]:
        yield frontier

    store = Store(
        frontier=frontier,
        control=frontier,
        tunable=frontier,
        robots=MemoryRobotsStore(time.monotonic),
        codec=ObjectCodec(),
        connect=same,
        items=items,
        counts=items,
        identity={},
        watch=memory_watch(settings, frontier),
    )
    return store, live


async def _open_shared(
    spider: Spider, settings: Settings, start: Start, stack: AsyncExitStack, node: str
) -> tuple[Store, LiveNode]:
    servers, url, revive = await open_servers(settings, start.directory or Path.cwd(), stack)
    prefix, job, run = settings["REDIS_KEY_PREFIX"], spider.redis_key, settings["RUN_ID"]
    shards = settings["FRONTIER_SHARDS"]
    for warning in await server_warnings(servers):
        log.warning("%s", warning)
    values = ConfigBook(servers.of_shard(0), prefix)
    live = live_node(spider, settings, start, node, values)
    await begin_live(live, stack)
    own, settings = settings, live.settings
    await tell_switches(values, spider)
    await say_replaced(servers.of_shard(0), spider, own, settings)
    frontier = _open_frontier(settings, servers, job)
    say_scope(spider, settings)

    shared = dedup_scope(settings) == "spider"
    items = ValkeyItemBook(servers.of_shard(0), prefix, job, run, shared=shared)

    @asynccontextmanager
    async def second(epoch: str) -> AsyncIterator[Frontier]:
        own = servers.again()
        try:
            attached = shared_frontier(own, prefix=prefix, job=job, run=run, shards=shards)
            attached.attach(epoch)
            yield attached
        finally:
            await own.aclose()

    store = Store(
        frontier=frontier,
        control=frontier,
        tunable=frontier,
        robots=ValkeyRobotsStore(servers.of_shard(0), prefix),
        codec=WireCodec(),
        connect=second,
        items=items,
        counts=items,
        identity={
            "run_id": run,
            "namespace": f"{prefix}:{job}:run:{run}" if run else f"{prefix}:{job}",
            "redis_key": job,
        },
        url=url,
        servers=servers,
        revive=revive,
        collect=_collector(Admin(servers, prefix, shards=shards)),
        watch=fill_watch(settings, servers, job, frontier),
        totals=RunTotals(servers.of_shard(0), prefix, job, run),
        book=JobBook(servers.of_shard(0), prefix, job),
        runs=RunBook(servers.of_shard(0), prefix, job),
        epoch=lambda: items.epoch,
    )
    return store, live


def _open_frontier(
    settings: Settings, servers: Servers, job: str
) -> ValkeyFrontier | ShardedFrontier:
    prefix, run, shards = (
        settings[name] for name in ("REDIS_KEY_PREFIX", "RUN_ID", "FRONTIER_SHARDS")
    )
    chosen = settings["DEDUP_FILTER"]
    if chosen not in LOCAL_FILTERS:
        return shared_frontier(servers, prefix=prefix, job=job, run=run, shards=shards)
    if shards > 1:
        raise ConfigError(
            f"DEDUP_FILTER is {chosen}, which each process keeps for itself; with FRONTIER_SHARDS "
            f"= {shards} it must be one that the store keeps, such as exact or compact"
        )
    log.warning(
        "DEDUP_FILTER is %s: each process remembers for itself which pages it has seen, so each "
        "crawls all of them, and a restart begins anew",
        chosen,
    )
    seen = Seen(replace(seen_config(settings), kind=LOCAL_FILTERS[chosen]))
    client = servers.of_shard(0)
    return LocalSeenFrontier(client, prefix=prefix, job=job, run=run, seen=seen, wall_ms=wall_ms)


def _collector(admin: Admin) -> Callable[[], Awaitable[int]]:
    async def collect() -> int:
        removed, unfinished = await admin.collect(COLLECT_KEYS)
        for job, run, pending in unfinished:
            log.warning(
                "run %s of %s was given up with %d requests pending: RUN_TTL has passed since its "
                "last sign of life",
                run,
                job,
                pending,
            )
        return removed

    return collect


def wall_ms() -> int:
    """This machine's wall clock, in ms."""
    return int(time.time() * 1000)
