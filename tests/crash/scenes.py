"""What can befall the store in mid-crawl, for runs in one shard and for runs that are spread."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.crash.fleet import Fleet
from tests.crash.test_kill import FAST, assert_whole_tree
from tests.servers import Server

PAGES = 1000
ONE = {"latency": 0.1}
SPREAD = {"ORBWEB_FRONTIER_SHARDS": 4, "HOSTS": 8, "latency": 0.1}

Trouble = Callable[[Fleet, Server], None]


def crawl_through(
    directory: Path, kind: str, trouble: Trouble, *, repeats: bool = False, **settings: object
) -> None:
    """Two nodes crawl the forest while the trouble goes on; all of it is there at the end.

    `repeats`: pages may be fetched twice.
    """
    server = Server(kind, aof="everysec")
    settings |= {**FAST, "ORBWEB_REDIS_URL": server.url, "PAGES": PAGES}
    try:
        with Fleet(directory, "SpreadTreeSpider", **settings) as fleet:
            nodes = [fleet.start(), fleet.start()]
            fleet.until(PAGES // 5)
            trouble(fleet, server)
            assert [node.wait(90) for node in nodes] == [0, 0]
            assert_whole_tree(fleet, PAGES)
            assert repeats or fleet.origin().repeats() == 0
    finally:
        server.stop()


def away_for_five_seconds(fleet: Fleet, server: Server) -> None:
    """Killed, and started again when leases would have run out."""
    server.kill()
    time.sleep(5)
    server.start()


def hangs(seconds: float) -> Trouble:
    """Silent for many leases."""

    def trouble(fleet: Fleet, server: Server) -> None:
        server.pause()
        time.sleep(seconds)
        server.resume()

    return trouble


def torn_twice(fleet: Fleet, server: Server) -> None:
    """Loses the end of its log, and starts a second time as well; and all of that once more."""
    rng = random.Random(3)
    for pages in (PAGES // 2, PAGES * 4 // 5):  # what is cut off must not hold the run's beginning
        fleet.until(pages)
        server.kill()
        tear(server, rng)
        server.start()
        time.sleep(0.5)
        server.kill()
        server.start()


def tear(server: Server, rng: random.Random) -> None:
    """Cut the log somewhere in its last 50 kB, as a power loss does."""
    log = sorted((server.directory / "appendonlydir").glob("*.incr.aof"))[-1]
    size = log.stat().st_size
    os.truncate(log, size - rng.randint(1, min(50_000, size - 1)))
