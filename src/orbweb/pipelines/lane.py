"""The way of rows into one pipeline: batches, retries with backoff, the search for a bad row."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from orbweb.errors import ItemError, PipelineError, contained
from orbweb.log import event, get_logger
from orbweb.pipelines.base import BasePipeline, Page, PagePipeline, Row

if TYPE_CHECKING:
    from orbweb.model.item import ItemRecord, Origin

RunBlocking = Callable[..., Awaitable[Any]]
"""Runs a plain function with its arguments off the event loop, such as `asyncio.to_thread`."""

SUSPECT_AFTER = 3
"""Failures after which a batch is no longer tried as a whole and no longer goes first."""

REJECT_AFTER = 5
"""Failures after which a single row is rejected, if rows beside it were stored since the first."""


PAGES = "(pages)"
"""What stands for the table in the queue of a `PagePipeline`."""


class Rejected(NamedTuple):
    """A record that one pipeline can never store, and why."""

    record: ItemRecord
    error: Exception
    pipeline: str


@dataclass(slots=True, eq=False)
class Ticket:
    """What one page waits for: how many of its rows are still unanswered, over all pipelines."""

    future: asyncio.Future[list[Rejected]]
    settle: Callable[[Ticket], None]
    unanswered: int
    records: int
    size_bytes: int
    rejected: list[Rejected] = field(default_factory=list)

    def answer(self) -> None:
        self.unanswered -= 1
        if self.unanswered == 0:
            self.settle(self)


class Entry(NamedTuple):
    """What is stored or not stored as one: a record, or for a `PagePipeline` those of a page."""

    records: tuple[ItemRecord, ...]
    origin: Origin
    ticket: Ticket


@dataclass(slots=True)
class Batch:
    """Rows, or pages, that are tried together."""

    entries: list[Entry]
    failures: int = 0
    stored_before: int = 0
    """Rows that the queue had stored when this batch failed for the first time."""

    @property
    def rows(self) -> int:
        return sum(len(entry.records) for entry in self.entries)

    @property
    def suspect(self) -> bool:
        return self.failures >= SUSPECT_AFTER

    def halves(self) -> tuple[Batch, Batch]:
        middle = len(self.entries) // 2
        return (
            Batch(self.entries[:middle], self.failures, self.stored_before),
            Batch(self.entries[middle:], self.failures, self.stored_before),
        )


@dataclass(slots=True)
class Queue:
    """New or changed rows of one table, or pages, on their way into one pipeline."""

    table: str
    update_keys: tuple[str, ...] | None
    fresh: deque[Entry] = field(default_factory=deque)
    fresh_rows: int = 0
    batches: deque[Batch] = field(default_factory=deque)
    """Batches that were tried and come again."""
    not_before: float = 0.0
    failures: int = 0
    """Failed writes since the last good one."""
    stored: int = 0
    fresh_turn: bool = True
    waits_since: float = math.inf
    """When it was begun to store what is not stored yet, on the loop's clock."""
    trouble: str = ""
    """The last error since then."""

    def __bool__(self) -> bool:
        return bool(self.fresh or self.batches)

    def take(self, batch_items: int) -> Batch:
        """The next batch. Fresh rows and suspects take turns, so that neither starves the other."""
        again = bool(self.batches) and not (
            self.fresh and self.fresh_turn and self.batches[0].suspect
        )
        self.fresh_turn = again
        if again:
            return self.batches.popleft()
        batch = Batch([])
        room = batch_items
        while self.fresh and (not batch.entries or len(self.fresh[0].records) <= room):
            entry = self.fresh.popleft()
            batch.entries.append(entry)
            room -= len(entry.records)
        self.fresh_rows -= batch.rows
        return batch


