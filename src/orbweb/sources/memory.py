"""A table of tasks in the memory of one process: for spiders that are tried out, and for tests."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orbweb.sources.base import (
    BATCH_FIELD,
    DOING,
    TODO,
    BatchRecord,
    BatchRecords,
    BatchState,
    Task,
    TaskCounts,
    TaskState,
    counts_of,
)

Row = dict[str, Any]


def _wall_ms() -> int:
    return int(time.time() * 1000)


class MemoryBatchStore:
    """See `BatchStore`. The rows that it is given are the table: their states change in place."""

    def __init__(
        self,
        tasks: Iterable[Row],
        *,
        id_field: str = "id",
        state_field: str = "batch_status",
        now_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self._tasks = MemoryTasks(list(tasks), id_field, state_field)
        self._now_ms = now_ms
        self._records: dict[str, MemoryRecords] = {}

    @property
    def tasks(self) -> MemoryTasks:
        return self._tasks

    @property
    def id_field(self) -> str:
        return self._tasks.id_field

    def records(self, job: str) -> BatchRecords:
        return self._records.setdefault(job, MemoryRecords(job, self._now_ms))

    def prepare(self, *, make: bool = True) -> bool:
        """Nothing is missing."""
        return True

    def close(self) -> None:
        """There are no connections."""


class MemoryTasks:
    """See `TaskTable`."""

    def __init__(self, rows: list[Row], id_field: str, state_field: str) -> None:
        self.rows = rows
        self.id_field = id_field
        self._state = state_field
        self._lock = threading.Lock()

    def highest_batch(self) -> int:
        return max((row.get(BATCH_FIELD) or 0 for row in self.rows), default=0)

    def enter(self, batch: int, after: Any, limit: int) -> Any | None:
        with self._lock:
            seen = self._after(after)[:limit]
            for row in seen:
                if (row.get(BATCH_FIELD) or 0) < batch:
                    row.update({self._state: int(TODO), BATCH_FIELD: batch})
        return seen[-1][self.id_field] if len(seen) == limit else None

    def claim(self, batch: int, after: Any, limit: int) -> list[Task]:
        with self._lock:
            mine = [row for row in self._after(after) if self._is(row, batch, TODO)][:limit]
            for row in mine:
                row[self._state] = int(DOING)
            return [Task(row[self.id_field], self._shown(row)) for row in mine]

    def put_back(self, batch: int, held: Container[str]) -> int:
        with self._lock:
            doing = [row for row in self.rows if self._is(row, batch, DOING)]
            lost = [row for row in doing if str(row[self.id_field]) not in held]
            for row in lost:
                row[self._state] = int(TODO)
            return len(lost)

    def mark(self, batch: int, states: Mapping[Any, TaskState], *, unsettled: bool = False) -> int:
        changed = 0
        with self._lock:
            for row in self.rows:
                state = states.get(row[self.id_field])
                if state is None or row.get(BATCH_FIELD) != batch:
                    continue
                if not unsettled or self._is(row, batch, TODO, DOING):
                    row[self._state] = int(state)
                    changed += 1
        return changed

    def count(self, batch: int) -> TaskCounts:
        with self._lock:
            mine = (row for row in self.rows if row.get(BATCH_FIELD) == batch)
            return counts_of(list(Counter(row[self._state] for row in mine).items()))

    def _after(self, after: Any) -> list[Row]:
        name = self.id_field
        found = [row for row in self.rows if after is None or row[name] > after]
        return sorted(found, key=lambda row: row[name])

    def _is(self, row: Row, batch: int, *states: TaskState) -> bool:
        return row.get(BATCH_FIELD) == batch and row[self._state] in states

    def _shown(self, row: Row) -> Row:
        return {name: row[name] for name in row if name not in (self._state, BATCH_FIELD)}


@dataclass(slots=True)
class MemoryRecords:
    """See `BatchRecords`."""

    job: str
    now_ms: Callable[[], int]
    _batches: dict[int, BatchRecord] = field(default_factory=dict)
    _holder: str = ""
    _until_ms: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lead(self, holder: str, lease_ms: int) -> bool:
        with self._lock:
            now = self.now_ms()
            if holder != self._holder and now < self._until_ms:
                return False
            self._holder, self._until_ms = holder, now + lease_ms
            return True

    def recent(self, limit: int) -> list[BatchRecord]:
        with self._lock:
            return [self._batches[number] for number in sorted(self._batches)[::-1][:limit]]

    def open_batch(self, number: int, due_ms: int, missed: int) -> None:
        with self._lock:
            going = any(not record.state.ended for record in self._batches.values())
            if number not in self._batches and not going:
                self._batches[number] = BatchRecord(
                    self.job, number, BatchState.OPENING, due_ms, self.now_ms(), missed=missed
                )

    def ready(self, number: int) -> None:
        with self._lock:
            record = self._batches[number]
            if record.state is BatchState.OPENING:
                self._batches[number] = replace(record, state=BatchState.OPEN)

    def note(self, number: int, counts: TaskCounts) -> None:
        with self._lock:
            if not self._batches[number].state.ended:
                self._batches[number] = replace(self._batches[number], counts=counts)

    def end_batch(self, number: int, counts: TaskCounts, state: BatchState) -> bool:
        with self._lock:
            record = self._batches[number]
            if record.state.ended:
                return False
            self._batches[number] = replace(
                record, state=state, counts=counts, ended_ms=self.now_ms()
            )
            return True
