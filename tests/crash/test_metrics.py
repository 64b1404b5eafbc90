"""Totals of the fleet while nodes are killed: none goes down, the store's own are exact."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.crash.fleet import Fleet

from orbweb.frontier.embedded import EmbeddedStore
from orbweb.frontier.overview import Overview, StoreView
from orbweb.frontier.servers import OneServer
from orbweb.monitor.counts import Counts, decode, total

PAGES = 200
LOST = 50
"""Answers that a node of ten a second has counted since it told of them (5 s)."""


class Watcher:
    """Looks at the store as an exporter does."""

    def __init__(self, folder: Path) -> None:
        self._url = EmbeddedStore(folder).url

    def look(self) -> StoreView:
        return asyncio.run(self._look())

    async def _look(self) -> StoreView:
        servers = OneServer(self._url)
        try:
            return await Overview(servers, "orbweb").look()
        finally:
            await servers.aclose()

    def counts(self) -> Counts:
        (run,) = self.look().runs
        return total(map(decode, run.counts))


def test_totals_survive_the_nodes_that_counted_them(tmp_path: Path) -> None:
    fast = {"ORBWEB_SPIDER_TASK_LEASE": 3, "ORBWEB_CONCURRENT_REQUESTS_PER_DOMAIN": 0}
    with Fleet(tmp_path, "TreeSpider", PAGES=PAGES, latency=0.2, **fast) as fleet:
        fleet.store("start")
        watcher = Watcher(tmp_path)
        first = fleet.start(ORBWEB_CONCURRENT_REQUESTS=2)
        fleet.until_true(
            lambda: bool(watcher.look().runs) and watcher.counts().download.count > 5, 60, "counts"
        )
        first.kill()
        before = watcher.counts()
        second = fleet.start()
        seen = [before.download.count]
        fleet.until_true(
            lambda: seen.append(watcher.counts().download.count) or not second.running, 60, "end"
        )
        assert second.wait(60) == 0
        assert seen == sorted(seen)
        (run,) = watcher.look().runs
        after = watcher.counts()
        assert run.info.status.reasons["done"] == PAGES
        assert after.statuses["2xx"] == after.download.count
        assert fleet.asked() - LOST <= after.statuses["2xx"] <= fleet.asked()
        assert after.items["items"]["stored"] >= before.items["items"]["stored"]
