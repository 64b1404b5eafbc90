"""Tasks in real processes: pushed from elsewhere, shared by nodes, killed in the middle, told."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.crash.fleet import Fleet
from tests.databases import open_database, postgres_program

SPIDERS = Path(__file__).with_name("task_spiders.py")
SETTINGS = {
    "ORBWEB_SPIDER_TASK_LEASE": 1.5,
    "ORBWEB_TASK_POLL_INTERVAL": 0.2,
    "ORBWEB_CONCURRENT_REQUESTS_PER_DOMAIN": 0,
    "ORBWEB_MAX_DELIVERIES": 1000,  # a node that dies often kills no task
}


def test_the_first_documents_spider_gets_tasks_from_another_process(tmp_path: Path) -> None:
    with Fleet(tmp_path, "ProductSpider", script=SPIDERS, **SETTINGS) as fleet:
        assert fleet.start("push", "1", "4").wait(30) == 0
        nodes = [fleet.start("keep_alive"), fleet.start("keep_alive")]
        fleet.until_true(lambda: _products(fleet) == 3, 30, "three products")
        assert fleet.start("push", "4", "7").wait(30) == 0  # both stay, and go on
        fleet.until_true(lambda: _products(fleet) == 6, 30, "three further products")
        counts = "ProductSpider: waiting 0 · open 0 · done 6 · failed 0\n"
        fleet.until_true(
            lambda: fleet.orbweb("tasks", "count", "ProductSpider") == counts, 10, counts
        )
        assert all(node.running for node in nodes)
        fleet.orbweb("stop", "ProductSpider")
        assert [node.wait(30) for node in nodes] == [0, 0]
        pages = fleet.origin().where(lambda hit: hit.path.startswith("/p/")).counts()
        assert pages == {f"/p/{id}": 1 for id in range(1, 7)}
        assert sorted((row["id"], row["price"]) for row in fleet.rows()) == [
            (id, f"{id * 1.25:.2f}") for id in range(1, 7)
        ]


def _products(fleet: Fleet) -> int:
    return len(fleet.origin().where(lambda hit: hit.path.startswith("/product")))


def test_tasks_pushed_again_are_crawled_again(tmp_path: Path) -> None:
    with Fleet(tmp_path, "ProductSpider", script=SPIDERS, **SETTINGS) as fleet:
        for _ in range(2):
            fleet.start("push", "1", "4").wait(30)
            assert fleet.start().wait(30) == 0
        asked = fleet.origin().where(lambda hit: hit.path.startswith("/p/")).counts()
        assert asked == {f"/p/{id}": 2 for id in range(1, 4)}


def survive(directory: Path, tasks: int, kills: int) -> float:
    """Work through tasks on two nodes of which one after the other is killed; seconds it took."""
    rng = random.Random(6)
    table = sqlite3.connect(directory / "tasks.db", timeout=60)
    table.execute("PRAGMA journal_mode = WAL")
    table.execute("CREATE TABLE task (id INT PRIMARY KEY, done INT DEFAULT 0, told INT DEFAULT 0)")
    table.executemany("INSERT INTO task (id) VALUES (?)", [(n,) for n in range(tasks)])
    table.commit()

    def done() -> int:
        return int(table.execute("SELECT COUNT(*) FROM task WHERE done = 1").fetchone()[0])

    with Fleet(directory, "TableSpider", script=SPIDERS, **SETTINGS) as fleet:
        assert fleet.start("push", "0", str(tasks)).wait(60) == 0
        began = time.monotonic()
        nodes = [fleet.start(), fleet.start()]
        for number in range(kills):
            goal = tasks * (number + 1) // (kills + 2)
            fleet.until_true(lambda goal=goal: done() >= goal, 120, f"{goal} tasks")  # type: ignore[misc]
            victim = rng.randrange(2)
            nodes[victim].kill()
            nodes[victim] = fleet.start()
        assert {node.wait(240) for node in nodes} <= {0, 3}
        seconds = time.monotonic() - began
        counted = json.loads(fleet.orbweb("tasks", "count", "TableSpider", "--json"))
        assert counted == {
            "job": "TableSpider",
            "waiting": 0,
            "open": 0,
            "done": tasks,
            "failed": 0,
        }
    assert done() == tasks
    told = Counter(times for (times,) in table.execute("SELECT told FROM task"))
    assert min(told) == 1
    assert sum(times for times in told if times > 1) <= kills * 64  # what a killed node may hold
    return seconds


def test_every_task_is_done_whoever_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, tasks=1_000, kills=2)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_thousand_tasks_are_done_with_five_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = survive(tmp_path, tasks=10_000, kills=5)
    with capsys.disabled():
        print(f"\n10,000 tasks, 2 nodes, 5 SIGKILL: 0 lost, {seconds:.0f} s")


@pytest.mark.skipif(postgres_program() is None, reason="postgres (Debian package) is missing")
def test_rows_that_were_marked_and_never_pushed_come_back(tmp_path: Path) -> None:
    database = open_database("postgres")
    try:
        database.execute(
            "CREATE TABLE crawl_task (id INT PRIMARY KEY, status INT NOT NULL DEFAULT 0)",
            "INSERT INTO crawl_task (id) SELECT generate_series(1, 20)",
        )
        settings = {**SETTINGS, "ORBWEB_TASK_BATCH_SIZE": 8, "DATABASE": plain(database.url)}
        with Fleet(tmp_path, "RowsSpider", script=SPIDERS, **settings) as fleet:
            assert fleet.start().wait(30) == -9
            lost = "SELECT id FROM crawl_task WHERE status = 1 ORDER BY id"
            assert database.rows(lost) == [(n,) for n in range(1, 9)]
            assert fleet.start().wait(30) == 0
            asked = fleet.origin().counts()
            assert sorted(asked.values()) == [1] * 20
        assert database.rows("SELECT DISTINCT status FROM crawl_task") == [(2,)]
    finally:
        database.stop()


def plain(url: str) -> str:
    """The URL as psycopg itself reads it."""
    return url.replace("postgresql+psycopg", "postgresql")
