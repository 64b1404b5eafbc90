"""The item buffer: every page is answered when, and only when, its rows are durable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orbweb.errors import ItemError, PipelineError
from orbweb.model.item import ItemRecord
from orbweb.pipelines.base import BasePipeline
from orbweb.pipelines.buffer import ItemBuffer


class Store(BasePipeline):
    """Keeps what it is given; `trouble` may raise or return something else than True."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.stored: list[str] = []
        self.updated: list[tuple[str, list[str]]] = []
        self.closed = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.trouble: Callable[[list[str]], Any] = lambda keys: True

    async def save_items(self, table: str, items: list[dict[str, Any]]) -> bool:
        keys = [item["_key"] for item in items]
        self.calls.append(keys)
        await self.gate.wait()
        answer = self.trouble(keys)
        if answer is True:
            self.stored.extend(keys)
        return answer  # type: ignore[no-any-return]

    async def close(self) -> None:
        self.closed += 1


class Updating(Store):
    async def update_items(self, table: str, items: list[dict[str, Any]], update_keys: Any) -> bool:
        self.updated.extend((item["_key"], list(update_keys)) for item in items)
        return True


def records(*keys: str, table: str = "items", **more: Any) -> list[ItemRecord]:
    more = {"update_keys": None, "pipelines": None} | more
    return [ItemRecord(key=key, table=table, row={"_key": key}, **more) for key in keys]


@asynccontextmanager
async def running(**pipelines: BasePipeline) -> AsyncIterator[ItemBuffer]:
    async with running_with({}, **pipelines) as buffer:
        yield buffer


@asynccontextmanager
async def running_with(
    options: dict[str, Any], **pipelines: BasePipeline
) -> AsyncIterator[ItemBuffer]:
    options = {"flush_interval": 0.001, "retry_min": 0.001, "retry_max": 0.002} | options
    buffer = ItemBuffer(pipelines, rng=random.Random(1), **options)
    async with asyncio.TaskGroup() as group:
        group.create_task(buffer.run())
        try:
            yield buffer
        finally:
            await buffer.close(seconds=1)


async def within(future: Awaitable[Any], seconds: float = 5) -> Any:
    return await asyncio.wait_for(future, seconds)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the store under test has no event to wait for
        await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_page_is_answered_only_when_its_rows_are_stored():
    store = Store()
    store.gate.clear()
    async with running(db=store) as buffer:
        answer = buffer.submit(records("a", "b"))
        await turns()
        assert store.calls == [["a", "b"]]
        assert not answer.done()
        store.gate.set()
        assert await within(answer) == []
        assert store.stored == ["a", "b"]
        assert buffer.held == 0


async def test_rows_that_come_while_a_write_runs_go_together_in_the_next():
    store = Store()
    store.gate.clear()
    async with running(db=store) as buffer:
        answers = [buffer.submit(records("first"))]
        await turns()
        answers += [buffer.submit(records(str(n))) for n in range(50)]
        store.gate.set()
        await within(asyncio.gather(*answers))
    assert [len(call) for call in store.calls] == [1, 50]


async def test_a_full_batch_does_not_wait_for_the_interval():
    store = Store()
    async with running_with({"flush_interval": 60, "batch_items": 10}, db=store) as buffer:
        await within(buffer.submit(records("first")))
        waiting = buffer.submit(records("small"))
        await turns()
        assert not waiting.done()
        await within(buffer.submit(records(*map(str, range(9)))))
        assert waiting.done()


async def test_a_page_without_items_is_answered_at_once():
    async with running(db=Store()) as buffer:
        assert buffer.submit([]).result() == []


async def test_a_slow_pipeline_does_not_delay_the_other():
    slow, fast = Store(), Store()
    slow.gate.clear()
    async with running(slow=slow, fast=fast) as buffer:
        answers = [buffer.submit(records(str(n))) for n in range(3)]
        await turns(5)
        answers.append(buffer.submit(records("late")))
        await until(lambda: len(fast.stored) >= 4)
        assert slow.stored == []
        assert not any(answer.done() for answer in answers)
        slow.gate.set()
        await within(asyncio.gather(*answers))
    assert slow.stored == fast.stored == ["0", "1", "2", "late"]


@pytest.mark.parametrize("failure", ["false", "none", "raise"])
async def test_a_pipeline_that_fails_and_recovers_loses_nothing_and_the_other_gets_nothing_twice(
    failure: str,
):
    failures = 8

    def trouble(keys: list[str]) -> Any:
        nonlocal failures
        failures -= 1
        if failures < 0:
            return True
        if failure == "raise":
            raise ConnectionError("database is away")
        return False if failure == "false" else None

    broken, healthy = Store(), Store()
    broken.trouble = trouble
    async with running(broken=broken, healthy=healthy) as buffer:
        answers = [buffer.submit(records(f"{n}a", f"{n}b")) for n in range(10)]
        await turns()
        assert list(buffer.troubles) == ["broken"]
        assert await within(asyncio.gather(*answers)) == [[]] * 10
        assert buffer.troubles == {}
    expected = [f"{n}{x}" for n in range(10) for x in "ab"]
    assert sorted(broken.stored) == sorted(expected)
    assert healthy.stored == expected


