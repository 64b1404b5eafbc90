"""Crawls inside the process of a test, without a reactor; several of them are several workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from scrapy import Spider
from scrapy.crawler import AsyncCrawlerRunner, Crawler
from scrapy.utils.test import get_crawler
from tests.servers import Server

QUIET: dict[str, Any] = {
    "TWISTED_REACTOR_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "LOG_LEVEL": "DEBUG",
    "RETRY_ENABLED": False,
    "DOWNLOAD_TIMEOUT": 20,
}


def project(store: Server, **changes: Any) -> dict[str, Any]:
    """Settings of a project that has moved to Orbweb."""
    ours = "orbweb.adapters.scrapy"
    return {
        **QUIET,
        "SCHEDULER": f"{ours}.scheduler.Scheduler",
        "DUPEFILTER_CLASS": f"{ours}.dupefilter.RFPDupeFilter",
        "REDIS_URL": store.url,
        "ORBWEB_KEEP_ALIVE": False,
        **changes,
    }


def made_crawler(spider: type[Spider], **settings: Any) -> Crawler:
    """A crawler that does not run."""
    return get_crawler(spider, {**QUIET, **settings})


class Worker:
    """One worker of a crawl."""

    def __init__(self, spider: type[Spider], settings: dict[str, Any], **arguments: Any) -> None:
        self._runner = AsyncCrawlerRunner(settings)
        self._arguments = arguments
        self.crawler: Crawler = self._runner.create_crawler(spider)

    async def run(self) -> dict[str, Any]:
        """Crawl to the end; returns the statistics."""
        await self._runner.crawl(self.crawler, **self._arguments)
        return self.stats

    async def stop(self) -> None:
        """As SIGTERM does."""
        await self._runner.stop()

    @property
    def stats(self) -> dict[str, Any]:
        assert self.crawler.stats is not None
        return dict(self.crawler.stats.get_stats())


async def crawl(spider: type[Spider], settings: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """One worker, to the end; returns its statistics."""
    return await Worker(spider, settings, **arguments).run()


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait until something has come about."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
