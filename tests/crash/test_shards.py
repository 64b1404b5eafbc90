"""Runs that are spread over shards, on one server and on a cluster, survive what others survive."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster import Cluster
from tests.crash.fleet import Fleet
from tests.crash.test_kill import FAST, assert_whole_tree
from tests.servers import Server

from orbweb.frontier.keys import ShardKeys

PAGES = 800
SHARDS = 4
SPREAD = {**FAST, "ORBWEB_FRONTIER_SHARDS": SHARDS, "HOSTS": 8, "latency": 0.02}
LONG = pytest.mark.long


@contextmanager
def store(kind: str) -> Iterator[str]:
    """The URL of one server, or of some of a cluster."""
    running = Cluster() if kind == "cluster" else Server(kind, aof="everysec")
    try:
        yield running.url
    finally:
        running.stop()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("kind", ["valkey", pytest.param("cluster", marks=LONG)])
def test_eight_kills_lose_nothing(tmp_path: Path, kind: str) -> None:
    rng = random.Random(7)
    with store(kind) as url:
        settings = {**SPREAD, "ORBWEB_REDIS_URL": url, "PAGES": PAGES}
        with Fleet(tmp_path, "SpreadTreeSpider", **settings) as fleet:
            nodes = [fleet.start(), fleet.start()]
            fleet.until(100)
            for _ in range(8):
                time.sleep(rng.uniform(0.1, 0.5))
                victim = rng.randrange(2)
                nodes[victim].kill()
                nodes[victim] = fleet.start()
            assert [node.wait(90) for node in nodes] == [0, 0]
            assert_whole_tree(fleet, PAGES)
            assert {hit.host.partition(":")[0] for hit in fleet.origin()} == {
                f"127.0.0.{n}" for n in range(1, 9)
            }


@pytest.mark.parametrize("kind", ["valkey", pytest.param("cluster", marks=LONG)])
def test_a_quiet_run_fetches_every_page_once_on_every_node(tmp_path: Path, kind: str) -> None:
    with store(kind) as url:
        settings = {**SPREAD, "ORBWEB_REDIS_URL": url, "PAGES": PAGES}
        with Fleet(tmp_path, "SpreadTreeSpider", **settings) as fleet:
            nodes = [fleet.start(), fleet.start()]
            assert [node.wait(90) for node in nodes] == [0, 0]
            assert_whole_tree(fleet, PAGES)
            assert fleet.origin().repeats() == 0
            done = [int(str(node.summary()["request_ok"])) for node in nodes]
            assert sum(done) == PAGES
            assert min(done) > PAGES / 10


@LONG
@pytest.mark.parametrize("kind", ["valkey", "cluster"])
def test_another_node_finishes_the_seeding_of_a_killed_one(tmp_path: Path, kind: str) -> None:
    with store(kind) as url:
        settings = {**SPREAD, "ORBWEB_REDIS_URL": url, "PAGES": 3_000, "SEED_DELAY": 0.001}
        with Fleet(tmp_path, "FlatSpider", **settings) as fleet:
            seeder = fleet.start()
            fleet.until(1_000)
            seeder.kill()
            assert fleet.start().wait(90) == 0
            assert set(fleet.origin().counts()) == {f"/flat?n={n}" for n in range(3_000)}
            assert len(fleet.rows()) == 3_000


@LONG
@pytest.mark.parametrize("kind", ["valkey", "cluster"])
def test_a_page_that_kills_its_process_becomes_a_dead_letter(tmp_path: Path, kind: str) -> None:
    with store(kind) as url:
        settings = {**SPREAD, "ORBWEB_REDIS_URL": url, "PAGES": 30}
        settings |= {"ORBWEB_SPIDER_TASK_LEASE": 1, "ORBWEB_CONCURRENT_REQUESTS": 4}
        with Fleet(tmp_path, "PoisonSpider", **settings) as fleet:
            codes = [fleet.start().wait(30)]
            while codes[-1] == -signal.SIGKILL and len(codes) < 10:
                codes.append(fleet.start().wait(30))
            assert codes[-1] == 0
            assert fleet.origin().counts()["/flat?n=7"] == 5
            assert len(fleet.rows()) == 29


@pytest.mark.parametrize("shards", [SHARDS, pytest.param(1, marks=LONG)])
def test_a_master_dies_and_its_replica_takes_its_place(
    tmp_path: Path, cluster: Cluster, shards: int
) -> None:
    victim = cluster.master_of(ShardKeys("orbweb", shards - 1).tag)
    settings = {**SPREAD, "ORBWEB_REDIS_URL": cluster.url, "PAGES": PAGES}
    settings |= {"ORBWEB_FRONTIER_SHARDS": shards, "ORBWEB_STORE_TIMEOUT": 1}
    with Fleet(tmp_path, "SpreadTreeSpider", **settings) as fleet:
        nodes = [fleet.start(), fleet.start()]
        fleet.until(PAGES // 4)
        cluster.masters[victim].kill()
        nodes[0].kill()
        nodes[0] = fleet.start()
        cluster.until_promoted(victim)
        assert [node.wait(90) for node in nodes] == [0, 0]
        assert_whole_tree(fleet, PAGES)
        assert f"{PAGES} pages" in fleet.orbweb("status", "SpreadTreeSpider")
        report = fleet.orbweb("doctor")
        assert report.count("master of a cluster") == 3
        assert report.count("no replica is connected") == 1


@LONG
@pytest.mark.parametrize("time_of_death", range(6))
def test_every_master_dies_once(tmp_path: Path, cluster: Cluster, time_of_death: int) -> None:
    settings = {**SPREAD, "ORBWEB_REDIS_URL": cluster.url, "PAGES": PAGES}
    settings["ORBWEB_STORE_TIMEOUT"] = 1
    with Fleet(tmp_path, "SpreadTreeSpider", **settings) as fleet:
        nodes = [fleet.start(), fleet.start()]
        for number, pages in enumerate((100, 300, 500)):
            fleet.until(pages + 30 * time_of_death)
            cluster.masters[number].kill()
            cluster.until_promoted(number)
            cluster.masters[number].start()
            fleet.until_true(cluster.healthy, 60, "cluster")
        assert [node.wait(90) for node in nodes] == [0, 0]
        assert_whole_tree(fleet, PAGES)


@LONG
def test_a_master_that_is_only_slow_loses_nothing_either(tmp_path: Path, cluster: Cluster) -> None:
    settings = {**SPREAD, "ORBWEB_REDIS_URL": cluster.url, "PAGES": PAGES}
    settings["ORBWEB_STORE_TIMEOUT"] = 1
    with Fleet(tmp_path, "SpreadTreeSpider", **settings) as fleet:
        nodes = [fleet.start(), fleet.start()]
        fleet.until(PAGES // 4)
        for number in range(3):  # it wakes up as a master that is none any more
            process = cluster.masters[number].process
            os.kill(process.pid, signal.SIGSTOP)
            cluster.until_promoted(number)
            os.kill(process.pid, signal.SIGCONT)
            fleet.until_true(lambda: slaves(cluster) == 3, 60, "three replicas")
        assert [node.wait(90) for node in nodes] == [0, 0]
        assert_whole_tree(fleet, PAGES)


def slaves(cluster: Cluster) -> int:
    return sum(each.role() == "slave" for each in cluster.servers)