@pytest.mark.parametrize("error", [ItemError("too long"), ValueError("a bug in the pipeline")])
async def test_one_bad_row_of_twenty_is_isolated_and_the_others_are_stored(error: Exception):
    def trouble(keys: list[str]) -> Any:
        if "13" in keys:
            raise error
        return True

    store, other = Store(), Store()
    store.trouble = trouble
    async with running(db=store, other=other) as buffer:
        rejected = await within(buffer.submit(records(*map(str, range(20)))))
        assert [(r.record.key, r.pipeline) for r in rejected] == [("13", "db")]
        assert str(error) in str(rejected[0].error)
    assert sorted(store.stored, key=int) == [str(n) for n in range(20) if n != 13]
    assert other.calls == [[str(n) for n in range(20)]]


async def test_while_nothing_can_be_stored_no_row_is_blamed():
    store = Store()
    store.trouble = lambda keys: False
    async with running(db=store) as buffer:
        answer = buffer.submit(records("a", "b", "c"))
        await until(lambda: len(store.calls) >= 40)
        assert not answer.done()
        store.trouble = lambda keys: True
        assert await within(answer) == []
    assert sorted(store.stored) == ["a", "b", "c"]


async def test_parts_of_a_batch_that_fail_are_tried_again_in_their_order():
    store = Store()
    answers = iter([ItemError("split"), False, True, False, True])

    def trouble(keys: list[str]) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    store.trouble = trouble
    async with running(db=store) as buffer:
        assert await within(buffer.submit(records("a", "b", "c", "d"))) == []
    assert store.calls == [["a", "b", "c", "d"], ["a", "b"], ["a", "b"], ["c", "d"], ["c", "d"]]
    assert store.stored == ["a", "b", "c", "d"]


async def test_after_a_recovery_full_batches_go_at_once_again():
    store = Store()
    answers = iter([False, True, True])
    store.trouble = lambda keys: next(answers)
    async with running_with({"flush_interval": 60, "batch_items": 2}, db=store) as buffer:
        await within(buffer.submit(records("a", "b")))
        await within(buffer.submit(records("c", "d")))
    assert store.stored == ["a", "b", "c", "d"]


async def test_a_table_that_fails_does_not_hold_up_the_other_tables():
    class OneTable(Store):
        async def save_items(self, table: str, items: list[dict[str, Any]]) -> bool:
            return table == "good" and await super().save_items(table, items)

    store = OneTable()
    async with running_with({"retry_min": 60, "retry_max": 60}, db=store) as buffer:
        stuck = buffer.submit(records("x", table="missing"))
        await turns()
        for n in range(5):
            await within(buffer.submit(records(str(n), table="good")))
        assert not stuck.done()
        await buffer.close(seconds=0)
        with pytest.raises(PipelineError):
            await stuck


async def test_fresh_rows_go_on_beside_a_row_that_only_fails():
    store = Store()

    def trouble(keys: list[str]) -> Any:
        if "bad" in keys:
            raise TimeoutError
        return True

    store.trouble = trouble
    async with running(db=store) as buffer:
        bad = buffer.submit(records("bad"))
        await until(lambda: len(store.calls) >= 4)
        assert await within(buffer.submit(records("good"))) == []
        assert [r.record.key for r in await within(bad)] == ["bad"]


async def test_new_and_changed_rows_go_their_own_ways():
    store = Updating()
    async with running(db=store) as buffer:
        page = records("u", update_keys=("id", "day")) + records("n")
        assert await within(buffer.submit(page)) == []
    assert store.stored == ["n"]
    assert store.updated == [("u", ["id", "day"])]


async def test_an_update_is_rejected_at_once_by_a_pipeline_that_cannot_update():
    async with running(db=Store()) as buffer:
        rejected = await within(buffer.submit(records("u1", "u2", update_keys=("id",))))
    assert [r.record.key for r in rejected] == ["u1", "u2"]
    assert "Store cannot update rows (table 'items')" in str(rejected[0].error)


async def test_not_implemented_is_an_answer_for_good():
    class Half(Store):
        async def update_items(self, *args: Any) -> bool:
            raise NotImplementedError("no updates here")

    async with running(db=Half()) as buffer:
        rejected = await within(buffer.submit(records("u1", "u2", update_keys=("id",))))
    assert [str(r.error) for r in rejected] == ["no updates here"] * 2


async def test_a_record_goes_only_to_the_pipelines_that_it_names():
    first, second = Store(), Store()
    async with running(first=first, second=second) as buffer:
        page = records("a", pipelines=("second",)) + records("b", pipelines=("nowhere", "first"))
        rejected = await within(buffer.submit(page))
    assert (first.stored, second.stored) == (["b"], ["a"])
    assert [(r.record.key, r.pipeline) for r in rejected] == [("b", "nowhere")]


