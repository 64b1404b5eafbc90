"""Assembly: from a spider and its settings to a running engine. Nothing else builds these."""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import Redis

from orbweb.config.last_good import LastGood
from orbweb.config.resolve import Identity
from orbweb.config.sources import config_sources
from orbweb.download.chain import Chain
from orbweb.download.http import BodyLimits, HttpDownloader
from orbweb.download.middlewares import load_middlewares
from orbweb.download.proxied import ProxiedDownloader
from orbweb.download.proxies import ProxyPool
from orbweb.download.robots import (
    ROBOTS_MAX_BYTES,
    MemoryRobotsStore,
    Robots,
    RobotsOptions,
    RobotsStore,
)
from orbweb.download.send import Sender
from orbweb.engine.callbacks import Callbacks
from orbweb.engine.engine import Engine, EngineParts
from orbweb.engine.knobs import held_for
from orbweb.engine.options import Codec, EngineOptions, TaskOptions, World
from orbweb.engine.report import RunReport
from orbweb.engine.shutdown import hold_signals, install_signals
from orbweb.engine.threads import CallbackThreads, KeeperTask, KeeperThread, loop_factory
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import Frontier, RunConfig, RunControl, Tunable
from orbweb.frontier.configbook import ConfigBook
from orbweb.frontier.embedded import FOLDER, EmbeddedStore
from orbweb.frontier.items import ItemBook, MemoryItemBook, RunCounts, ValkeyItemBook
from orbweb.frontier.jobbook import JobBook
from orbweb.frontier.local_seen import LocalSeenFrontier
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.memory_seen import Seen
from orbweb.frontier.memory_state import MemoryShard
from orbweb.frontier.robots import ValkeyRobotsStore
from orbweb.frontier.runbook import RunBook
from orbweb.frontier.runlook import RunLook
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.frontier.seen_state import FillWatch, LocalFillWatch
from orbweb.frontier.servers import Servers, judge_all, reach
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.frontier.spread import shared_frontier
from orbweb.frontier.totals import RunTotals
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.log import get_logger, set_levels
from orbweb.metrics.node import Speaker
from orbweb.model.rate import parse_rate
from orbweb.monitor.counts import added_up
from orbweb.monitor.crawl_line import CrawlLog
from orbweb.pipelines.buffer import ItemBuffer
from orbweb.settings import Settings, load_settings
from orbweb.settings.log import configure_log, logger_levels
from orbweb.spiders.account import Account, CountingLog, run_made
from orbweb.spiders.base import BaseParser, BaseSpider
from orbweb.spiders.build_metrics import tell_metrics, tracer, vitals
from orbweb.spiders.codecs import ObjectCodec, WireCodec
from orbweb.spiders.crawl_log import crawl_log
from orbweb.spiders.distributed import Spider
from orbweb.spiders.judge import judged, quality_rules
from orbweb.spiders.live import LiveNode, Now, Part
from orbweb.spiders.live_parts import (
    Download,
    download_part,
    engine_part,
    http_options,
    log_part,
    redirect_rules,
    status_policy,
    store_part,
)
from orbweb.spiders.live_store import StoreSource
from orbweb.spiders.load import load_pipelines
from orbweb.spiders.progress import engine_look, on_terminal, showing
from orbweb.spiders.proxies import build_proxies, proxies_part
from orbweb.spiders.rules import allowed_domains, robots_agent, tell_rules
from orbweb.spiders.task import TaskSpider
from orbweb.spiders.watching import say_without_store, watching

AIR_PENDING = 20_000
"""Seeding of an `AirSpider` pauses while more requests than this wait in memory."""

TASK_PENDING = 10_000
"""No tasks are taken while more requests than this are pending."""

COLLECT_KEYS = 200
"""Keys of past runs that are unlinked in one step."""

LOCAL_FILTERS = {"memory": SeenKind.BLOOM, "lite": SeenKind.EXACT}
"""Filters of one process, and what they are there."""

log = get_logger("orbweb.engine")


