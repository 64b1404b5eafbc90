"""Which memory of seen requests a job has, and who looks whether it fills up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from orbweb.errors import ConfigError
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.frontier.seen_state import FillWatch, LocalFillWatch
from orbweb.frontier.servers import Servers
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.log import get_logger
from orbweb.settings import Settings
from orbweb.spiders.distributed import Spider
from orbweb.spiders.task import TaskSpider

LOCAL_FILTERS = {"memory": SeenKind.BLOOM, "lite": SeenKind.EXACT}
"""Filters of one process, and what they are there."""


log = get_logger("orbweb.engine")


def seen_config(settings: Settings, *, shared: bool = True) -> SeenConfig:
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


def dedup_scope(settings: Settings) -> str:
    """`run` or `spider`: whose pages count as seen."""
    scope: str = settings["DEDUP_SCOPE"]
    if scope != "auto":
        return scope
    return "run" if settings["RUN_ID"] else "spider"


def say_scope(spider: Spider, settings: Settings) -> None:
    """Say whether pages of earlier runs count as seen: it decides what this run crawls."""
    if isinstance(spider, TaskSpider) and not settings["TASK_DEDUP"]:
        log.info("TASK_DEDUP is off: each task crawls its pages anew")
    elif dedup_scope(settings) == "run":
        log.info("DEDUP_SCOPE is run: this run crawls every page anew")
    else:
        log.info(
            "DEDUP_SCOPE is spider: pages that an earlier run of this job has taken are left out"
        )


def fill_watch(
    settings: Settings, servers: Servers, job: str, frontier: ValkeyFrontier | ShardedFrontier
) -> Callable[[], Awaitable[None]] | None:
    """Looks at the filters in the store; None where they have no capacity."""
    if seen_config(settings).kind is not SeenKind.BLOOM:
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


def memory_watch(settings: Settings, frontier: MemoryFrontier) -> Callable[[], Awaitable[None]]:
    """Looks at the filter of this process."""
    watch = LocalFillWatch(frontier.job, settings["DEDUP_WARN_FILL_RATE"])

    async def look() -> None:
        watch.look(frontier.seen)

    return look
