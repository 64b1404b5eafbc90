"""An engine and its parts, put together; what of them changes with live values."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from orbweb.engine.engine import Engine, EngineParts
from orbweb.engine.options import World
from orbweb.engine.threads import CallbackThreads, KeeperTask, KeeperThread, loop_factory
from orbweb.frontier.jobbook import JobBook
from orbweb.log import get_logger
from orbweb.metrics.node import Speaker
from orbweb.monitor.counts import added_up
from orbweb.monitor.crawl_line import CrawlLog
from orbweb.pipelines.buffer import ItemBuffer
from orbweb.settings import Settings
from orbweb.spiders.base import BaseParser, BaseSpider
from orbweb.spiders.build_download import build_download
from orbweb.spiders.build_metrics import tracer, vitals
from orbweb.spiders.build_options import engine_options, run_of
from orbweb.spiders.build_store import Store, wall_ms
from orbweb.spiders.distributed import Spider
from orbweb.spiders.live import LiveNode
from orbweb.spiders.live_now import Now, Part
from orbweb.spiders.live_parts import (
    download_part,
    engine_part,
    log_part,
    store_part,
)
from orbweb.spiders.load import load_pipelines
from orbweb.spiders.proxies import build_proxies, proxies_part
from orbweb.spiders.rules import robots_agent, tell_rules
from orbweb.spiders.start import Start
from orbweb.spiders.task import TaskSpider

log = get_logger("orbweb.engine")


def build_engine(
    spider: BaseSpider,
    live: LiveNode,
    start: Start,
    store: Store,
    stack: AsyncExitStack,
    node: str,
    lines: CrawlLog,
    tell: Callable[[], Awaitable[None]],
) -> Engine:
    """Raises `ConfigError`. What was begun for the engine ends with `stack`."""
    settings = live.settings
    rng = random.Random()
    threads = CallbackThreads(settings["CALLBACK_THREADS"])
    storing = CallbackThreads(4, "orbweb-pipeline")
    stack.callback(threads.close)
    stack.callback(storing.close)
    options = engine_options(spider, settings, start, node)
    directory = start.directory or Path.cwd()
    proxies = build_proxies(settings, directory)
    download = build_download(settings, store.robots, node, rng, threads, proxies)
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
            wall_ms=wall_ms,
            crawl_log=lines,
            place={"host": socket.gethostname(), "pid": os.getpid(), "started": int(time.time())},
            vitals=vitals(download.http.traffic, directory),
            show_summary=settings["RUN_SUMMARY_ENABLE"],
            tracer=tracer(settings, speaker(store, settings, node, spider), stack),
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
            engine_part(engine, lambda now: engine_options(spider, now, start, node)),
            download_part(download, robots_agent),
            proxies_part(proxies, settings, directory),
            _rules_part(store.book, spider),
            store_part(store.tunable, lambda now: run_of(spider, now), node),
        ],
        [spider, *download.chain.middlewares],
        engine.call,
    )
    return engine


def _chores(store: Store, tell: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[int]]:
    """What a node does for all from time to time."""

    async def collect() -> int:
        await tell()
        if store.watch is not None:
            await store.watch()
        if store.totals is not None:
            await store.totals.fold(added_up)
        return await store.collect() if store.collect is not None else 0

    return collect


def _rules_part(book: JobBook | None, spider: BaseSpider) -> Part:
    """What `orbweb explain` knows of the job's rules."""

    async def apply(now: Now) -> None:
        if book is not None:
            await tell_rules(book, now.settings, spider)

    names = ("DEPTH_LIMIT", "URL_LENGTH_LIMIT", "ALLOWED_DOMAINS", "EXCLUDE_URLS", "INCLUDE_URLS")
    return Part("the job's rules", frozenset({*names, "USER_AGENT"}), apply)


def speaker(store: Store, settings: Settings, node: str, spider: BaseSpider) -> Speaker:
    return Speaker(node, store.identity.get("redis_key", spider.name), settings["RUN_ID"])
