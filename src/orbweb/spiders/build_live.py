"""The live values of a node: put together, taken before all else, told to the store."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
from redis.asyncio import Redis

from orbweb.config.last_good import LastGood
from orbweb.config.resolve import Identity
from orbweb.config.sources import config_sources
from orbweb.errors import StoreUnavailable
from orbweb.frontier.configbook import ConfigBook
from orbweb.frontier.embedded import FOLDER
from orbweb.frontier.runlook import RunLook
from orbweb.log import get_logger, set_levels
from orbweb.settings import Settings
from orbweb.settings.log import logger_levels
from orbweb.spiders.base import BaseSpider
from orbweb.spiders.build_options import run_of
from orbweb.spiders.distributed import Spider
from orbweb.spiders.live import LiveNode
from orbweb.spiders.live_store import StoreSource
from orbweb.spiders.proxies import unfit_proxies
from orbweb.spiders.start import Start, settings_of

log = get_logger("orbweb.engine")


def live_node(
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
        unfit=partial(unfit_proxies, directory=directory),
    )


async def begin_live(live: LiveNode, stack: AsyncExitStack) -> None:
    """Let the live values hold that are there already, before anything is built of settings."""
    stack.push_async_callback(live.close)
    await live.begin()
    set_levels(live.settings["LOG_LEVEL"], logger_levels(live.settings["LOG_LEVELS"]))


@asynccontextmanager
async def live_settings(
    spider: BaseSpider, settings: Settings, book: ConfigBook | None
) -> AsyncIterator[Settings]:
    """The settings as a node of the spider has them when it begins now, live values among them.

    `book`: the store's live values; None without a store. Acknowledges nothing.
    """
    live = live_node(spider, settings, Start(), uuid.uuid4().hex, book)
    try:
        await live.begin()
        yield live.settings
    finally:
        await live.close()


async def tell_switches(book: ConfigBook, spider: Spider) -> None:
    """Tell which live values of its own the job has. A store that is away is no reason to wait."""
    declared = spider.live_view.declared
    try:
        await book.keep_switches(spider.redis_key, msgspec.json.encode(declared))
    except StoreUnavailable as error:
        log.debug("the job's live values are not told: %s", error)


async def say_replaced(client: Redis, spider: Spider, own: Settings, settings: Settings) -> None:
    """Warn when this node's settings replace for all nodes what a running run is fetched by.

    `own`: the settings without live values, which are the same for all nodes.
    """
    look = RunLook(client, settings["REDIS_KEY_PREFIX"], spider.redis_key, settings["RUN_ID"])
    try:
        replaced = await look.differences(run_of(spider, settings))
    except StoreUnavailable as error:
        log.debug("the run's rules are not compared: %s", error)
        return
    for name, before, after in replaced:
        if settings.origin(name) != own.origin(name):
            continue
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
