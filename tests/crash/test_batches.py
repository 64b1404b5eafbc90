"""SIGKILL of masters and workers: every batch ends, and every row is crawled in each."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.crash.fleet import Fleet, Node
from tests.databases import KINDS, Database, Sqlite, open_database

HELD = 64  # what a node with CONCURRENT_REQUESTS 16 may hold
SETTINGS = {
    "ORBWEB_SPIDER_TASK_LEASE": 1,
    "ORBWEB_HEARTBEAT_INTERVAL": 0.3,
    "ORBWEB_CONCURRENT_REQUESTS_PER_DOMAIN": 0,
    "ORBWEB_TASK_POLL_INTERVAL": 0.3,
    "ORBWEB_BATCH_INTERVAL": 0.0001,
    "ORBWEB_BATCH_INTERVAL_UNIT": "hour",
    "ORBWEB_BATCH_PUSH_LIMIT": 100,
    "ORBWEB_MAX_DELIVERIES": 1000,  # a node that dies often kills no page
}


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    database = open_database(request.param)
    yield database
    database.stop()


def make_table(database: Database, rows: int) -> None:
    database.execute(
        "CREATE TABLE task (id INT PRIMARY KEY, url VARCHAR(50), batch_status INT, batch_id BIGINT)"
    )
    for start in range(0, rows, 500):
        values = (f"({n}, '/flat?n={n}', 0, NULL)" for n in range(start, min(start + 500, rows)))
        database.execute(f"INSERT INTO task VALUES {', '.join(values)}")


def ended(database: Database) -> list[tuple[object, ...]]:
    """Number, state and counts of the batches that have ended."""
    return database.rows(
        "SELECT number, state, total_count, done_count, fail_count FROM orbweb_batches "
        "WHERE ended_at IS NOT NULL ORDER BY number"
    )


def survive(directory: Path, database: Database, rows: int, batches: int, *, hard: bool) -> int:
    """Let batches pass while masters and workers are killed; returns how many pages came twice.

    `hard`: there is a standby, the database is killed too, and a worker sleeps from the middle of
    each batch into the next one.
    """
    rng = random.Random(rows)
    make_table(database, rows)
    settings = {**SETTINGS, "ORBWEB_BATCH_SQL_URL": database.url}
    with Fleet(directory, "TableSpider", latency=0.01, **settings) as fleet:
        masters = [fleet.start("monitor") for _ in range(1 + hard)]
        workers = [fleet.start("keep_alive"), fleet.start("keep_alive")]
        for batch in range(batches):
            fleet.until(batch * rows + rng.randrange(rows // 3), seconds=120)
            masters = [restarted(fleet, master, "monitor") for master in masters]
            fleet.until(batch * rows + rng.randrange(rows // 3, rows), seconds=120)
            victim = rng.randrange(2)
            workers[victim] = restarted(fleet, workers[victim], "keep_alive")
            if hard:
                if not isinstance(database, Sqlite):  # it may hold the lock of the file
                    workers[1 - victim].signal(signal.SIGSTOP)
                database.kill()
                database.start()
                fleet.until((batch + 1) * rows + 1, seconds=120)
                workers[1 - victim].signal(signal.SIGCONT)
        fleet.until_true(lambda: len(ended(database)) >= batches, 120, f"{batches} batches")
        nodes = [*workers, *masters]
        fleet.until_true(lambda: all(node.text() for node in nodes), 60, "word of each node")
        for node in nodes:
            node.signal(signal.SIGTERM)
        assert {node.wait(30) for node in workers} <= {0, 75}
        assert {node.wait(30) for node in masters} == {0}
        found = ended(database)[:batches]
        assert found == [(n, "done", rows, rows, 0) for n in range(1, batches + 1)]
        asked = Counter(pages(fleet, batches))
        assert asked.keys() == {(b, n) for b in range(1, batches + 1) for n in range(rows)}
        stored = Counter((row["batch"], row["row"]) for row in fleet.rows())
        assert all(stored[key] == 1 for key in asked)
        return asked.total() - len(asked)


def restarted(fleet: Fleet, node: Node, argument: str) -> Node:
    node.kill()
    return fleet.start(argument)


def pages(fleet: Fleet, batches: int) -> Iterator[tuple[int, int]]:
    """Batch and row of every page that the site was asked for."""
    for url, times in fleet.origin().counts().items():
        query = parse_qs(urlsplit(url).query)
        batch, row = int(query["batch"][0]), int(query["n"][0])
        if batch <= batches:
            yield from [(batch, row)] * times


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_killed_masters_and_workers_cost_no_row(tmp_path: Path, database: Database) -> None:
    repeats = survive(tmp_path, database, rows=100, batches=2, hard=False)
    assert repeats <= 2 * HELD


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", KINDS, indirect=True)
def test_three_batches_of_a_thousand_rows(tmp_path: Path, database: Database) -> None:
    began = time.monotonic()
    repeats = survive(tmp_path, database, rows=1000, batches=3, hard=True)
    print(f"{database.url.split(':')[0]}: {repeats} pages twice, {time.monotonic() - began:.0f} s")
    assert repeats <= 3 * 2 * HELD
