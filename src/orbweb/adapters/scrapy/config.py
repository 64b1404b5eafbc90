"""What a Scrapy project's settings mean for its part of the fleet."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from scrapy import Spider
from scrapy.settings import BaseSettings

from orbweb.adapters.scrapy.connection import store_url
from orbweb.adapters.scrapy.starts import StartSource
from orbweb.errors import ConfigError
from orbweb.frontier.base import RunConfig
from orbweb.frontier.seen import SeenConfig, SeenKind

FOR_EVER_MS = 100 * 365 * 86_400_000

FLEET_MS = 60_000
"""So long after the end of a run that is not kept, and that several workers have done, one more
that starts is taken for a late one of them, and has nothing to do."""

ROOM_MS = 20
"""What a host's gap is made longer by: between the scheduler's word and the socket Scrapy needs a
few milliseconds, not always the same."""

KINDS = ("exact", "compact", "set", "bloom", "bloom-module")


@dataclass(frozen=True, slots=True)
class RoomConfig:
    """One worker's part of a crawl. Times in seconds."""

    url: str
    job: str
    run_id: str
    prefix: str
    run: RunConfig
    persist: bool
    flush: bool
    embedded: bool
    source: StartSource | None
    concurrency: int
    prefetch: int
    politeness: bool
    stop_after: int
    idle_before_close: float
    """So long nothing may have happened in the whole crawl before its workers close."""
    store_timeout: float
    give_up: float
    allow_pickle: bool

    @property
    def lease_seconds(self) -> float:
        return self.run.lease_ms / 1000

    @property
    def beat_seconds(self) -> float:
        return min(5.0, self.lease_seconds / 10)


def room_config(settings: BaseSettings, spider: Spider) -> RoomConfig:
    """Read the settings. Raises `ConfigError`."""
    source = _source(spider)
    concurrency = settings.getint("CONCURRENT_REQUESTS") or 100
    politeness = settings.getbool("ORBWEB_FLEET_POLITENESS")
    persist = settings.getbool("SCHEDULER_PERSIST")
    run_id = str(settings.get("ORBWEB_RUN_ID") or os.environ.get("ORBWEB_RUN_ID", ""))
    return RoomConfig(
        url=store_url(settings),
        job=str(settings.get("ORBWEB_JOB") or f"{settings['BOT_NAME']}.{spider.name}"),
        run_id=run_id,
        prefix=str(settings.get("ORBWEB_KEY_PREFIX", "orbweb")),
        run=_run_config(settings, source, politeness, kept=persist or bool(run_id)),
        persist=persist or bool(run_id),
        flush=settings.getbool("SCHEDULER_FLUSH_ON_START"),
        embedded=settings.getbool("ORBWEB_EMBEDDED_STORE"),
        source=source,
        concurrency=concurrency,
        prefetch=_number(settings, "ORBWEB_PREFETCH", concurrency, low=1),
        politeness=politeness,
        stop_after=_number(settings, "ORBWEB_STOP_AFTER", 0, low=0),
        idle_before_close=_idle_seconds(settings, source),
        store_timeout=_seconds(settings, "ORBWEB_STORE_TIMEOUT", 5.0),
        give_up=_seconds(settings, "ORBWEB_GIVE_UP", 10.0),
        allow_pickle=settings.getbool("ORBWEB_ALLOW_PICKLE"),
    )


def _source(spider: Spider) -> StartSource | None:
    find = getattr(spider, "start_source", None)
    source: StartSource | None = find() if find is not None else None
    return source


def _idle_seconds(settings: BaseSettings, source: StartSource | None) -> float:
    before_close = settings.getfloat("SCHEDULER_IDLE_BEFORE_CLOSE")
    if before_close < 0:
        raise TypeError("SCHEDULER_IDLE_BEFORE_CLOSE cannot be negative")
    return max(before_close, source.max_idle_seconds if source is not None else 0.0)


def _run_config(
    settings: BaseSettings, source: StartSource | None, politeness: bool, *, kept: bool
) -> RunConfig:
    lease = _seconds(settings, "ORBWEB_LEASE", 60.0)
    if lease < 1:
        raise ConfigError(f"ORBWEB_LEASE is {lease:g}; the least is 1 second")
    resident = source is not None and not source.max_idle_seconds
    if settings.get("ORBWEB_KEEP_ALIVE") is not None:
        resident = settings.getbool("ORBWEB_KEEP_ALIVE")
    kind = str(settings.get("ORBWEB_DEDUP_FILTER", "exact"))
    if kind not in KINDS:
        raise ConfigError(f"ORBWEB_DEDUP_FILTER is {kind!r}; it may be {', '.join(KINDS)}")
    scope = str(settings.get("ORBWEB_DEDUP_SCOPE", "run"))
    if scope not in ("run", "spider"):
        raise ConfigError(f"ORBWEB_DEDUP_SCOPE is {scope!r}; it may be run or spider")
    return RunConfig(
        **(
            _politeness(settings) if politeness else {"host_concurrency": 0, "circuit_threshold": 0}
        ),
        fetch_timeout_ms=int((settings.getfloat("DOWNLOAD_TIMEOUT") or 3600.0) * 1000),
        lease_ms=int(lease * 1000),
        host_backlog_limit=_number(settings, "ORBWEB_HOST_BACKLOG_LIMIT", 0, low=0),
        max_retries=0,
        max_deliveries=_number(settings, "ORBWEB_MAX_DELIVERIES", 5, low=1),
        keep_alive=resident,
        dedup_scope=scope,
        seen=SeenConfig(
            kind=SeenKind(kind),
            capacity=_number(settings, "ORBWEB_DEDUP_CAPACITY", 1_000_000, low=1),
            error_rate=_error_rate(settings),
        ),
        finished_ttl_ms=FOR_EVER_MS if kept else FLEET_MS,
    )


def _politeness(settings: BaseSettings) -> dict[str, Any]:
    """Scrapy's own settings of politeness, for the fleet as a whole."""
    delay = settings.getfloat("DOWNLOAD_DELAY")
    return {
        "host_concurrency": settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN"),
        "host_delay_ms": math.ceil(delay * 1000) + ROOM_MS if delay else 0,
        "autothrottle": settings.getbool("AUTOTHROTTLE_ENABLED"),
        "autothrottle_start_ms": max(
            1, round(settings.getfloat("AUTOTHROTTLE_START_DELAY") * 1000)
        ),
        "autothrottle_longest_ms": max(
            1, round(settings.getfloat("AUTOTHROTTLE_MAX_DELAY") * 1000)
        ),
    }


def _error_rate(settings: BaseSettings) -> float:
    value = _seconds(settings, "ORBWEB_DEDUP_ERROR_RATE", 1e-6)
    if not 0 < value <= 0.5:
        raise ConfigError(f"ORBWEB_DEDUP_ERROR_RATE is {value:g}; it lies above 0 and up to 0.5")
    return value


def _seconds(settings: BaseSettings, name: str, default: float) -> float:
    try:
        value = settings.getfloat(name, default)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is {settings.get(name)!r}, not a number") from None
    if value < 0:
        raise ConfigError(f"{name} is {value:g}; it cannot be negative")
    return value


def _number(settings: BaseSettings, name: str, default: int, *, low: int) -> int:
    try:
        value = settings.getint(name, default)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is {settings.get(name)!r}, not a whole number") from None
    if value < low:
        raise ConfigError(f"{name} is {value}; the least is {low}")
    return value