class Lane:
    """Feeds one pipeline from its queues, one write at a time.

    A table whose writes fail waits with backoff while the others go on. A write goes out at once
    when the last one is `flush_interval` ago or a full batch waits; else rows gather until then.
    """

    def __init__(
        self,
        name: str,
        pipeline: BasePipeline,
        *,
        flush_interval: float,
        batch_items: int,
        retry_min: float,
        retry_max: float,
        rng: random.Random,
        run_blocking: RunBlocking,
    ) -> None:
        self.name = name
        self.pipeline = pipeline
        self.trouble = ""
        self._flush_interval = flush_interval
        self._batch_items = batch_items
        self._retry_min = retry_min
        self._retry_max = retry_max
        self._rng = rng
        self._run_blocking = run_blocking
        self._queues: dict[tuple[str, tuple[str, ...] | None], Queue] = {}
        self._wake = asyncio.Event()
        self._asleep_until = math.inf
        self._draining = False
        self._cut_off = False
        self._logger = get_logger("pipelines")

    @property
    def takes_pages(self) -> bool:
        """Whether the records of a page are stored together, whatever their tables."""
        return isinstance(self.pipeline, PagePipeline)

    def add(self, entry: Entry) -> None:
        record = entry.records[0]
        keys = (PAGES, None) if self.takes_pages else (record.table, record.update_keys)
        queue = self._queues.get(keys)
        if queue is None:
            queue = self._queues[keys] = Queue(*keys)
        queue.fresh.append(entry)
        queue.fresh_rows += len(entry.records)
        if self._due_at(queue) < self._asleep_until:
            self._wake.set()

    async def run(self) -> None:
        """Write until `drain` was called and nothing is left."""
        loop = asyncio.get_running_loop()
        while True:
            queue = self._next_queue()
            if queue is None and self._draining:
                return
            due_at = math.inf if queue is None else self._due_at(queue)
            if queue is None or due_at > loop.time():
                await self._sleep_until(due_at)
            else:
                await self._write(queue)

    def drain(self) -> None:
        """Write all that is left without gathering; what waits for a retry is tried at once."""
        self._draining = True
        for queue in self._queues.values():
            queue.not_before = 0.0
        self._wake.set()

    def waits(self) -> tuple[float, str]:
        """Since when a table's rows wait to be stored (inf = none do), and the last error."""
        return min(
            ((queue.waits_since, queue.trouble) for queue in self._queues.values()),
            default=(math.inf, ""),
        )

    def leftovers(self) -> list[Entry]:
        """Take out the rows that were not answered."""
        left: list[Entry] = []
        for queue in self._queues.values():
            for batch in queue.batches:
                left.extend(batch.entries)
            left.extend(queue.fresh)
        self._queues.clear()
        return left

    async def close(self) -> None:
        """Close the pipeline, unless a write was cut off that may still be running in a thread."""
        if self._cut_off:
            event(self._logger, "pipeline_left_open", level=logging.ERROR, pipeline=self.name)
        else:
            await self._call(self.pipeline.close)

    def _next_queue(self) -> Queue | None:
        waiting = (queue for queue in self._queues.values() if queue)
        return min(
            waiting,
            key=lambda queue: (self._due_at(queue), queue.update_keys is not None),
            default=None,
        )

    def _due_at(self, queue: Queue) -> float:
        if queue.failures == 0 and (
            self._draining or queue.batches or queue.fresh_rows >= self._batch_items
        ):
            return 0.0
        return queue.not_before

    async def _sleep_until(self, due_at: float) -> None:
        self._wake.clear()
        self._asleep_until = due_at
        loop = asyncio.get_running_loop()
        timer = None if due_at == math.inf else loop.call_at(due_at, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            self._asleep_until = -math.inf
            if timer is not None:
                timer.cancel()

    async def _write(self, queue: Queue) -> None:
        batch = queue.take(self._batch_items)
        queue.waits_since = min(queue.waits_since, asyncio.get_running_loop().time())
        try:
            await self._store(queue, batch)
        except asyncio.CancelledError:
            self._cut_off = True
            queue.batches.appendleft(batch)
            raise
        except NotImplementedError as error:
            self._reject(queue, batch, error)
        except ItemError as error:
            self._search(queue, batch, error)
        except Exception as error:
            self._failed(queue, batch, error)
        else:
            self._stored(queue, batch)

    async def _store(self, queue: Queue, batch: Batch) -> None:
        if isinstance(self.pipeline, PagePipeline):
            await self._store_pages(self.pipeline, batch)
            return
        rows: list[Row] = [dict(record.row) for entry in batch.entries for record in entry.records]
        if queue.update_keys is None:
            answer = await self._call(self.pipeline.save_items, queue.table, rows)
        else:
            answer = await self._call(
                self.pipeline.update_items, queue.table, rows, list(queue.update_keys)
            )
        if not answer:
            raise PipelineError(f"it returned {answer!r}; True is the answer for a stored batch")

    async def _store_pages(self, pipeline: PagePipeline, batch: Batch) -> None:
        pages = [Page(entry.origin, entry.records) for entry in batch.entries]
        refused = {
            id(refusal.record): refusal.error
            for refusal in await self._call(pipeline.save_pages, pages)
        }
        for entry in batch.entries if refused else ():
            for record in entry.records:
                if id(record) in refused:
                    self._refuse(entry, record, refused[id(record)])

    async def _call(self, method: Callable[..., Any], *args: Any) -> Any:
        with contained():
            if inspect.iscoroutinefunction(method):
                return await method(*args)
            answer = await self._run_blocking(method, *args)
            return await answer if inspect.isawaitable(answer) else answer

    def _stored(self, queue: Queue, batch: Batch) -> None:
        if queue.failures:
            event(self._logger, "items_stored_again", pipeline=self.name, table=queue.table)
        self.trouble = queue.trouble = ""
        queue.waits_since = math.inf
        queue.failures = 0
        queue.stored += batch.rows
        queue.not_before = asyncio.get_running_loop().time() + self._flush_interval
        for entry in batch.entries:
            entry.ticket.answer()

    def _search(self, queue: Queue, batch: Batch, error: ItemError) -> None:
        if len(batch.entries) == 1:
            self._reject(queue, batch, error)
            return
        queue.batches.extendleft(reversed(batch.halves()))
        queue.not_before = 0.0

    def _failed(self, queue: Queue, batch: Batch, error: Exception) -> None:
        if batch.failures == 0:
            batch.stored_before = queue.stored
        batch.failures += 1
        queue.failures += 1
        pause = min(self._retry_max, self._retry_min * 2 ** min(queue.failures - 1, 30))
        pause *= 0.5 + self._rng.random() / 2
        queue.not_before = asyncio.get_running_loop().time() + pause
        self.trouble = queue.trouble = f"{type(error).__name__}: {error}"
        event(
            self._logger,
            "items_not_stored",
            level=logging.WARNING,
            pipeline=self.name,
            table=queue.table,
            rows=batch.rows,
            next_try_seconds=round(pause, 1),
            error=self.trouble,
        )
        if not batch.suspect:
            queue.batches.appendleft(batch)
        elif len(batch.entries) > 1:
            queue.batches.extend(batch.halves())
        elif batch.failures >= REJECT_AFTER and queue.stored > batch.stored_before:
            self._reject(queue, batch, ItemError(f"{self.trouble} (rows beside it were stored)"))
        else:
            queue.batches.append(batch)

    def _reject(self, queue: Queue, batch: Batch, error: Exception) -> None:
        queue.waits_since = math.inf
        for entry in batch.entries:
            for record in entry.records:
                self._refuse(entry, record, error)
            entry.ticket.answer()

    def _refuse(self, entry: Entry, record: ItemRecord, error: Exception) -> None:
        event(
            self._logger,
            "item_rejected",
            level=logging.ERROR,
            pipeline=self.name,
            table=record.table,
            key=record.key,
            error=error,
        )
        entry.ticket.rejected.append(Rejected(record, error, self.name))