@dataclass(frozen=True, slots=True)
class Start:
    """How a run is started from the command line. Everything is optional."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that win over all others; text is read as in the environment."""
    directory: Path | None = None
    """Where the project file and the embedded store are; default: the working directory."""
    stop_after_pages: int = 0
    on_engine: Callable[[Engine], None] | None = None
    """Called on the engine's loop before the run begins."""
    on_new_run: Callable[[], None] | None = None
    """Called when this node has made the run."""
    live: bool | None = None
    """A live line on stderr; None = when that is a terminal."""
    monitor: bool = False
    """A `BatchSpider` is also the master of its batches."""
    once: bool = False
    """With `monitor`: end with the batch that is open or due now."""
    go_on: str = ""
    """How a run that has stopped is gone on with, where that is not by its id."""
    watch: bool = True
    """Take part in the watch over alarms; False where the caller does."""


def settings_of(spider: BaseSpider, start: Start | None = None) -> Settings:
    """The settings that this instance runs with. Raises `ConfigError`."""
    start = start or Start()
    return load_settings(
        spider_settings=spider.class_settings(),
        spider_name=type(spider).__name__,
        arguments=spider.setting_arguments,
        overrides=start.overrides,
        directory=start.directory or Path.cwd(),
        environ=os.environ,
    )


def run_spider(spider: BaseSpider, start: Start | None = None) -> RunReport:
    """Run a spider to its end on an event loop of its own; blocks.

    Raises `ConfigError`, `StoreUnsafe` and `StoreUnavailable` when the crawl cannot begin.
    """
    start = start or Start()
    settings = settings_of(spider, start)
    configure_log(settings)
    for note in settings.notes:
        log.warning("%s", note)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(crawl(spider, settings, start))


async def crawl(spider: BaseSpider, settings: Settings, start: Start) -> RunReport:
    """Work on one run to its end, on the running loop. Raises as `run_spider` does."""
    rules = quality_rules(settings)
    async with AsyncExitStack() as stack:
        stack.callback(
            hold_signals(spider.stop, settings["GRACEFUL_TIMEOUT"], lambda: not spider.is_bound)
        )
        node = uuid.uuid4().hex
        store, live = await _open_store(spider, settings, start, stack, node)
        settings = live.settings
        if store.book is not None:
            await tell_rules(store.book, settings, spider)
        lines = await stack.enter_async_context(
            crawl_log(settings, start.directory or Path.cwd(), spider.name, node, store.book)
        )
        counting = CountingLog(lines)
        account = Account(store.runs, run_made(spider, settings), counting.tally)
        tell = partial(_tell, account, store, node)
        engine = _build_engine(spider, live, start, store, stack, node, counting, tell)
        uninstall = install_signals(engine.shutdown, live.reload)
        stack.callback(uninstall)
        spider.bind(engine)
        await tell_metrics(engine, settings, _speaker(store, settings, node, spider), stack)
        if start.on_engine is not None:
            start.on_engine(engine)
        await stack.enter_async_context(
            showing(
                engine_look(engine, store.control.status),
                live=on_terminal() if start.live is None else start.live,
                interval_seconds=settings["LOGSTATS_INTERVAL"],
            )
        )
        if store.servers is None:
            say_without_store(settings)
        servers = store.servers if start.watch else None
        watch = await stack.enter_async_context(watching(lambda: live.settings, servers))
        report = await engine.run()
        if store.watch is not None:
            with suppress(StoreUnavailable):
                await store.watch()
        await tell()
        report = await account.end(store.epoch(), await judged(report, store.counts, rules))
        if watch is not None:
            await watch.end(report)
        return report


# -- a trial


@dataclass(frozen=True, slots=True)
class TrialParts:
    """How a spider fetches and parses, as in a run, but without one."""

    chain: Chain
    callbacks: Callbacks
    codec: Codec
    options: EngineOptions


@asynccontextmanager
async def live_settings(
    spider: BaseSpider, settings: Settings, book: ConfigBook | None
) -> AsyncIterator[Settings]:
    """The settings as a node of the spider has them when it begins now, live values among them.

    `book`: the store's live values; None without a store. Acknowledges nothing.
    """
    live = _live_node(spider, settings, Start(), uuid.uuid4().hex, book)
    try:
        await live.begin()
        yield live.settings
    finally:
        await live.close()


