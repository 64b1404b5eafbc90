"""From settings to what the engine and the frontier go by."""

from __future__ import annotations

import math
from dataclasses import replace

from orbweb.engine.knobs import held_for
from orbweb.engine.options import EngineOptions, TaskOptions
from orbweb.errors import ConfigError
from orbweb.frontier.base import RunConfig
from orbweb.frontier.seen import SeenConfig
from orbweb.model.rate import parse_rate
from orbweb.settings import Settings
from orbweb.spiders.base import BaseSpider
from orbweb.spiders.build_seen import dedup_scope, seen_config
from orbweb.spiders.distributed import Spider
from orbweb.spiders.rules import allowed_domains
from orbweb.spiders.start import Start
from orbweb.spiders.task import TaskSpider

AIR_PENDING = 20_000
"""Seeding of an `AirSpider` pauses while more requests than this wait in memory."""


TASK_PENDING = 10_000
"""No tasks are taken while more requests than this are pending."""


def engine_options(
    spider: BaseSpider, settings: Settings, start: Start, node: str
) -> EngineOptions:
    """What the engine goes by. Raises `ConfigError`."""
    concurrency = settings["CONCURRENT_REQUESTS"]
    shared = isinstance(spider, Spider)
    return EngineOptions(
        node=node,
        spider=spider.name,
        run=run_of(spider, settings),
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


def run_of(spider: BaseSpider, settings: Settings) -> RunConfig:
    """What all nodes of the run go by, as this one wants it. Raises `ConfigError`."""
    run = _run_config(settings, seen_config(settings, shared=isinstance(spider, Spider)))
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
        dedup_scope=dedup_scope(settings),
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
