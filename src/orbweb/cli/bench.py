"""Assembly of what `shell`, `fetch`, `view` and `parse` work with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from orbweb.cli.options import overrides, pairs
from orbweb.cli.store import has_data
from orbweb.cli.target import load_spider, make_spider
from orbweb.download.robots import MemoryRobotsStore, RobotsStore
from orbweb.engine.threads import loop_factory
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.configbook import ConfigBook
from orbweb.frontier.robots import ValkeyRobotsStore
from orbweb.frontier.servers import Servers
from orbweb.frontier.urls import UrlState, Wanted
from orbweb.log import get_logger
from orbweb.monitor.log_reader import LogReader
from orbweb.replay.bench import Bare, Bench
from orbweb.replay.fleet import StoreFleet
from orbweb.replay.gate import Manners
from orbweb.replay.subject import Finder
from orbweb.replay.trial import trial_of
from orbweb.replay.verdicts import Judge, Look
from orbweb.settings import Settings
from orbweb.settings.log import configure_log
from orbweb.spiders.base import BaseSpider
from orbweb.spiders.build_live import live_settings
from orbweb.spiders.build_servers import open_servers
from orbweb.spiders.build_trial import trial_parts
from orbweb.spiders.distributed import Spider
from orbweb.spiders.log_place import log_folder
from orbweb.spiders.rules import job_rules
from orbweb.spiders.start import Start, settings_of

T = TypeVar("T")

log = get_logger("orbweb.replay")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line says of the spider and the store."""

    spider: str | None = None
    """FILE[:Class] or module:Class; None: only the settings of the directory."""
    arguments: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    store: str | None = None
    job: str | None = None
    run: str | None = None


def on_bench(wish: Wish, work: Callable[[Bench], Awaitable[T]]) -> T:
    """Do some work with a bench, on an event loop of its own. Raises as `open_bench` does."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:

        async def main() -> T:
            async with open_bench(wish) as bench:
                return await work(bench)

        return runner.run(main())


@asynccontextmanager
async def open_bench(wish: Wish) -> AsyncIterator[Bench]:
    """Load the spider and put all together. `start_callback` of the spider is called first.

    Raises `ConfigError`, `StoreUnavailable`, and what the spider's own code raises.
    """
    spider = _spider(wish)
    changes = overrides(wish.changes, wish.store)
    changes.setdefault("LOG_LEVEL", "WARNING")
    settings = settings_of(spider, Start(changes))
    configure_log(settings)
    for note in settings.notes:
        log.warning("%s", note)
    async with AsyncExitStack() as stack:
        admin, robots, book = await _open_store(settings, stack)
        settings = await stack.enter_async_context(live_settings(spider, settings, book))
        job = wish.job or (None if isinstance(spider, Bare) else _job_of(spider))
        run = wish.run if wish.run is not None else settings["RUN_ID"] or None
        info = await _run_of(admin, job, run, must_be=wish.run is not None)
        parts = await stack.enter_async_context(trial_parts(spider, settings, robots))
        fleet = StoreFleet(admin, info or await _any_run(admin)) if admin is not None else None
        if parts.callbacks.overrides("start_callback"):
            await parts.callbacks.call(spider.start_callback)
        yield Bench(
            spider,
            trial_of(parts, Manners(parts.options.calm_seconds, fleet, clock=time.monotonic)),
            Judge(
                job_rules(settings, spider), robots.get, _look(admin, info), parts.callbacks.knows
            ),
            Finder(admin, _reader(settings), job, run),
            admin,
            info,
        )


def _spider(wish: Wish) -> BaseSpider:
    if wish.spider is not None:
        return make_spider(load_spider(wish.spider), pairs(wish.arguments, "-a"))
    if wish.arguments:
        raise ConfigError("-a gives a spider its arguments: name it with --spider")
    return Bare()


async def _open_store(
    settings: Settings, stack: AsyncExitStack
) -> tuple[Admin | None, RobotsStore, ConfigBook | None]:
    """The store of these settings; none is made where none is."""
    if not settings["REDIS_URL"] and not has_data(Path.cwd()):
        return None, MemoryRobotsStore(time.monotonic), None
    servers: Servers = (await open_servers(settings, Path.cwd(), stack))[0]
    prefix = settings["REDIS_KEY_PREFIX"]
    admin = Admin(servers, prefix, shards=settings["FRONTIER_SHARDS"])
    client = servers.of_shard(0)
    return admin, ValkeyRobotsStore(client, prefix), ConfigBook(client, prefix)


def _job_of(spider: BaseSpider) -> str:
    return spider.redis_key if isinstance(spider, Spider) else spider.name


async def _run_of(
    admin: Admin | None, job: str | None, run: str | None, *, must_be: bool
) -> RunInfo | None:
    if admin is None or job is None:
        return None
    if must_be:
        return await admin.find(job, run)
    runs: Sequence[RunInfo] = await admin.runs(job)
    return next((info for info in runs if run in (None, info.run)), None)


async def _any_run(admin: Admin) -> RunInfo | None:
    return next(iter(await admin.runs()), None)


def _look(admin: Admin | None, info: RunInfo | None) -> Look | None:
    if admin is None or info is None:
        return None

    async def look(wanted: Wanted) -> UrlState:
        shards = info.status.shards
        return await admin.urls.look(info.job, info.run, info.epoch, shards, wanted)

    return look


def _reader(settings: Settings) -> LogReader | None:
    folder = log_folder(settings, Path.cwd())
    return LogReader(folder) if folder.path.is_dir() else None