@asynccontextmanager
async def trial_parts(
    spider: BaseSpider, settings: Settings, robots: RobotsStore
) -> AsyncIterator[TrialParts]:
    """Put the parts together. Raises `ConfigError`."""
    threads = CallbackThreads(settings["CALLBACK_THREADS"])
    node = uuid.uuid4().hex
    try:
        options = _engine_options(spider, settings, Start(), node)
        proxies = build_proxies(settings, Path.cwd())
        chain = _build_download(settings, robots, node, random.Random(), threads, proxies).chain
        codec = WireCodec() if isinstance(spider, Spider) else ObjectCodec()
        try:
            yield TrialParts(chain, Callbacks(spider, threads.run, BaseParser), codec, options)
        finally:
            await chain.close()
    finally:
        threads.close()


def _speaker(store: _Store, settings: Settings, node: str, spider: BaseSpider) -> Speaker:
    return Speaker(node, store.identity.get("redis_key", spider.name), settings["RUN_ID"])


# -- the store


@dataclass(frozen=True, slots=True)
class _Store:
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


async def _open_store(
    spider: BaseSpider, settings: Settings, start: Start, stack: AsyncExitStack, node: str
) -> tuple[_Store, LiveNode]:
    if isinstance(spider, Spider):
        return await _open_shared(spider, settings, start, stack, node)
    live = _live_node(spider, settings, start, node)
    await _begin(live, stack)
    settings = live.settings
    shard = MemoryShard(_wall_ms)
    frontier = MemoryFrontier(shard, spider.name)

    items = MemoryItemBook()

    @asynccontextmanager
    async def same(epoch: str) -> AsyncIterator[Frontier]:
        yield frontier

    store = _Store(
        frontier=frontier,
        control=frontier,
        tunable=frontier,
        robots=MemoryRobotsStore(time.monotonic),
        codec=ObjectCodec(),
        connect=same,
        items=items,
        counts=items,
        identity={},
        watch=_memory_watch(settings, frontier),
    )
    return store, live


async def _open_shared(
    spider: Spider, settings: Settings, start: Start, stack: AsyncExitStack, node: str
) -> tuple[_Store, LiveNode]:
    servers, url, revive = await open_servers(settings, start.directory or Path.cwd(), stack)
    prefix, job, run = settings["REDIS_KEY_PREFIX"], spider.redis_key, settings["RUN_ID"]
    shards = settings["FRONTIER_SHARDS"]
    for warning in await _warnings(servers):
        log.warning("%s", warning)
    values = ConfigBook(servers.of_shard(0), prefix)
    live = _live_node(spider, settings, start, node, values)
    await _begin(live, stack)
    settings = live.settings
    await _tell_switches(values, spider)
    await _say_replaced(servers.of_shard(0), spider, settings)
    frontier = _shared_frontier(settings, servers, job)
    _say_scope(spider, settings)

    shared = _dedup_scope(settings) == "spider"
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

    store = _Store(
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
        watch=_fill_watch(settings, servers, job, frontier),
        totals=RunTotals(servers.of_shard(0), prefix, job, run),
        book=JobBook(servers.of_shard(0), prefix, job),
        runs=RunBook(servers.of_shard(0), prefix, job),
        epoch=lambda: items.epoch,
    )
    return store, live


def _live_node(
    spider: BaseSpider,
    settings: Settings,
    start: Start,
    node: str,
    book: ConfigBook | None = None,
) -> LiveNode:
    """What lets settings change in this node while it runs."""
    directory = start.directory or Path.cwd()
    job = spider.redis_key if isinstance(spider, Spider) else spider.name
    return LiveNode(
        settings,
        Identity(job, settings["RUN_ID"], node, socket.gethostname()),
        [*config_sources(settings, directory), *([StoreSource(book)] if book is not None else [])],
        LastGood(directory / FOLDER),
        view=spider.live_view,
        book=book,
        reload=lambda: settings_of(spider, start),
        pid=os.getpid(),
    )


async def _begin(live: LiveNode, stack: AsyncExitStack) -> None:
    """Let the live values hold that are there already, before anything is built of settings."""
    stack.push_async_callback(live.close)
    await live.begin()
    set_levels(live.settings["LOG_LEVEL"], logger_levels(live.settings["LOG_LEVELS"]))