async def test_the_buffer_stays_within_its_bound_and_one_page():
    store = Store()
    store.gate.clear()
    highest = 0
    async with running_with({"max_items": 20}, db=store) as buffer:

        async def page(number: int) -> None:
            nonlocal highest
            await buffer.wait_for_room()
            answer = buffer.submit(records(*(f"{number}-{n}" for n in range(7))))
            highest = max(highest, buffer.held)
            await answer

        async with asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(page(number))
            await turns()
            assert buffer.full
            store.gate.set()
    assert highest == 21
    assert len(store.stored) == len(set(store.stored)) == 210


async def test_the_buffer_is_full_when_what_waits_is_large_though_not_many():
    store = Store()
    store.gate.clear()
    highest = 0

    def large(number: int) -> ItemRecord:
        row = {"_key": str(number), "page": "x" * 600, "parts": [b"y" * 300, {"z": "z" * 100}]}
        return ItemRecord(str(number), "items", row, update_keys=None, pipelines=None)

    async with running_with({"max_bytes": 5_000}, db=store) as buffer:

        async def page(number: int) -> None:
            nonlocal highest
            await buffer.wait_for_room()
            answer = buffer.submit([large(number)])
            highest = max(highest, buffer.held)
            await answer

        async with asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(page(number))
            await turns()
            assert buffer.full
            store.gate.set()
        assert not buffer.full
    assert highest == 5
    assert len(store.stored) == 30


async def test_one_item_that_is_larger_than_the_bound_is_stored():
    store = Store()
    async with running_with({"max_bytes": 1}, db=store) as buffer:
        for key in "ab":
            await within(buffer.wait_for_room())
            await within(buffer.submit(records(key)))
    assert store.stored == ["a", "b"]


async def test_close_flushes_what_waits_and_closes_each_pipeline_once():
    first, second = Store(), Store()
    async with running_with({"flush_interval": 60}, first=first, second=second) as buffer:
        await within(buffer.submit(records("a")))
        answer = buffer.submit(records("b"))
        await within(buffer.close())
        assert answer.result() == []
        with pytest.raises(PipelineError, match="closed"):
            buffer.submit(records("c"))
        assert (first.closed, second.closed) == (1, 1)
        assert first.stored == second.stored == ["a", "b"]


async def test_close_gives_up_after_its_time_and_the_page_knows():
    store, healthy = Store(), Store()

    def trouble(keys: list[str]) -> Any:
        raise OSError("disk full")

    store.trouble = trouble
    async with running_with({"retry_min": 60, "retry_max": 60}, db=store, ok=healthy) as buffer:
        answer = buffer.submit(records("a"))
        await turns()
        await within(buffer.close(seconds=0.01))
        with pytest.raises(PipelineError, match="db: OSError: disk full"):
            answer.result()
        assert buffer.held == 0
        assert len(store.calls) == 2  # close tried it once more
        assert healthy.stored == ["a"]


async def test_a_cancelled_buffer_leaves_no_page_waiting():
    store = Store()
    store.gate.clear()
    buffer = ItemBuffer({"db": store})
    task = asyncio.create_task(buffer.run())
    answer = buffer.submit(records("a"))
    await turns()
    task.cancel()
    with pytest.raises(PipelineError):
        await within(answer)
    with pytest.raises(asyncio.CancelledError):
        await task
    await buffer.close()


async def test_a_page_that_stopped_waiting_disturbs_nobody():
    store = Store()
    store.gate.clear()
    async with running(db=store) as buffer:
        gone, stays = buffer.submit(records("gone")), buffer.submit(records("stays"))
        await turns()
        gone.cancel()
        store.gate.set()
        assert await within(stays) == []
        assert buffer.held == 0


async def test_a_plain_pipeline_runs_where_it_is_told_to():
    class Plain(BasePipeline):
        def __init__(self) -> None:
            self.rows: list[dict[str, Any]] = []

        def save_items(self, table: str, items: list[dict[str, Any]]) -> bool:
            for item in items:
                item["seen"] = True
            self.rows.extend(items)
            return True

    ran: list[str] = []

    async def run_blocking(func: Callable[..., Any], *args: Any) -> Any:
        ran.append(func.__name__)
        return func(*args)

    page, plain = records("a"), Plain()
    async with running_with({"run_blocking": run_blocking}, db=plain) as buffer:
        await within(buffer.submit(page))
    assert ran == ["save_items", "close"]
    assert plain.rows == [{"_key": "a", "seen": True}]
    assert page[0].row == {"_key": "a"}, "a pipeline must not change what the others get"


async def test_without_pipelines_pages_are_answered_at_once() -> None:
    async with running() as buffer:
        await asyncio.sleep(0)
        assert await within(buffer.submit(records("a"))) == []
