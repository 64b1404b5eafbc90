"""The master of batches on virtual time: schedule, end, alarms, and masters that die anywhere."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from orbweb.batch.monitor import BatchMonitor, MonitorOptions
from orbweb.batch.schedule import Every, Schedule
from orbweb.errors import StoreUnavailable
from orbweb.frontier.base import RunState
from orbweb.sources import DONE, FAILED, BatchRecord, BatchState, MemoryBatchStore
from orbweb.testing.virtual import Timeline, VirtualLoop

HOUR = 3_600_000
MINUTE = 60_000
STEP = 3 * MINUTE
"""From batch to batch."""


class World:
    """A table of tasks, its batches, and a crowd of nodes that works through them."""

    def __init__(self, rows: int = 20, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.timeline = Timeline(self.rng)
        self.store = MemoryBatchStore(
            [{"id": n} for n in range(rows)], now_ms=lambda: self.timeline.now_ms
        )
        self.runs: dict[int, RunState] = {}
        self.crawled: dict[int, list[int]] = {}
        self.stopped: list[int] = []
        self.away_until_ms = 0
        self.masters: list[VirtualLoop] = []
        self.failing: frozenset[int] = frozenset()

    # -- the seams of a monitor

    async def ask(self, call: Callable[..., Any], *args: Any) -> Any:
        """A call to the database; its caller may die before it, and before it hears the answer."""
        await asyncio.sleep(self.rng.uniform(0, 0.02))
        if self.timeline.now_ms < self.away_until_ms:
            raise StoreUnavailable("away")
        answer = call(*args)
        await asyncio.sleep(self.rng.uniform(0, 0.02))
        return answer

    async def state(self, number: int) -> RunState | None:
        return await self.ask(self.runs.get, number)  # type: ignore[no-any-return]

    async def stop(self, number: int) -> None:
        await self.ask(self.stopped.append, number)

    # -- who takes part

    def monitor(self, schedule: Schedule | None = None, **options: Any) -> asyncio.Task[Any]:
        """A node that is master or stands by."""
        loop = VirtualLoop(self.timeline)
        self.masters.append(loop)

        async def main() -> BatchRecord | None:
            monitor = BatchMonitor(
                MonitorOptions("job", f"m{len(self.masters)}", schedule or Every(STEP), **options),
                self.store.records("job"),
                self.store.tasks,
                self,
                self.ask,
            )
            return await monitor.run()

        task: asyncio.Task[Any] = loop.create_task(main())
        return task

    def crowd(self, seconds_a_row: float = 1.0) -> None:
        """Nodes that work through every batch that is open."""
        loop = VirtualLoop(self.timeline)

        async def work() -> None:
            while True:
                await asyncio.sleep(0.5)
                found = self.store.records("job").recent(1)
                if found and found[0].state is BatchState.OPEN:
                    await self._crawl(found[0].number, seconds_a_row)

        loop.create_task(work())

    async def _crawl(self, number: int, seconds_a_row: float) -> None:
        if self.runs.get(number) is RunState.DONE:
            return
        self.runs[number] = RunState.RUNNING
        for task in self.store.tasks.claim(number, None, 1000):
            if number in self.stopped:
                return
            await asyncio.sleep(seconds_a_row)
            self.crawled.setdefault(number, []).append(task.id)
            self.store.tasks.mark(number, {task.id: FAILED if task.id in self.failing else DONE})
        self.runs[number] = RunState.DONE

    def let(self, finished: Callable[[], bool], hours: float = 48) -> None:
        until = self.timeline.now_ms + int(hours * HOUR)
        ended = self.timeline.run(until, finished)
        errors = [error for loop in self.timeline.loops for error in loop.errors]
        assert errors == []
        assert ended, self.batches

    def close(self) -> None:
        for loop in [*self.timeline.loops, *self.masters]:
            loop.unwind()
            if not loop.is_closed():
                loop.close()

    @property
    def batches(self) -> list[BatchRecord]:
        return self.store.records("job").recent(99)[::-1]

    def ended(self, count: int) -> Callable[[], bool]:
        return lambda: sum(batch.state.ended for batch in self.batches) >= count


@pytest.fixture
def world() -> Any:
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def alarms(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    logging.getLogger("orbweb").propagate = True
    caplog.set_level(logging.WARNING, "orbweb.batch")
    return lambda: [record.getMessage().partition(" ")[0] for record in caplog.records]


def test_batches_come_when_they_are_due_and_every_row_is_crawled_in_each(world: Any) -> None:
    here = world()
    here.failing = frozenset({7})
    here.monitor()
    here.crowd()
    here.let(here.ended(3))
    assert [batch.number for batch in here.batches[:3]] == [1, 2, 3]
    first = here.batches[0].due_ms
    assert [batch.due_ms for batch in here.batches[:3]] == [first, first + STEP, first + 2 * STEP]
    for batch in here.batches[:3]:
        assert here.crawled[batch.number] == list(range(20))
        assert batch.opened_ms - batch.due_ms < 2_000
        assert (batch.counts.total, batch.counts.done, batch.counts.failed) == (20, 19, 1)
        assert batch.state is BatchState.DONE
        assert 20_000 <= batch.ended_ms - batch.opened_ms < 25_000


def test_once_ends_with_the_batch(world: Any) -> None:
    here = world()
    one, two = here.monitor(once=True), here.monitor(once=True)
    here.crowd()
    here.let(lambda: one.done() and two.done())
    assert one.result().number == two.result().number == 1
    third = here.monitor(once=True)
    here.let(third.done, hours=0.01)
    assert third.result() is None
    assert len(here.batches) == 1


def test_a_batch_does_not_end_while_a_node_works_on_it(world: Any) -> None:
    here = world(rows=1)
    here.monitor()
    here.let(lambda: bool(here.batches) and here.batches[0].state is BatchState.OPEN)
    here.runs[1] = RunState.RUNNING
    here.store.tasks.mark(1, {0: DONE})
    here.let(lambda: here.timeline.now_ms > here.batches[0].opened_ms + MINUTE)
    assert here.batches[0].state is BatchState.OPEN
    here.runs[1] = RunState.DONE
    here.let(here.ended(1), hours=0.01)


def test_rows_that_did_not_come_to_an_end_keep_the_batch_open(world: Any) -> None:
    here = world(rows=2)
    here.monitor()
    here.let(lambda: bool(here.batches) and here.batches[0].state is BatchState.OPEN)
    here.store.tasks.claim(1, None, 9)
    here.store.tasks.mark(1, {0: DONE})
    here.runs[1] = RunState.DONE
    here.let(lambda: here.timeline.now_ms > here.batches[0].opened_ms + MINUTE)
    assert here.batches[0].state is BatchState.OPEN


def test_an_empty_table_gives_an_empty_batch(world: Any) -> None:
    here = world(rows=0)
    here.monitor()
    here.let(here.ended(1), hours=0.1)
    assert here.batches[0].counts.total == 0


def test_a_late_batch_is_carried_over_and_the_next_follows_at_once(
    world: Any, alarms: Callable[[], list[str]]
) -> None:
    here = world()
    here.monitor()
    here.crowd(seconds_a_row=20)  # 400 s for a batch that is due each 180 s
    here.let(here.ended(1))
    here.let(lambda: len(here.batches) == 2, hours=0.01)
    first, second = here.batches
    assert first.state is BatchState.DONE
    assert second.due_ms == first.due_ms + 2 * STEP
    assert second.missed == 1
    assert alarms() == ["batch_slow", "batch_overdue", "batch_missed"]


def test_a_late_batch_is_given_up_when_that_is_wanted(
    world: Any, alarms: Callable[[], list[str]]
) -> None:
    here = world()
    here.monitor(carry=False)
    here.crowd(seconds_a_row=21)
    here.let(lambda: len(here.batches) == 2)
    first, second = here.batches
    assert (first.state, first.counts.done) == (BatchState.ABANDONED, 8)
    assert second.due_ms == first.due_ms + STEP
    assert second.missed == 0
    assert set(here.stopped) == {1}
    assert alarms() == ["batch_slow", "batch_abandoned"]
    here.let(lambda: here.store.tasks.count(2).done == 3)
    assert here.crawled[2] == [0, 1, 2]


def test_batches_that_nobody_was_there_for_are_not_made_up_for(
    world: Any, alarms: Callable[[], list[str]]
) -> None:
    here = world()
    here.monitor()
    here.crowd()
    here.let(here.ended(1))
    here.masters[0].abandon()
    asleep = here.timeline.now_ms + 5 * STEP
    here.let(lambda: here.timeline.now_ms >= asleep)
    here.monitor()
    here.let(here.ended(2))
    assert [batch.missed for batch in here.batches] == [0, 4]
    assert alarms() == ["batch_missed"]


def test_an_outage_is_waited_for(world: Any, alarms: Callable[[], list[str]]) -> None:
    here = world()
    here.away_until_ms = here.timeline.now_ms + 10 * MINUTE
    here.monitor()
    here.crowd()
    here.let(here.ended(1))
    assert alarms() == ["batches"] * 2  # wait: …, go on


def test_another_node_is_master_within_a_lease(world: Any) -> None:
    here = world()
    here.monitor(lease_seconds=30)
    here.let(lambda: bool(here.batches))
    here.monitor(lease_seconds=30)
    here.masters[0].abandon()
    died = here.timeline.now_ms
    here.crowd()
    here.let(here.ended(1))
    assert here.batches[0].ended_ms - died < 30_000 + 30_000 / 4 + 20_000 + 5_000


@pytest.mark.parametrize("seed", range(30))
def test_masters_that_die_at_any_instant_lose_no_batch_and_no_row(world: Any, seed: int) -> None:
    here = world(seed=seed)
    here.monitor(Every(MINUTE), lease_seconds=10)
    here.monitor(Every(MINUTE), lease_seconds=10)
    here.crowd(seconds_a_row=0.2)

    def kill() -> None:
        alive = [loop for loop in here.masters if loop in here.timeline.loops]
        victim = here.rng.choice(alive)
        if here.rng.random() < 0.3:  # it only sleeps, and wakes as if nothing had happened
            victim.paused_until_ms = here.timeline.now_ms + 20_000
        else:
            victim.abandon()
            here.monitor(Every(MINUTE), lease_seconds=10)
        here.timeline.call_in(here.rng.randrange(1, 8_000), kill)

    here.timeline.call_in(here.rng.randrange(1, 500), kill)
    here.let(here.ended(4), hours=1)
    for batch in here.batches[:4]:
        assert here.crawled[batch.number] == list(range(20))
        assert (batch.counts.total, batch.counts.done) == (20, 20)
    numbers = [batch.number for batch in here.batches]
    assert numbers == sorted(set(numbers))
    going = [batch for batch in here.batches if not batch.state.ended]
    assert going == here.batches[len(here.batches) - len(going) :]
    assert len(going) <= 1
