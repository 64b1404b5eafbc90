"""The store dies, hangs or loses the end of its log in mid-crawl: the crawl is whole."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from tests.crash.fleet import Fleet
from tests.crash.test_kill import FAST, assert_whole_tree
from tests.servers import Server, redis_binary

PAGES = 3000
KINDS = [
    "valkey",
    pytest.param(
        "redis",
        marks=pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed"),
    ),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_server_that_returns_after_five_seconds(tmp_path: Path, kind: str) -> None:
    server = Server(kind, aof="everysec")
    settings = {**FAST, "ORBWEB_REDIS_URL": server.url}
    try:
        with Fleet(tmp_path, "TreeSpider", PAGES=PAGES, latency=0.02, **settings) as fleet:
            nodes = [fleet.start(), fleet.start()]
            fleet.until(500)
            server.kill()
            time.sleep(5)
            server.start()
            assert [node.wait(90) for node in nodes] == [0, 0]
            assert_whole_tree(fleet, PAGES)
            assert fleet.origin().repeats() == 0
    finally:
        server.stop()


def outage(tmp_path: Path, seconds: float) -> None:
    server = Server("valkey", aof="everysec")
    settings = {**FAST, "ORBWEB_REDIS_URL": server.url, "ORBWEB_STORE_TIMEOUT": 0.5}
    try:
        with Fleet(tmp_path, "TreeSpider", PAGES=PAGES, latency=0.02, **settings) as fleet:
            nodes = [fleet.start(), fleet.start()]
            fleet.until(500)
            server.pause()
            time.sleep(seconds)
            server.resume()
            assert [node.wait(90) for node in nodes] == [0, 0]
            assert_whole_tree(fleet, PAGES)
            assert fleet.origin().repeats() == 0
    finally:
        server.stop()


def test_an_outage_of_many_leases_repeats_no_fetch(tmp_path: Path) -> None:
    outage(tmp_path, 12)


@pytest.mark.long
def test_an_outage_of_a_minute_repeats_no_fetch(tmp_path: Path) -> None:
    outage(tmp_path, 60)


@pytest.mark.parametrize("kind", KINDS)
def test_a_torn_log_and_two_restarts(tmp_path: Path, kind: str) -> None:
    rng = random.Random(3)
    server = Server(kind, aof="everysec")
    settings = {**FAST, "ORBWEB_REDIS_URL": server.url}
    try:
        with Fleet(tmp_path, "TreeSpider", PAGES=PAGES, latency=0.02, **settings) as fleet:
            nodes = [fleet.start(), fleet.start()]
            for pages in (500, 1000):
                fleet.until(pages)
                server.kill()
                tear(server, rng)
                server.start()
                time.sleep(0.5)
                server.kill()
                server.start()
            assert [node.wait(90) for node in nodes] == [0, 0]
            assert_whole_tree(fleet, PAGES)
    finally:
        server.stop()


def tear(server: Server, rng: random.Random) -> None:
    """Cut the log somewhere in its last 50 kB, as a power loss does."""
    log = sorted((server.directory / "appendonlydir").glob("*.incr.aof"))[-1]
    size = log.stat().st_size
    os.truncate(log, size - rng.randint(1, min(50_000, size - 1)))
