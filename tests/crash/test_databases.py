"""SIGKILL of nodes and databases: every row is in its table exactly once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.fleet import Fleet
from tests.databases import KINDS, Database, open_database

ITEMS = 10
SETTINGS = {
    "ORBWEB_SPIDER_TASK_LEASE": 1,
    "ORBWEB_CONCURRENT_REQUESTS_PER_DOMAIN": 0,
    "ORBWEB_ITEM_PIPELINES": "orbweb.pipelines.sql.SqlPipeline",
    "ORBWEB_SQL_CREATE_TABLES": "false",
    "ORBWEB_MAX_DELIVERIES": 1000,  # a node that dies often kills no page
    "ITEMS": ITEMS,
    "WORK": 0.05,
}


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    database = open_database(request.param)
    # Without a key: nothing but the ledger of pages keeps a row from coming twice.
    database.execute("CREATE TABLE items (page INT NOT NULL, number INT NOT NULL)")
    yield database
    database.stop()


def survive(directory: Path, database: Database, pages: int, kills: int) -> None:
    """Crawl `pages`, while nodes and, each fifth time, the database are killed."""
    rng = random.Random(5)
    settings = {**SETTINGS, "ORBWEB_SQL_URL": database.url, "PAGES": pages}
    with Fleet(directory, "RowsSpider", latency=0.02, **settings) as fleet:
        nodes = [fleet.start(), fleet.start()]
        for number in range(kills):
            goal = pages * (number + 1) // (kills + 2)
            fleet.until_true(
                lambda goal=goal: stored(database) >= goal * ITEMS,  # type: ignore[misc]
                120,
                f"{goal} pages in the database",
            )
            time.sleep(rng.uniform(0, 0.3))
            if number % 5 == 1:
                database.kill()
                time.sleep(rng.uniform(0, 0.5))
                database.start()
            else:
                victim = rng.randrange(2)
                nodes[victim].kill()
                nodes[victim] = fleet.start()
        # One that came after the last page found a run that was finished.
        assert {node.wait(240) for node in nodes} <= {0, 3}
    rows = Counter(database.rows("SELECT page, number FROM items"))
    assert rows == Counter((page, number) for page in range(pages) for number in range(ITEMS))


def stored(database: Database) -> int:
    (count,) = database.rows("SELECT COUNT(*) FROM items")[0]
    assert isinstance(count, int)
    return count


def test_every_row_is_there_once_after_kills(tmp_path: Path, database: Database) -> None:
    survive(tmp_path, database, pages=60, kills=3)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_row_is_there_once_after_fifty_kills(tmp_path: Path, database: Database) -> None:
    survive(tmp_path, database, pages=500, kills=50)
