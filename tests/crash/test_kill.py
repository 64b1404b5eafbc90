"""SIGKILL at any instant: no URL and no item is lost, and little is fetched twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.crash.fleet import Fleet

from orbweb.testing.pages import Tree

HELD = 64  # what a node with CONCURRENT_REQUESTS 16 may hold
FAST = {"ORBWEB_SPIDER_TASK_LEASE": 3, "ORBWEB_CONCURRENT_REQUESTS_PER_DOMAIN": 0}


def assert_whole_tree(fleet: Fleet, pages: int) -> None:
    asked = fleet.origin().counts()
    missing = {url for url in map(Tree(of=pages).url, range(pages)) if url not in asked}
    assert not missing
    items = Counter(row["item"] for row in fleet.rows())
    assert items == Counter(f"{n}-0" for n in range(pages))


def test_two_processes_share_the_first_documents_spider(tmp_path: Path) -> None:
    with Fleet(tmp_path, "NewsSpider") as fleet:
        nodes = [fleet.start(), fleet.start()]
        assert [node.wait(90) for node in nodes] == [0, 0]
        counts = fleet.origin().counts()
        assert len(counts) == 99 + 990
        assert set(counts.values()) == {1}
        assert len(fleet.rows()) == 990
        done = [int(str(node.summary()["request_ok"])) for node in nodes]
        assert sum(done) == 1089
        assert min(done) > 0


KINDS = ["compact", pytest.param("bloom", marks=pytest.mark.long)]
KINDS += [pytest.param("set", marks=pytest.mark.long)]


@pytest.mark.parametrize("kind", KINDS)
def test_kills_lose_nothing_whatever_remembers_the_seen(tmp_path: Path, kind: str) -> None:
    pages, rng = 600, random.Random(11)
    seen = {"ORBWEB_DEDUP_FILTER": kind, "ORBWEB_DEDUP_INITIAL_CAPACITY": 100}
    with Fleet(tmp_path, "TreeSpider", PAGES=pages, latency=0.02, **FAST, **seen) as fleet:
        nodes = [fleet.start(), fleet.start()]
        fleet.until(50)
        for _ in range(3):
            time.sleep(rng.uniform(0.1, 0.7))
            victim = rng.randrange(2)
            nodes[victim].kill()
            nodes[victim] = fleet.start()
        assert [node.wait(120) for node in nodes] == [0, 0]
        assert_whole_tree(fleet, pages)


@pytest.mark.parametrize("keep_alive", [False, True])
def test_eight_kills_lose_nothing_of_a_link_tree(tmp_path: Path, keep_alive: bool) -> None:
    pages, rng = 1500, random.Random(7)
    arguments = ("keep_alive",) if keep_alive else ()
    with Fleet(tmp_path, "TreeSpider", PAGES=pages, latency=0.1, **FAST) as fleet:
        nodes = [fleet.start(*arguments), fleet.start(*arguments)]
        fleet.until(100)
        for _ in range(8):
            time.sleep(rng.uniform(0.1, 0.7))
            victim = rng.randrange(2)
            nodes[victim].kill()
            nodes[victim] = fleet.start(*arguments)
        if keep_alive:
            fleet.until(pages, 120)
            fleet.until_true(lambda: len(fleet.origin().counts()) == pages, 120, "whole tree")
            fleet.until_true(lambda: rows_in(fleet) >= pages, 30, "all rows")
            assert all(node.running for node in nodes)
            fleet.orbweb("stop", "TreeSpider")
        assert [node.wait(120) for node in nodes] == [0, 0]
        assert_whole_tree(fleet, pages)
        assert fleet.origin().repeats() <= 8 * HELD


def rows_in(fleet: Fleet) -> int:
    path = fleet.directory / "items.jsonl"
    return len(set(path.read_text().splitlines())) if path.exists() else 0


def test_another_node_finishes_the_seeding_of_a_killed_one(tmp_path: Path) -> None:
    with Fleet(tmp_path, "FlatSpider", PAGES=3000, SEED_DELAY=0.001, **FAST) as fleet:
        seeder = fleet.start()
        fleet.until(1000)
        seeder.kill()
        assert fleet.start().wait(90) == 0
        assert set(fleet.origin().counts()) == {f"/flat?n={n}" for n in range(3000)}
        assert len(fleet.rows()) == 3000


def test_24_tasks_survive_a_kill_after_1200_ms(tmp_path: Path) -> None:
    settings = {**FAST, "ORBWEB_CONCURRENT_REQUESTS": 4}
    with Fleet(tmp_path, "FlatSpider", PAGES=24, WORK=0.3, **settings) as fleet:
        first = fleet.start()
        fleet.until(4)
        time.sleep(1.2)
        first.kill()
        assert fleet.start().wait(60) == 0
        assert sorted(row["item"] for row in fleet.rows()) == sorted(f"{n}-0" for n in range(24))


def test_a_healthy_node_keeps_what_it_holds_and_a_dead_one_gives_it_back(tmp_path: Path) -> None:
    settings = {"ORBWEB_SPIDER_TASK_LEASE": 2, "ORBWEB_CALLBACK_THREADS": 1}
    with Fleet(tmp_path, "FlatSpider", PAGES=5, WORK=1.2, **settings) as fleet:
        healthy = fleet.start()
        fleet.until(5)
        thief = fleet.start()
        assert healthy.wait(30) == 0
        assert thief.wait(30) == 0
        assert fleet.origin().repeats() == 0
        assert len(fleet.rows()) == 5


def test_a_dead_nodes_requests_are_recovered(tmp_path: Path) -> None:
    settings = {"ORBWEB_SPIDER_TASK_LEASE": 2, "ORBWEB_CALLBACK_THREADS": 1}
    with Fleet(tmp_path, "FlatSpider", PAGES=5, WORK=0.6, **settings) as fleet:
        dead = fleet.start()
        fleet.until_true(lambda: rows_in(fleet) >= 2, 20, "two rows")
        dead.kill()
        stored = rows_in(fleet)
        assert stored < 5
        assert fleet.start().wait(30) == 0
        assert len(fleet.rows()) == 5
        left = 5 - stored
        assert left <= fleet.origin().repeats() <= left + 1, "the last one may not be acknowledged"


@pytest.mark.parametrize("batch_seconds", [0.3, 1.5])
def test_400_rows_through_a_slow_pipeline_and_a_kill(tmp_path: Path, batch_seconds: float) -> None:
    settings = {
        **FAST,
        "BATCH_SECONDS": batch_seconds,
        "ORBWEB_ITEM_PIPELINES": '["spiders.SlowPipeline"]',
        "PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}",
    }
    with Fleet(tmp_path, "FlatSpider", PAGES=400, **settings) as fleet:
        first = fleet.start()
        fleet.until(150)
        time.sleep(batch_seconds / 2)
        first.kill()
        assert fleet.start().wait(90) == 0
        rows = dict(line.split(" ") for line in (tmp_path / "slow.txt").read_text().splitlines())
        assert sorted(rows.values()) == sorted(f"{n}-0" for n in range(400))


def test_a_page_that_kills_its_process_becomes_a_dead_letter(tmp_path: Path) -> None:
    settings = {"ORBWEB_SPIDER_TASK_LEASE": 1, "ORBWEB_CONCURRENT_REQUESTS": 4}
    with Fleet(tmp_path, "PoisonSpider", PAGES=30, **settings) as fleet:
        code = -signal.SIGKILL
        starts = 0
        while code == -signal.SIGKILL and starts < 10:
            code = fleet.start().wait(30)
            starts += 1
        assert code == 0
        assert starts == 6  # five deliveries, five deaths
        assert fleet.origin().counts()["/flat?n=7"] == 5
        assert len(fleet.rows()) == 29
        assert fleet.nodes[-1].summary()["run"]["reasons"]["poison"] == 1  # type: ignore[index]


def test_a_node_that_slept_past_its_lease_changes_nothing(tmp_path: Path) -> None:
    settings = {"ORBWEB_SPIDER_TASK_LEASE": 1, "ORBWEB_CONCURRENT_REQUESTS": 4}
    with Fleet(tmp_path, "FlatSpider", PAGES=60, WORK=0.05, **settings) as fleet:
        sleeper = fleet.start()
        fleet.until(6)
        sleeper.signal(signal.SIGSTOP)
        other = fleet.start()
        assert other.wait(60) == 0
        sleeper.signal(signal.SIGCONT)
        assert sleeper.wait(30) == 0
        assert len(fleet.rows()) == 60
        run = sleeper.summary()["run"]
        assert run["reasons"]["done"] == 60  # type: ignore[index]


def test_a_blocking_callback_keeps_its_lease(tmp_path: Path) -> None:
    with Fleet(tmp_path, "FlatSpider", PAGES=2, WORK=4, ORBWEB_SPIDER_TASK_LEASE=1) as fleet:
        nodes = [fleet.start(), fleet.start()]
        assert [node.wait(40) for node in nodes] == [0, 0]
        assert fleet.origin().repeats() == 0


def test_sigterm_in_a_long_retry_after_is_quick_and_loses_nothing(tmp_path: Path) -> None:
    with Fleet(tmp_path, "WaitingSpider") as fleet:
        node = fleet.start()
        fleet.until(1)
        time.sleep(0.5)
        began = time.monotonic()
        node.signal(signal.SIGTERM)
        assert node.wait(10) == 75
        assert time.monotonic() - began < 5
        assert node.summary()["run"]["pending"] == 20  # type: ignore[index]
        assert len(fleet.origin()) <= 8, "the others were not sent to a host that asked for a pause"


def test_sigterm_in_the_middle_gives_everything_back(tmp_path: Path) -> None:
    with Fleet(tmp_path, "FlatSpider", PAGES=300, WORK=0.1, **FAST) as fleet:
        node = fleet.start()
        fleet.until(40)
        node.signal(signal.SIGTERM)
        assert node.wait(6) == 75
        assert fleet.start(WORK=0).wait(60) == 0
        assert len(fleet.rows()) == 300
