"""Each setting that is declared hot changes in two nodes in the middle of a run."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

from tests.live.pair import Answer, working
from tests.servers import Server


async def test_DOWNLOAD_DELAY(live_server: Server, tmp_path: Path) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.02) as pair:
        at = await pair.holds("DOWNLOAD_DELAY", "0.4")
        await pair.until(lambda: len(pair.site.since(at + 0.1)) > 3, 5)  # turns were given before
        times = [hit.t for hit in pair.site.since(at + 0.1)]
        assert min(b - a for a, b in pairwise(times)) > 0.3
        at = await pair.holds("DOWNLOAD_DELAY", "0")
        await pair.until(lambda: len(pair.site.since(at)) > 100)


async def test_CONCURRENT_REQUESTS(live_server: Server, tmp_path: Path) -> None:
    async with working(
        live_server.url, tmp_path, CONCURRENT_REQUESTS=1, CONCURRENT_REQUESTS_PER_DOMAIN=0
    ) as pair:
        pair.site.answer = lambda path: Answer(seconds=0.2)
        await asyncio.sleep(0.3)
        assert pair.site.now <= 2
        await pair.holds("CONCURRENT_REQUESTS", "5")
        await pair.until(lambda: pair.site.now == 10)
        await pair.holds("CONCURRENT_REQUESTS", "2")
        await pair.until(lambda: pair.site.now <= 4)
        await asyncio.sleep(0.5)
        assert pair.site.now <= 4
