"""A task table and the records of its batches, in memory and in real databases: one contract."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.databases import KINDS, Database, open_database

from orbweb.errors import ConfigError
from orbweb.sources import DOING, DONE, FAILED, TODO, BatchState, MemoryBatchStore, TaskCounts
from orbweb.sources.base import BatchStore
from orbweb.sources.sql import MysqlBatchStore, SqlBatchStore
from orbweb.sources.sql_tasks import Columns

ROWS = 25


class Place:
    """Where a store is, and how a test looks behind it."""

    def __init__(self, database: Database | None) -> None:
        self.database = database
        self.made: list[BatchStore] = []
        self.memory = [{"id": n, "url": f"/{n}"} for n in range(1, ROWS + 1)]
        if database is not None:
            database.execute(
                "CREATE TABLE task (id BIGINT PRIMARY KEY, url VARCHAR(50), update_time TIMESTAMP)",
                *(f"INSERT INTO task (id, url) VALUES ({n}, '/{n}')" for n in range(1, ROWS + 1)),
            )

    def store(self) -> BatchStore:
        if self.database is None:
            return self._only()
        made = SqlBatchStore(self.database.url, "task", create=True)
        made.prepare()
        self.made.append(made)
        return made

    def _only(self) -> BatchStore:
        if not self.made:
            self.made.append(MemoryBatchStore(self.memory))
        return self.made[0]

    def add_row(self, id: int) -> None:
        if self.database is None:
            self._only().tasks.rows.append({"id": id, "url": "/new"})  # type: ignore[attr-defined]
        else:
            self.database.execute(f"INSERT INTO task (id, url) VALUES ({id}, '/new')")


@pytest.fixture(scope="module", params=["memory", *KINDS])
def server(request: pytest.FixtureRequest) -> Iterator[Database | None]:
    if request.param == "memory":
        yield None
        return
    database = open_database(request.param)
    yield database
    database.stop()


@pytest.fixture
def place(server: Database | None) -> Iterator[Place]:
    place = Place(server)
    yield place
    for each in place.made:
        each.close()
    if server is not None:
        for table in ("task", "orbweb_batches", "orbweb_batches_master"):
            server.execute(f"DROP TABLE IF EXISTS {table}")


def enter_all(store: BatchStore, batch: int, limit: int = 10) -> int:
    after, steps = None, 0
    while True:
        after, steps = store.tasks.enter(batch, after, limit), steps + 1
        if after is None:
            return steps


def claim_all(store: BatchStore, batch: int, limit: int = 10) -> list[int]:
    found: list[int] = []
    while rows := store.tasks.claim(batch, found[-1] if found else None, limit):
        found += [task.id for task in rows]
    return found


def test_all_rows_enter_each_batch_in_pages(place: Place) -> None:
    store = place.store()
    for batch in (1, 2, 7):
        assert enter_all(store, batch) == 3
        assert store.tasks.highest_batch() == batch
        assert store.tasks.count(batch) == TaskCounts(total=ROWS, todo=ROWS)
        assert claim_all(store, batch) == list(range(1, ROWS + 1))
        assert store.tasks.count(batch) == TaskCounts(total=ROWS, doing=ROWS)
        marks = dict.fromkeys(range(1, ROWS), DONE) | {ROWS: FAILED}
        assert store.tasks.mark(batch, marks) == ROWS
        counts = store.tasks.count(batch)
        assert counts == TaskCounts(total=ROWS, done=ROWS - 1, failed=1)
        assert counts.finished


def test_a_task_is_the_row_without_its_bookkeeping(place: Place) -> None:
    store = place.store()
    enter_all(store, 1)
    row = store.tasks.claim(1, None, 1)[0].row
    assert row["id"] == 1
    assert row["url"] == "/1"
    assert not row.keys() & {"batch_status", "batch_id"}


def test_entering_twice_changes_nothing_that_was_done_meanwhile(place: Place) -> None:
    store = place.store()
    enter_all(store, 1)
    store.tasks.mark(1, {3: DONE})
    enter_all(store, 1)
    assert store.tasks.count(1).done == 1


def test_a_row_that_is_added_while_a_batch_goes_on_waits_for_the_next(place: Place) -> None:
    store = place.store()
    enter_all(store, 1)
    place.add_row(99)
    assert 99 not in claim_all(store, 1)
    enter_all(store, 2)
    assert 99 in claim_all(store, 2)


def test_who_is_late_cannot_touch_the_next_batch(place: Place) -> None:
    store = place.store()
    enter_all(store, 1)
    claim_all(store, 1)
    enter_all(store, 2)
    assert store.tasks.mark(1, {1: DONE, 2: FAILED}) == 0
    assert store.tasks.put_back(1, ()) == 0
    assert claim_all(store, 1) == []
    enter_all(store, 1)
    assert store.tasks.count(2) == TaskCounts(total=ROWS, todo=ROWS)


def test_the_word_of_the_spider_stands_over_what_happens_by_itself(place: Place) -> None:
    store = place.store()
    enter_all(store, 1)
    assert store.tasks.mark(1, {5: FAILED}) == 1
    assert store.tasks.mark(1, {5: DONE, 6: DONE}, unsettled=True) == 1
    assert store.tasks.count(1) == TaskCounts(total=ROWS, todo=ROWS - 2, done=1, failed=1)


def test_rows_that_nobody_holds_are_put_back(place: Place) -> None:
    store = place.store()
    enter_all(store, 1)
    claim_all(store, 1)
    store.tasks.mark(1, {1: DONE})
    assert store.tasks.put_back(1, {"2", "3"}) == ROWS - 3
    assert store.tasks.count(1) == TaskCounts(total=ROWS, todo=ROWS - 3, doing=2, done=1)


def test_a_batch_is_opened_once_and_only_when_no_other_goes_on(place: Place) -> None:
    records = place.store().records("job")
    assert records.recent(5) == []
    records.open_batch(3, due_ms=1_000, missed=2)
    place.store().records("job").open_batch(4, due_ms=2_000, missed=0)
    (batch,) = records.recent(5)
    assert (batch.number, batch.state, batch.due_ms, batch.missed) == (3, "opening", 1_000, 2)
    assert abs(batch.opened_ms - records.now_ms()) < 10_000
    records.ready(3)
    records.note(3, TaskCounts(total=9, done=4, failed=1))
    assert records.recent(1)[0].counts == TaskCounts(total=9, done=4, failed=1)
    assert records.end_batch(3, TaskCounts(total=9, done=8, failed=1), BatchState.DONE)
    assert not records.end_batch(3, TaskCounts(), BatchState.ABANDONED)
    records.note(3, TaskCounts())
    records.ready(3)
    (batch,) = records.recent(1)
    assert (batch.state, batch.counts.done) == (BatchState.DONE, 8)
    assert batch.ended_ms >= batch.opened_ms
    records.open_batch(3, due_ms=5, missed=0)
    records.open_batch(4, due_ms=2_000, missed=0)
    assert [each.number for each in records.recent(5)] == [4, 3]


def test_jobs_have_batches_of_their_own(place: Place) -> None:
    store = place.store()
    store.records("job").open_batch(1, due_ms=0, missed=0)
    store.records("Job").open_batch(1, due_ms=0, missed=0)
    assert store.records("other").recent(5) == []
    assert len(store.records("Job").recent(5)) == 1


def test_eight_masters_at_once_open_one_batch(place: Place) -> None:
    stores = [place.store() for _ in range(8)]
    run_together(8, lambda number: stores[number].records("job").open_batch(1, number, 0))
    assert len(stores[0].records("job").recent(9)) == 1


def run_together(count: int, work: Callable[[int], Any]) -> None:
    start = threading.Barrier(count)

    def begin(number: int) -> None:
        start.wait()
        work(number)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_role_of_the_master_has_one_holder_and_passes_on_with_the_lease(place: Place) -> None:
    one, two = place.store().records("job"), place.store().records("job")
    assert one.lead("a", 60_000)
    assert not two.lead("b", 60_000)
    assert one.lead("a", 200)
    end = time.monotonic() + 5
    while not two.lead("b", 60_000):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert not one.lead("a", 60_000)
    assert two.lead("b", 0)
    assert one.lead("a", 60_000)


def test_what_is_missing_is_said_with_the_statement_that_makes_it() -> None:
    database = open_database("sqlite")
    try:
        store = SqlBatchStore(database.url, "task")
        with pytest.raises(ConfigError, match="there is no table task in sqlite:"):
            store.prepare()
        database.execute("CREATE TABLE task (id INTEGER PRIMARY KEY, batch_status INTEGER)")
        with pytest.raises(
            ConfigError,
            match=r"ALTER TABLE task ADD COLUMN batch_id BIGINT NULL.*SQL_CREATE_TABLES",
        ):
            store.prepare()
        with pytest.raises(ConfigError, match="no column 'nr'"):
            SqlBatchStore(database.url, "task", Columns(id="nr")).prepare()
        store.close()
    finally:
        database.stop()


def test_a_table_of_records_that_is_anothers_is_left_alone() -> None:
    database = open_database("sqlite")
    try:
        database.execute(
            "CREATE TABLE task (id INTEGER PRIMARY KEY)",
            "CREATE TABLE old_record (id INTEGER PRIMARY KEY, batch_date DATE)",
        )
        store = SqlBatchStore(database.url, "task", record_table="old_record", create=True)
        with pytest.raises(ConfigError, match="old_record holds no records of Orbweb"):
            store.prepare()
        store.close()
    finally:
        database.stop()


def test_looking_makes_nothing() -> None:
    database = open_database("sqlite")
    try:
        database.execute("CREATE TABLE task (id INT, batch_status INT, batch_id INT)")
        store = SqlBatchStore(database.url, "task")
        assert store.prepare(make=False) is False
        assert database.rows("SELECT name FROM sqlite_master") == [("task",)]
        assert store.prepare() is True
        assert store.prepare(make=False) is True
        store.close()
    finally:
        database.stop()


def test_ids_may_be_text_and_tasks_may_be_only_some_rows_with_some_columns() -> None:
    database = open_database("sqlite")
    try:
        database.execute(
            "CREATE TABLE task (sku TEXT PRIMARY KEY, url TEXT, secret TEXT, state INTEGER)",
            "INSERT INTO task VALUES ('b', 'http://b/', 'x', 1), ('a', 'http://a/', 'x', NULL), "
            "('c', 'ftp://c/', 'x', 5)",
        )
        columns = Columns("sku", "state", wanted=("url",), condition="url LIKE 'http:%'")
        store = SqlBatchStore(database.url, "task", columns, create=True)
        store.prepare()
        assert enter_all(store, 1) == 1
        tasks = store.tasks.claim(1, None, 10)
        assert [task.row for task in tasks] == [
            {"sku": "a", "url": "http://a/"},
            {"sku": "b", "url": "http://b/"},
        ]
        assert store.tasks.count(1).total == 2
        store.close()
    finally:
        database.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_an_id_are_left_out_and_told_so(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing could name them: a batch that had them would never end."""
    database = open_database(kind)
    try:
        database.execute(
            "CREATE TABLE task (id VARCHAR(20), url VARCHAR(20))",
            "INSERT INTO task VALUES (NULL, '/0'), ('a', '/1'), (NULL, '/2'), ('b', '/3')",
        )
        store = SqlBatchStore(database.url, "task", create=True)
        store.prepare()
        after, pages = None, 0
        while (after := store.tasks.enter(1, after, 1)) is not None:
            pages += 1
        assert pages == 2
        assert [task.id for task in store.tasks.claim(1, None, 10)] == ["a", "b"]
        assert store.tasks.count(1).total == 2
        assert "2 rows of table task have no id" in caplog.text
        store.close()
    finally:
        database.stop()


def test_netspys_store_takes_an_address() -> None:
    with pytest.raises(ConfigError, match="db='mysql://user"):
        MysqlBatchStore("task", db=object())
    MysqlBatchStore("task", db="mysql://u@h/d").close()


def test_states_are_netspys_numbers() -> None:
    assert (TODO, DONE, DOING, FAILED) == (0, 1, 2, -1)
