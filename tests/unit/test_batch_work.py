"""What a node does for one batch: claims, ends that are written together, outages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from orbweb.batch import work as module
from orbweb.batch.work import BatchWork, run_of, task_name
from orbweb.errors import ItemError, StoreUnavailable
from orbweb.frontier.tasks import NewTask, task_request
from orbweb.sources import FAILED, MemoryBatchStore, TaskCounts


class Database:
    """A table of tasks that may be away, and counts what it is asked."""

    def __init__(self, rows: int = 5) -> None:
        self.store = MemoryBatchStore([{"id": n, "url": f"/{n}"} for n in range(rows)])
        self.store.tasks.enter(1, None, 100)
        self.asked = 0
        self.away = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def ask(self, call: Callable[..., Any], *args: Any) -> Any:
        await self.answers.wait()
        self.asked += 1
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        return call(*args)

    def work(self, limit: int = 2) -> BatchWork:
        return BatchWork(self.store, 1, limit, self.ask)


async def poll_all(work: BatchWork) -> list[int]:
    found = []
    while tasks := await work.poll():
        found += [task.value["id"] for task in tasks]
    return found


async def test_rows_are_claimed_in_pages_and_each_once() -> None:
    database = Database()
    assert await poll_all(database.work()) == [0, 1, 2, 3, 4]
    assert database.store.tasks.count(1).doing == 5
    assert await database.work().poll() == []


async def test_lost_rows_are_claimed_again_and_held_ones_are_not() -> None:
    database = Database()
    work = database.work()
    await poll_all(work)
    await work.ended({"id": 0}, failed=False)
    held = [NewTask("1-1", {"id": 1}), NewTask("1-3", {"id": 3})]
    await work.recover(held)
    assert await poll_all(work) == [2, 4]


async def test_rows_that_end_together_are_written_together() -> None:
    database = Database(rows=50)
    work = database.work(limit=50)
    tasks = await work.poll()
    before = database.asked
    database.answers.clear()
    ends = [asyncio.ensure_future(work.ended(task.value, failed=False)) for task in tasks]
    await asyncio.sleep(0)
    database.answers.set()
    await asyncio.gather(*ends)
    assert database.asked - before <= 2
    assert database.store.tasks.count(1) == TaskCounts(total=50, done=50)


async def test_an_end_that_is_cancelled_is_written_by_the_next() -> None:
    database = Database()
    work = database.work()
    await poll_all(work)
    database.answers.clear()
    first = asyncio.ensure_future(work.ended({"id": 0}, failed=False))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    database.answers.set()
    await work.ended({"id": 1}, failed=True)
    assert database.store.tasks.count(1) == TaskCounts(total=5, doing=3, done=1, failed=1)


async def test_an_outage_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 0.001)
    database = Database()
    work = database.work()
    database.away = 3
    assert len(await work.poll()) == 2
    database.away = 3
    await work.ended({"id": 0}, failed=False)
    assert database.store.tasks.count(1).done == 1


async def test_the_spiders_word_is_written_at_once_and_stands() -> None:
    database = Database()
    work = database.work()
    assert work.mark(3, FAILED)
    assert not work.mark(99, FAILED)
    await work.ended({"id": 3}, failed=False)
    assert database.store.tasks.count(1).failed == 1


async def test_a_task_that_is_no_row_is_refused() -> None:
    with pytest.raises(ItemError, match="a row with 'id', not 7"):
        await Database().work().ended(7, failed=False)


@pytest.mark.parametrize("id", [1, -5, "sku-1", "商品", "a b", "x" * 300, "a.b@c", 1.5])
def test_every_id_gives_a_name_that_the_frontier_takes(id: Any) -> None:
    name = task_name(12, id)
    task_request(NewTask(name, {"id": id}))
    assert name == task_name(12, id) != task_name(13, id)


def test_ids_that_look_alike_have_names_of_their_own() -> None:
    assert len({task_name(1, id) for id in ("a b", "a.b", "a_b", "ab", "A_b")}) == 5
    assert run_of(7) == "batch-7"
