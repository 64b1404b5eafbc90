"""The download path: client, proxies, robots.txt, middlewares."""

from __future__ import annotations

import random

from orbweb.download.chain import Chain
from orbweb.download.http import BodyLimits, HttpDownloader
from orbweb.download.middlewares import load_middlewares
from orbweb.download.proxied import ProxiedDownloader
from orbweb.download.proxies import ProxyPool
from orbweb.download.robots import (
    ROBOTS_MAX_BYTES,
    Robots,
    RobotsOptions,
    RobotsStore,
)
from orbweb.download.send import Sender
from orbweb.engine.threads import CallbackThreads
from orbweb.settings import Settings
from orbweb.spiders.live_parts import (
    Download,
    http_options,
    redirect_rules,
    status_policy,
)
from orbweb.spiders.rules import robots_agent


def build_download(
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
