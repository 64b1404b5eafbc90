"""Totals of the fleet while nodes are killed: they never go down, and what the store counts is exact."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.crash.fleet import Fleet

from orbweb.frontier.embedded import EmbeddedStore
from orbweb.frontier.overview import Overview, StoreView
from orbweb.frontier.servers import OneServer
from orbweb.monitor.counts import Counts, decode, total
from orbweb.testing.pages import Tree

PAGES = 400


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
            lambda: bool(watcher.look().runs) and watcher.counts().download.count > 20, 60, "counts"
        )
        first.kill()
        before = watcher.counts()
        second = fleet.start()
        seen = [before.download.count]
        while second.running:
            seen.append(watcher.counts().download.count)
        assert second.wait(60) == 0
        assert seen == sorted(seen)
        (run,) = watcher.look().runs
        after = watcher.counts()
        assert (
            run.info.status.reasons["done"]
            == PAGES
            == len(set(map(Tree(of=PAGES).url, range(PAGES))))
        )
        assert after.statuses["2xx"] == after.download.count
        assert (
            fleet.asked() - 10 * 5 <= after.statuses["2xx"] <= fleet.asked()
        )  # 5 s of 10 a second
        assert after.items["items"]["stored"] >= before.items["items"]["stored"]