async def _tell_switches(book: ConfigBook, spider: Spider) -> None:
    """Tell which live values of its own the job has. A store that is away is no reason to wait."""
    declared = spider.live_view.declared
    try:
        await book.keep_switches(spider.redis_key, msgspec.json.encode(declared))
    except StoreUnavailable as error:
        log.debug("the job's live values are not told: %s", error)


async def _say_replaced(client: Redis, spider: Spider, settings: Settings) -> None:
    """Warn when this node's settings replace for all nodes what a running run is fetched by."""
    look = RunLook(client, settings["REDIS_KEY_PREFIX"], spider.redis_key, settings["RUN_ID"])
    try:
        replaced = await look.differences(_run_of(spider, settings))
    except StoreUnavailable as error:
        log.debug("the run's rules are not compared: %s", error)
        return
    for name, before, after in replaced:
        log.warning(
            "%s: this run is worked on with %s, this node comes with %s (%s), which holds for all "
            "its nodes from now on; to change it on purpose: orbweb config set %s VALUE --job %s",
            name,
            before,
            after,
            settings.origin(name),
            name,
            spider.redis_key,
        )


async def open_servers(
    settings: Settings, directory: Path, stack: AsyncExitStack
) -> tuple[Servers, str, Callable[[], Awaitable[None]] | None]:
    """The store's servers, their URL, and what starts an embedded one again.

    Raises `ConfigError` and `StoreUnavailable`.
    """
    url, revive = settings["REDIS_URL"], None
    if not url:
        embedded = EmbeddedStore(directory)
        url = await asyncio.to_thread(embedded.__enter__)
        stack.push_async_callback(_release, embedded)
        revive = _reviver(embedded, stack)
    servers = await reach(url, settings["REDIS_KEY_PREFIX"], settings["STORE_TIMEOUT"])
    stack.push_async_callback(servers.aclose)
    return servers, url, revive


async def _warnings(servers: Servers) -> list[str]:
    """What is to be said of the servers. A cluster may be choosing a new master just now."""
    try:
        return judge_all(await servers.facts())
    except StoreUnavailable as error:
        if not servers.several:
            raise
        return [f"a master of the cluster does not answer; its requests wait: {error}"]


def _wall_ms() -> int:
    return int(time.time() * 1000)


