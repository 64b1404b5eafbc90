"""The parts that fetch and parse as in a run, without a run."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from orbweb.download.chain import Chain
from orbweb.download.robots import (
    RobotsStore,
)
from orbweb.engine.callbacks import Callbacks
from orbweb.engine.options import Codec, EngineOptions
from orbweb.engine.threads import CallbackThreads
from orbweb.settings import Settings
from orbweb.spiders.base import BaseParser, BaseSpider
from orbweb.spiders.build_download import build_download
from orbweb.spiders.build_options import engine_options
from orbweb.spiders.codecs import ObjectCodec, WireCodec
from orbweb.spiders.distributed import Spider
from orbweb.spiders.proxies import build_proxies
from orbweb.spiders.start import Start


@dataclass(frozen=True, slots=True)
class TrialParts:
    """How a spider fetches and parses, as in a run, but without one."""

    chain: Chain
    callbacks: Callbacks
    codec: Codec
    options: EngineOptions


@asynccontextmanager
async def trial_parts(
    spider: BaseSpider, settings: Settings, robots: RobotsStore
) -> AsyncIterator[TrialParts]:
    """Put the parts together. Raises `ConfigError`."""
    threads = CallbackThreads(settings["CALLBACK_THREADS"])
    node = uuid.uuid4().hex
    try:
        options = engine_options(spider, settings, Start(), node)
        proxies = build_proxies(settings, Path.cwd())
        chain = build_download(settings, robots, node, random.Random(), threads, proxies).chain
        codec = WireCodec() if isinstance(spider, Spider) else ObjectCodec()
        try:
            yield TrialParts(chain, Callbacks(spider, threads.run, BaseParser), codec, options)
        finally:
            await chain.close()
    finally:
        threads.close()
