"""BatchSpider on a real store: every row in every batch, states, hooks, feapder's names."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import orbweb as mw
from orbweb.engine.report import RunReport
from orbweb.engine.shutdown import ExitCode
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.sources import DONE, FAILED, BatchState, MemoryBatchStore
from orbweb.spiders import build_batch
from orbweb.spiders.start import Start
from orbweb.testing.site import SiteThread

FAST = {
    "BATCH_INTERVAL": "0.000001",  # 0.086 s
    "TASK_POLL_INTERVAL": 0.05,
    "HEARTBEAT_INTERVAL": 0.2,
    "SPIDER_MAX_RETRY_TIMES": 0,
    "ITEM_PIPELINES": (),
    "QUALITY_ENABLE": False,
}


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with SiteThread(also_on=["127.0.0.2"]) as running:
        yield running.url


@pytest.fixture
def rows(site: str) -> list[dict[str, Any]]:
    return [{"id": n, "url": f"{site}/flat?n={n}"} for n in range(10)]


class Pages(mw.BatchSpider):
    """Notes what it was called with."""

    custom_settings: ClassVar = FAST

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.seen: list[tuple[int, int]] = []
        self.told: list[tuple[str, int]] = []

    def task_requests(self, task: Any) -> Any:
        yield mw.Request(task["url"], callback=self.parse)

    def parse(self, request: Any, response: Any, task: Any) -> Any:
        self.seen.append((self.batch, task["id"]))

    def task_done(self, task: Any) -> None:
        self.told.append(("done", task["id"]))

    async def task_failed(self, task: Any, reason: str) -> None:
        self.told.append((reason, task["id"]))


def one_batch(spider: mw.BatchSpider, directory: Path) -> RunReport:
    return spider.run(Start(directory=directory, monitor=True, once=True, live=False))


def states(rows: list[dict[str, Any]]) -> Counter[int]:
    return Counter(row["batch_status"] for row in rows)


def test_each_batch_crawls_every_row_and_each_row_gets_its_state(
    tmp_path: Path, site: str, rows: list[dict[str, Any]]
) -> None:
    rows[3]["url"] = f"{site}/status?code=404"
    spider = Pages(batch_store=MemoryBatchStore(rows))
    for batch in (1, 2):
        report = one_batch(spider, tmp_path)
        assert (report.exit_code, report.state) == (0, "done")
        assert report.identity["run_id"] == f"batch-{batch}"
        assert states(rows) == {1: 9, -1: 1}
        assert rows[3]["batch_status"] == -1
    good = [n for n in range(10) if n != 3]
    assert sorted(spider.seen) == [(batch, n) for batch in (1, 2) for n in good]
    assert sorted(spider.told) == sorted(
        2 * [("done", n) for n in good] + 2 * [("status_rejected", 3)]
    )
    first, second = spider.store.records("Pages").recent(9)[::-1]
    assert (first.counts.done, first.counts.failed, first.counts.total) == (9, 1, 10)
    assert second.state is BatchState.DONE


def test_rows_that_the_store_does_not_know_are_crawled_and_those_that_are_done_are_not(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    store = MemoryBatchStore(rows)
    store.tasks.enter(4, None, 100)
    records = store.records("Pages")
    records.open_batch(4, due_ms=records.now_ms(), missed=0)
    records.ready(4)
    store.tasks.claim(4, None, 8)
    store.tasks.mark(4, {1: DONE, 2: FAILED})
    spider = Pages(batch_store=store)
    one_batch(spider, tmp_path)
    assert sorted(spider.seen) == [(4, n) for n in (0, *range(3, 10))]
    assert states(rows) == {1: 9, -1: 1}
    assert records.recent(1)[0].state is BatchState.DONE


class Waking(MemoryBatchStore):
    """A database that does not answer at first."""

    asked = 0

    def prepare(self, *, make: bool = True) -> bool:
        self.asked += 1
        if self.asked < 3:
            raise StoreUnavailable("the database does not answer")
        return True


def test_a_node_that_starts_waits_for_a_database_that_starts_too(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    assert one_batch(Pages(batch_store=Waking(rows)), tmp_path).exit_code == 0


def test_it_does_not_wait_for_ever(
    tmp_path: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_batch, "DATABASE_SECONDS", 0)
    with pytest.raises(StoreUnavailable):
        one_batch(Pages(batch_store=Waking(rows)), tmp_path)


def test_without_a_batch_a_worker_says_so_and_exits_with_3(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    class Impatient(Pages):
        custom_settings: ClassVar = {**FAST, "TASK_EXHAUST_POLLS": 1}

    report = Impatient(batch_store=MemoryBatchStore(rows)).run(Start(directory=tmp_path))
    assert report.exit_code == 3
    assert "no batch is open: start_monitor()" in report.why
    assert "batch_id" not in rows[0]


def test_what_the_spider_says_of_a_row_stands(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    class Judge(Pages):
        def parse(self, request: Any, response: Any, task: Any) -> Any:
            assert self.update_task(task["id"], ok=task["id"] != 5)
            assert not self.update_task(777)

    one_batch(Judge(batch_store=MemoryBatchStore(rows)), tmp_path)
    assert [row["id"] for row in rows if row["batch_status"] == -1] == [5]
    assert states(rows) == {1: 9, -1: 1}


def test_two_rows_that_lead_to_one_page_crawl_it_once_a_batch(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    rows[1]["url"] = rows[0]["url"]
    spider = Pages(batch_store=MemoryBatchStore(rows))
    one_batch(spider, tmp_path)
    assert len(spider.seen) == 9
    assert states(rows) == {1: 10}


def test_a_batch_may_be_spread_over_shards(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    class Spread(Pages):
        custom_settings: ClassVar = {**FAST, "FRONTIER_SHARDS": 3}

    for row in rows:
        row["url"] = row["url"].replace("127.0.0.1", f"127.0.0.{1 + row['id'] % 2}")
    spider = Spread(batch_store=MemoryBatchStore(rows))
    for batch in (1, 2):
        assert one_batch(spider, tmp_path).exit_code == 0
        assert states(rows) == {1: 10}
        assert len(spider.seen) == 10 * batch


def test_a_spider_with_feapders_names_runs(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    class Old(mw.BatchSpider):
        custom_settings: ClassVar = FAST

        def start_requests(self, task: Any) -> Any:  # type: ignore[override]
            id, url = task
            assert (task.id, task.url) == (id, url)
            yield mw.Request(url, task_id=id)

        def parse(self, request: Any, response: Any) -> Any:
            yield self.update_task_batch(request.task_id, 1 if request.task_id else -1)
            with pytest.raises(ConfigError, match="not 2"):
                self.update_task_state(request.task_id, 2)

    spider = Old(redis_key="old", task_table="t", task_keys=["id", "url"], batch_name="old pages",
                 batch_store=MemoryBatchStore(rows))  # fmt: skip
    assert one_batch(spider, tmp_path).pages == 10
    assert states(rows) == {1: 9, -1: 1}


def test_async_hooks_and_callbacks_without_a_task_are_fine(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    class Modern(mw.BatchSpider):
        custom_settings: ClassVar = FAST

        async def task_requests(self, task: Any) -> Any:
            yield mw.Request(task["url"])
            yield mw.Request(task["url"] + "&more=1", callback=self.more, cb_kwargs={"task": 7})

        async def parse(self, response: Any) -> Any:
            return None

        async def more(self, response: Any, task: Any) -> Any:
            assert task == 7

    assert one_batch(Modern(batch_store=MemoryBatchStore(rows)), tmp_path).pages == 20
    assert states(rows) == {1: 10}


def test_a_batch_that_is_given_up_cannot_touch_the_next_one(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    class Slow(Pages):
        custom_settings: ClassVar = {
            **FAST,
            "BATCH_UNFINISHED": "abandon",
            "BATCH_INTERVAL": "0.00002",
            "CONCURRENT_REQUESTS": 2,
            "GRACEFUL_TIMEOUT": 0.2,
        }
        released = threading.Event()

        def parse(self, request: Any, response: Any, task: Any) -> Any:
            if self.batch == 1:
                self.released.wait(30)
            self.seen.append((self.batch, task["id"]))
            if self.batch > 1:
                self.released.set()
                if sum(batch > 1 for batch, _ in self.seen) >= 10:
                    self.stop()

    store = MemoryBatchStore(rows)
    spider = Slow(batch_store=store)
    spider.run(Start(directory=tmp_path, monitor=True, live=False))
    first, *later = store.records("Slow").recent(9)[::-1]
    assert (first.state, first.counts.done) == (BatchState.ABANDONED, 0)
    assert later
    assert {row["batch_id"] for row in rows} != {1}
    done = [row["id"] for row in rows if row["batch_status"] == 1 and row["batch_id"] > 1]
    crawled = {n for batch, n in spider.seen if batch > 1}
    assert set(done) <= crawled


def test_a_master_can_be_told_to_stop_while_it_waits_for_its_database(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    class Away(MemoryBatchStore):
        def prepare(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            raise StoreUnavailable("the database does not answer")

    before = signal.getsignal(signal.SIGTERM)
    code = build_batch.run_monitor(Pages(batch_store=Away(rows)), start=Start(directory=tmp_path))
    assert code == ExitCode.STOPPED
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_master_that_is_told_to_stop_as_its_stores_open_opens_no_batch(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    class Stopped(MemoryBatchStore):
        def prepare(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    spider = Pages(batch_store=Stopped(rows))
    assert build_batch.run_monitor(spider, start=Start(directory=tmp_path)) == ExitCode.STOPPED
    assert spider.store.records("Pages").recent(9) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"related_redis_key": "x"}, "no batch waits for another"),
        ({"task_limit": 5}, "BATCH_PUSH_LIMIT"),
    ],
)
def test_arguments_that_have_no_effect_are_refused(arguments: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Pages(**arguments)


def test_a_wrong_argument_is_no_setting_of_feapder() -> None:
    with pytest.raises(TypeError, match="'tabel'"):
        Pages(tabel="x")


def test_hooks_that_do_not_belong_to_a_batch_spider_are_refused() -> None:
    class Fetching(Pages):
        def fetch_tasks(self, limit: int) -> Any:
            return []

    class Resetting(Pages):
        def init_task(self) -> None:
            return None

    class Both(Pages):
        def start_requests(self) -> Any:
            return []

    with pytest.raises(ConfigError, match=r"Fetching\.fetch_tasks: the tasks of a BatchSpider"):
        Fetching()
    with pytest.raises(ConfigError, match="rows enter each batch by themselves"):
        Resetting()
    with pytest.raises(ConfigError, match="belongs into task_requests"):
        Both()
    with pytest.raises(ConfigError, match="put a row there"):
        Pages().add_tasks({"id": 1})
    with pytest.raises(ConfigError, match="let the spider inherit"):
        Pages().add_parser(Both)


def test_the_table_is_named_by_argument_class_or_job() -> None:
    class ShopPages(Pages):
        pass

    class Named(Pages):
        __task_table__ = "named"

    assert ShopPages().task_table == "shop_pages"
    assert Named().task_table == "named"
    assert Named(task_table="given").task_table == "given"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"DEDUP_SCOPE": "spider"}, "a second batch would crawl nothing"),
        ({"BATCH_INTERVAL": "soon"}, "cron line"),
        ({"BATCH_SQL_URL": ""}, "BATCH_SQL_URL is empty"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, wrong: Any, text: str) -> None:
    class Wrong(Pages):
        custom_settings: ClassVar = {**FAST, **wrong}

    with pytest.raises(ConfigError, match=text):
        Wrong().run(Start(directory=tmp_path))