def _shared_frontier(
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
    seen = Seen(replace(_seen_config(settings), kind=LOCAL_FILTERS[chosen]))
    client = servers.of_shard(0)
    return LocalSeenFrontier(client, prefix=prefix, job=job, run=run, seen=seen, wall_ms=_wall_ms)


def _fill_watch(
    settings: Settings, servers: Servers, job: str, frontier: ValkeyFrontier | ShardedFrontier
) -> Callable[[], Awaitable[None]] | None:
    """Looks at the filters in the store; None where they have no capacity."""
    if _seen_config(settings).kind is not SeenKind.BLOOM:
        return None
    parts = frontier.shards if isinstance(frontier, ShardedFrontier) else [frontier]
    watched = [
        (part, FillWatch(servers.of_shard(number), job, settings["DEDUP_WARN_FILL_RATE"]))
        for number, part in enumerate(parts)
        if isinstance(part, ValkeyFrontier)
    ]

    async def look() -> None:
        for part, watch in watched:
            if base := await part.seen_base():
                await watch.look(base)

    return look


def _memory_watch(settings: Settings, frontier: MemoryFrontier) -> Callable[[], Awaitable[None]]:
    """Looks at the filter of this process."""
    watch = LocalFillWatch(frontier.job, settings["DEDUP_WARN_FILL_RATE"])

    async def look() -> None:
        watch.look(frontier.seen)

    return look


async def _release(embedded: EmbeddedStore) -> None:
    """Leave the store. That it does not stop is no failure of a run that has ended."""
    try:
        await asyncio.to_thread(embedded.release)
    except (StoreUnavailable, OSError) as error:
        log.warning("the store was not stopped: %s", error)


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


async def _tell(account: Account, store: _Store, node: str) -> None:
    await account.tell(store.epoch(), node, store.control.status)


def _chores(store: _Store, tell: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[int]]:
    """What a node does for all from time to time."""

    async def collect() -> int:
        await tell()
        if store.watch is not None:
            await store.watch()
        if store.totals is not None:
            await store.totals.fold(added_up)
        return await store.collect() if store.collect is not None else 0

    return collect


def _reviver(embedded: EmbeddedStore, stack: AsyncExitStack) -> Callable[[], Awaitable[None]]:
    """Starts the embedded server again when it does not answer; on a thread that nobody awaits."""
    thread = CallbackThreads(1, "orbweb-store")
    stack.callback(thread.close)

    async def revive() -> None:
        try:
            await thread.run(embedded.ensure)
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from error

    return revive


def _say_scope(spider: Spider, settings: Settings) -> None:
    """Say whether pages of earlier runs count as seen: it decides what this run crawls."""
    if isinstance(spider, TaskSpider) and not settings["TASK_DEDUP"]:
        log.info("TASK_DEDUP is off: each task crawls its pages anew")
    elif _dedup_scope(settings) == "run":
        log.info("DEDUP_SCOPE is run: this run crawls every page anew")
    else:
        log.info(
            "DEDUP_SCOPE is spider: pages that an earlier run of this job has taken are left out"
        )


def _dedup_scope(settings: Settings) -> str:
    scope: str = settings["DEDUP_SCOPE"]
    if scope != "auto":
        return scope
    return "run" if settings["RUN_ID"] else "spider"


def _seen_config(settings: Settings, *, shared: bool = True) -> SeenConfig:
    """How seen requests are remembered: in the store, or in this process. Raises `ConfigError`."""
    name = settings["DEDUP_FILTER"]
    if shared and name in LOCAL_FILTERS and not settings["DEDUP_ALLOW_LOCAL"]:
        raise ConfigError(
            f"DEDUP_FILTER is {name} ({settings.origin('DEDUP_FILTER')}): it lives in one process, "
            "but a Spider has many, and each of them would crawl every page. Right would be exact, "
            "compact or bloom, which all nodes share; DEDUP_ALLOW_LOCAL = true if it is meant so"
        )
    if not shared and name == "bloom-module":
        raise ConfigError(
            "DEDUP_FILTER is bloom-module, but an AirSpider has no server that could have the "
            "module. Right would be exact, compact or memory"
        )
    kind = SeenKind.LOCAL if name in LOCAL_FILTERS else SeenKind(name)
    return SeenConfig(
        kind=kind if shared else LOCAL_FILTERS.get(name, kind),
        capacity=settings["DEDUP_INITIAL_CAPACITY"],
        error_rate=settings["DEDUP_ERROR_RATE"],
        max_layers=settings["DEDUP_MAX_LAYERS"],
        generation_ms=int(settings["DEDUP_GENERATION"] * 1000),
    )


# -- the engine


def _build_engine(
    spider: BaseSpider,
    live: LiveNode,
    start: Start,
    store: _Store,
    stack: AsyncExitStack,
    node: str,
    lines: CrawlLog,
    tell: Callable[[], Awaitable[None]],
) -> Engine:
    settings = live.settings
    rng = random.Random()
    threads = CallbackThreads(settings["CALLBACK_THREADS"])
    storing = CallbackThreads(4, "orbweb-pipeline")
    stack.callback(threads.close)
    stack.callback(storing.close)
    options = _engine_options(spider, settings, start, node)
    directory = start.directory or Path.cwd()
    proxies = build_proxies(settings, directory)
    download = _build_download(settings, store.robots, node, rng, threads, proxies)
    stack.push_async_callback(download.chain.close)
    pipelines = load_pipelines(spider, settings, store.url)
    if not pipelines:
        log.warning("ITEM_PIPELINES names no pipeline: items are counted, and stored nowhere")
    buffer = ItemBuffer(
        pipelines,
        flush_interval=settings["BUFFER_FLUSH_INTERVAL"],
        max_items=settings["ITEM_MAX_CACHED_COUNT"],
        max_bytes=settings["ITEM_MAX_CACHED_SIZE"],
        rng=rng,
        run_blocking=storing.run,
    )
    world = World(
        clock=time.monotonic,
        rng=rng,
        run_blocking=threads.run,
        background=KeeperThread(loop_factory()) if isinstance(spider, Spider) else KeeperTask(),
        connect=store.connect,
        revive=store.revive,
    )
    engine = Engine(
        EngineParts(
            frontier=store.frontier,
            control=store.control,
            spider=spider,
            spider_base=BaseParser,
            chain=download.chain,
            buffer=buffer,
            codec=store.codec,
            options=options,
            world=world,
            identity=store.identity,
            items=store.items,
            totals=store.totals,
            wall_ms=_wall_ms,
            crawl_log=lines,
            place={"host": socket.gethostname(), "pid": os.getpid(), "started": int(time.time())},
            vitals=vitals(download.http.traffic, directory),
            show_summary=settings["RUN_SUMMARY_ENABLE"],
            tracer=tracer(settings, _speaker(store, settings, node, spider), stack),
            collect=_chores(store, tell),
            on_new_run=start.on_new_run,
            go_on=start.go_on,
            live=live,
            tasks=spider.calls if isinstance(spider, TaskSpider) else None,
            proxies=proxies,
        )
    )
    live.attach(
        [
            log_part(),
            engine_part(engine, lambda now: _engine_options(spider, now, start, node)),
            download_part(download, robots_agent),
            proxies_part(proxies, settings, directory),
            _rules_part(store.book, spider),
            store_part(store.tunable, lambda now: _run_of(spider, now)),
        ],
        [spider, *download.chain.middlewares],
        engine.call,
    )
    return engine


def _rules_part(book: JobBook | None, spider: BaseSpider) -> Part:
    """What `orbweb explain` knows of the job's rules."""

    async def apply(now: Now) -> None:
        if book is not None:
            await tell_rules(book, now.settings, spider)

    names = ("DEPTH_LIMIT", "URL_LENGTH_LIMIT", "ALLOWED_DOMAINS", "EXCLUDE_URLS", "INCLUDE_URLS")
    return Part("the job's rules", frozenset({*names, "USER_AGENT"}), apply)


def _engine_options(
    spider: BaseSpider, settings: Settings, start: Start, node: str
) -> EngineOptions:
    concurrency = settings["CONCURRENT_REQUESTS"]
    shared = isinstance(spider, Spider)
    return EngineOptions(
        node=node,
        spider=spider.name,
        run=_run_of(spider, settings),
        concurrency=concurrency,
        max_held=held_for(concurrency),
        heartbeat_seconds=settings["HEARTBEAT_INTERVAL"],
        watchdog_seconds=settings["WATCHDOG_TIMEOUT"],
        max_hold_seconds=settings["MAX_HOLD"],
        graceful_seconds=settings["GRACEFUL_TIMEOUT"],
        max_runtime_seconds=settings["SPIDER_MAX_RUNTIME"],
        stop_after_pages=start.stop_after_pages,
        retry_interval_seconds=settings["SPIDER_RETRY_INTERVAL"],
        retry_backoff=settings["RETRY_BACKOFF"],
        retry_longest_seconds=settings["RETRY_MAX_INTERVAL"],
        depth_limit=settings["DEPTH_LIMIT"],
        url_length_limit=settings["URL_LENGTH_LIMIT"],
        allowed_domains=allowed_domains(settings, spider),
        drop_query_params=frozenset(settings["DROP_QUERY_PARAMS"]),
        exclude_urls=tuple(settings["EXCLUDE_URLS"]),
        include_urls=tuple(settings["INCLUDE_URLS"]),
        default_table=settings["ITEM_DEFAULT_TABLE"],
        filter_items=settings["ITEM_FILTER_ENABLE"],
        count_items=settings["QUALITY_ENABLE"],
        seed_batch=settings["SEED_BATCH"],
        seed_pending_limit=_pending_limit(spider, settings),
        failed_response_bytes=settings["FAILED_RESPONSE_MAXSIZE"] if shared else 0,
        tasks=_task_options(spider, settings),
    )


def _pending_limit(spider: BaseSpider, settings: Settings) -> int:
    limit: int = settings["MAX_PENDING"]
    if limit or isinstance(spider, TaskSpider):
        return limit or TASK_PENDING
    return 0 if isinstance(spider, Spider) else AIR_PENDING


def _task_options(spider: BaseSpider, settings: Settings) -> TaskOptions | None:
    if not isinstance(spider, TaskSpider):
        return None
    return TaskOptions(
        list_key="" if spider.has_source else spider.task_key,
        poll_seconds=settings["TASK_POLL_INTERVAL"],
        batch=settings["TASK_BATCH_SIZE"],
        exhaust_polls=settings["TASK_EXHAUST_POLLS"],
        shares_dedup=settings["TASK_DEDUP"],
    )


def _run_of(spider: BaseSpider, settings: Settings) -> RunConfig:
    run = _run_config(settings, _seen_config(settings, shared=isinstance(spider, Spider)))
    if not isinstance(spider, TaskSpider):
        return run
    return replace(run, polls=True, tells_done=spider.wants_done, tells_failed=spider.wants_failed)


def _run_config(settings: Settings, seen: SeenConfig) -> RunConfig:
    return RunConfig(
        host_concurrency=settings["CONCURRENT_REQUESTS_PER_DOMAIN"],
        host_delay_ms=math.ceil(settings["DOWNLOAD_DELAY"] * 1000),
        randomize_delay=settings["RANDOMIZE_DOWNLOAD_DELAY"],
        host_backlog_limit=settings["HOST_BACKLOG_LIMIT"],
        circuit_threshold=settings["CIRCUIT_FAILURE_THRESHOLD"],
        circuit_cooldown_ms=_ms(settings["CIRCUIT_COOLDOWN"]),
        autothrottle=settings["AUTOTHROTTLE_ENABLED"],
        autothrottle_start_ms=_ms(settings["AUTOTHROTTLE_START_DELAY"]),
        autothrottle_longest_ms=_ms(settings["AUTOTHROTTLE_MAX_DELAY"]),
        require_approval=settings["REQUIRE_RATE_APPROVAL"],
        unapproved_delay_ms=_gap_ms(settings, "UNAPPROVED_RATE"),
        fetch_timeout_ms=int((settings["REQUEST_TIMEOUT"] or 3600.0) * 2000),
        lease_ms=int(settings["SPIDER_TASK_LEASE"] * 1000),
        max_retries=settings["SPIDER_MAX_RETRY_TIMES"],
        max_deliveries=settings["MAX_DELIVERIES"],
        kept_responses=settings["FAILED_RESPONSES_KEPT"],
        keep_alive=settings["SPIDER_KEEP_ALIVE"],
        dedup_scope=_dedup_scope(settings),
        seen=seen,
        finished_ttl_ms=int(settings["SPIDER_SEED_LOCK_TTL"] * 1000),
        run_ttl_ms=int(settings["RUN_TTL"] * 1000),
    )


def _gap_ms(settings: Settings, name: str) -> int:
    try:
        return parse_rate(settings[name])
    except ValueError as error:
        raise ConfigError(f"{name} ({settings.origin(name)}): {error}") from None


def _ms(seconds: float) -> int:
    """At least one: 0 would mean that there is no limit."""
    return max(1, round(seconds * 1000))


def _build_download(
    settings: Settings,
    robots_store: RobotsStore,
    node: str,
    rng: random.Random,
    threads: CallbackThreads,
    proxies: ProxyPool,
) -> Download:
    client = HttpDownloader(http_options(settings.__getitem__, settings))
    downloader = ProxiedDownloader(client, proxies)
    status = status_policy(settings)
    sender = Sender(downloader.limited(BodyLimits(ROBOTS_MAX_BYTES, truncate=True)), status)
    robots = _build_robots(settings, sender, robots_store, node, rng)
    chain = Chain(
        downloader,
        middlewares=load_middlewares(settings["DOWNLOADER_MIDDLEWARES"], settings),
        robots=robots,
        obey_robots=settings["ROBOTS_OBEY"],
        status=status,
        redirects=redirect_rules(settings),
        run_blocking=threads.run,
    )
    return Download(chain, client, robots, sender)


def _build_robots(
    settings: Settings, sender: Sender, store: RobotsStore, node: str, rng: random.Random
) -> Robots:
    return Robots(
        sender,
        store,
        RobotsOptions(
            robots_agent(settings),
            ttl_seconds=settings["ROBOTS_CACHE_TTL"],
            crawl_delay_max=settings["ROBOTS_CRAWL_DELAY_MAX"],
        ),
        holder=node,
        rng=rng,
    )
