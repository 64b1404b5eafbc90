"""A sink that is away: nothing is lost, nothing is written elsewhere, memory stays flat."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from tests.crash.fleet import Fleet
from tests.databases import Database, open_database

PIPELINES = (
    "orbweb.pipelines.sql.SqlPipeline,"
    "orbweb.pipelines.jsonl.JsonLinesPipeline,"
    "orbweb.pipelines.parquet.ParquetPipeline"
)
SETTINGS = {
    "ORBWEB_CONCURRENT_REQUESTS_PER_DOMAIN": 0,
    "ORBWEB_SPIDER_TASK_LEASE": 3,
    "ORBWEB_ITEM_PIPELINES": PIPELINES,
    "ITEMS": 10,
}
MOST_GROWTH_KIB = 80 * 1024


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def survive_outage(directory: Path, database: Database, pages: int, seconds: float) -> list[int]:
    """Crawl while the database is away; returns the node's memory (KiB) through the outage."""
    database.execute("CREATE TABLE items (page INT NOT NULL, number INT NOT NULL)")
    settings = {**SETTINGS, "ORBWEB_SQL_URL": database.url, "PAGES": pages}
    with Fleet(directory, "RowsSpider", latency=0.002, **settings) as fleet:
        node = fleet.start()
        fleet.until(pages // 10)
        database.kill()
        memory = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(seconds / 10)
            memory.append(resident_kib(node.process.pid))
        asked = len(fleet.origin())
        assert asked < pages, "the outage came too late to see anything"
        database.start()
        assert node.wait(120) == 0
        every = Counter((page, number) for page in range(pages) for number in range(10))
        assert Counter(database.rows("SELECT page, number FROM items")) == every
        rows = Counter((row["page"], row["number"]) for row in fleet.rows())
        assert rows == every
        assert fleet.origin().repeats() == 0, "a page was given back"
        written = {each.name for each in directory.iterdir()} - {".orbweb", "origin.jsonl"}
        logs = {each.output.name for each in fleet.nodes}
        assert written - logs == {"items", "items.jsonl"}
        summary = node.summary()
        assert summary["item_failed"] == 0
    return memory


@pytest.fixture
def database() -> Database:
    return open_database("postgres")


def test_a_short_outage_of_one_of_three_sinks(tmp_path: Path, database: Database) -> None:
    survive_outage(tmp_path, database, pages=400, seconds=4)
    database.stop()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_two_minutes_without_the_database(tmp_path: Path, database: Database) -> None:
    memory = survive_outage(tmp_path, database, pages=3000, seconds=120)
    print("resident KiB through the outage:", memory)
    assert max(memory) - memory[0] < MOST_GROWTH_KIB
    database.stop()
