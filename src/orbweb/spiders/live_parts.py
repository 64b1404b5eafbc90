"""The parts of a node that live values reach: what each goes by, and how it takes a change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orbweb.download.chain import Chain
from orbweb.download.http import BodyLimits, HttpDownloader, HttpOptions
from orbweb.download.redirects import RedirectRules
from orbweb.download.robots import Robots
from orbweb.download.send import Sender
from orbweb.download.status import StatusPolicy
from orbweb.engine.engine import Engine
from orbweb.engine.knobs import Knobs, held_for
from orbweb.engine.options import EngineOptions
from orbweb.frontier.base import HostPace, RunConfig, Tunable, Tuning
from orbweb.log import set_levels
from orbweb.settings import Settings
from orbweb.settings.log import logger_levels
from orbweb.spiders.live_now import Now, Part

STORE = frozenset(
    {
        *("DOWNLOAD_DELAY", "CONCURRENT_REQUESTS_PER_DOMAIN", "RANDOMIZE_DOWNLOAD_DELAY"),
        *("AUTOTHROTTLE_ENABLED", "AUTOTHROTTLE_START_DELAY", "AUTOTHROTTLE_MAX_DELAY"),
        *("CIRCUIT_FAILURE_THRESHOLD", "CIRCUIT_COOLDOWN", "HOST_BACKLOG_LIMIT"),
        *("SPIDER_MAX_RETRY_TIMES", "REQUEST_TIMEOUT"),
    }
)
ENGINE = frozenset(
    {
        *("CONCURRENT_REQUESTS", "SPIDER_MAX_RETRY_TIMES", "SPIDER_RETRY_INTERVAL"),
        *("RETRY_BACKOFF", "RETRY_MAX_INTERVAL", "SPIDER_MAX_RUNTIME"),
        *("DEPTH_LIMIT", "URL_LENGTH_LIMIT", "ALLOWED_DOMAINS", "EXCLUDE_URLS", "INCLUDE_URLS"),
        *("DOWNLOAD_DELAY", "AUTOTHROTTLE_ENABLED", "AUTOTHROTTLE_START_DELAY"),
    }
)
DOWNLOAD = frozenset(
    {
        *("REQUEST_TIMEOUT", "CONNECT_TIMEOUT", "READ_TIMEOUT", "MAX_RESPONSE_SIZE"),
        *("USER_AGENT", "MAX_REDIRECTS", "RETRY_STATUS_CODES", "ACCEPT_STATUS_CODES"),
        "RETRY_AFTER_MAX",
    }
)
LOG = frozenset({"LOG_LEVEL", "LOG_LEVELS"})


@dataclass(frozen=True, slots=True)
class Download:
    """What downloads in a node."""

    chain: Chain
    http: HttpDownloader
    robots: Robots
    robots_sender: Sender


def http_options(of: Callable[[str], Any], settings: Settings) -> HttpOptions:
    """The client's options; `of` gives what may differ from host to host."""
    return HttpOptions(
        user_agent=of("USER_AGENT"),
        total_seconds=of("REQUEST_TIMEOUT"),
        connect_seconds=of("CONNECT_TIMEOUT"),
        read_seconds=of("READ_TIMEOUT"),
        limits=BodyLimits(of("MAX_RESPONSE_SIZE"), tuple(settings["ALLOWED_CONTENT_TYPES"])),
        keep_cookies=settings["USE_SESSION"],
    )


def status_policy(settings: Settings) -> StatusPolicy:
    """How answers are judged."""
    return StatusPolicy(
        check=settings["CHECK_STATUS_CODE"],
        retry=frozenset(settings["RETRY_STATUS_CODES"]),
        accept=frozenset(settings["ACCEPT_STATUS_CODES"]),
        retry_after_max=settings["RETRY_AFTER_MAX"],
    )


def redirect_rules(settings: Settings) -> RedirectRules:
    """How far redirects are followed."""
    return RedirectRules(settings["MAX_REDIRECTS"], settings["REQUEST_TIMEOUT"])


def store_part(run: Tunable, config_of: Callable[[Settings], RunConfig], node: str) -> Part:
    """What the store decides for all nodes of the run: every node tells it, older versions lose.

    Values of other sources have no version: what changes is told, and the last word holds; but of
    single hosts the strictest word of all nodes that live.
    """

    def tuning(now: Now) -> Tuning:
        config = config_of(now.settings)
        return Tuning(now.version, config, _paces(now), node, _paces(now, by_store=False))

    async def apply(now: Now) -> None:
        await run.tune(tuning(now))

    async def repeat(now: Now) -> None:
        await run.tune(replace(tuning(now), repeats=True))

    return Part("the store", STORE, apply, always=True, repeat=repeat)


def engine_part(engine: Engine, options_of: Callable[[Settings], EngineOptions]) -> Part:
    """What the engine decides."""

    async def apply(now: Now) -> None:
        options = options_of(now.settings)
        wanted = Knobs.of(replace(options, max_held=held_for(options.concurrency)))
        for name in Knobs.__slots__:
            setattr(engine.knobs, name, getattr(wanted, name))
        engine.keep_calm(options.calm_seconds)
        engine.poke()

    return Part("the engine", ENGINE, apply)


def download_part(download: Download, agent_of: Callable[[Settings], str]) -> Part:
    """What is decided at each fetch."""

    async def apply(now: Now) -> None:
        settings = now.settings
        hosts = {
            host: http_options(lambda name, host=host: now.of_host(host, name), settings)  # type: ignore[misc]
            for host, values in now.hosts.items()
            if DOWNLOAD & values.keys()
        }
        download.http.retune(http_options(settings.__getitem__, settings), hosts)
        download.chain.retune(status_policy(settings), redirect_rules(settings))
        download.robots_sender.status = status_policy(settings)
        download.robots.rename(agent_of(settings))

    return Part("the downloader", DOWNLOAD, apply)


def log_part() -> Part:
    """What is logged."""

    async def apply(now: Now) -> None:
        set_levels(now.settings["LOG_LEVEL"], logger_levels(now.settings["LOG_LEVELS"]))

    return Part("the log", LOG, apply)


def _paces(now: Now, *, by_store: bool = True) -> Mapping[str, HostPace]:
    """What the store is to know of single hosts, of its own values or of what others say."""
    paces = {}
    for host, values in now.hosts.items():
        delay, most = (
            values.get(name) if ((host, name) in now.by_store) is by_store else None
            for name in ("DOWNLOAD_DELAY", "CONCURRENT_REQUESTS_PER_DOMAIN")
        )
        if delay is not None or most is not None:
            paces[host] = HostPace(
                None if delay is None else math.ceil(delay * 1000),
                now.ends.get((host, "DOWNLOAD_DELAY"), 0),
                most,
                now.ends.get((host, "CONCURRENT_REQUESTS_PER_DOMAIN"), 0),
            )
    return paces
