"""Tables of tasks and records of batches: values and seams; no I/O."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Protocol

BATCH_FIELD = "batch_id"
"""The column of a task table that says to which batch the state of a row belongs."""

RECORD_TABLE = "orbweb_batches"


class TaskState(IntEnum):
    """The states of a row, by NetSpy's and feapder's numbers."""

    TODO = 0
    DONE = 1
    DOING = 2
    """It was handed to the nodes, and has not come to an end."""
    FAILED = -1


TODO, DONE, DOING, FAILED = TaskState


class BatchState(StrEnum):
    """What a batch is."""

    OPENING = "opening"
    """Its rows are being put back to `TODO`: nobody works on it yet."""
    OPEN = "open"
    DONE = "done"
    ABANDONED = "abandoned"
    """It was given up when the next one was due."""

    @property
    def ended(self) -> bool:
        return self in (BatchState.DONE, BatchState.ABANDONED)


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many rows of a batch are in each state."""

    total: int = 0
    todo: int = 0
    doing: int = 0
    done: int = 0
    failed: int = 0

    @property
    def settled(self) -> int:
        return self.done + self.failed

    @property
    def finished(self) -> bool:
        """Nothing is left to do. A state that is none of ours is an end too."""
        return not self.todo and not self.doing


class Task(NamedTuple):
    """A row on its way to the nodes."""

    id: Any
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One batch of a job. Times are milliseconds since 1970 on the database's clock."""

    job: str
    number: int
    """Grows by at least one from batch to batch, and is never given twice."""
    state: BatchState
    due_ms: int
    """When it was to begin."""
    opened_ms: int
    ended_ms: int = 0
    """0 while it goes on."""
    missed: int = 0
    """How many times of the schedule passed without a batch before it."""
    counts: TaskCounts = field(default_factory=TaskCounts)
    """As they were last written down."""


class BatchRecords(Protocol):
    """The batches of one job, and which node is its master.

    Calls block, may come from any thread, and may be repeated with the same arguments. All raise
    `StoreUnavailable` when the database does not answer (the call may have happened).
    """

    def now_ms(self) -> int:
        """The database's clock: schedules of all nodes go by it."""

    def lead(self, holder: str, lease_ms: int) -> bool:
        """Become or stay the master for so long; False when another holder is it.

        With `lease_ms` 0 the role is given back at once.
        """

    def recent(self, limit: int) -> list[BatchRecord]:
        """The latest batches, the last one first."""

    def open_batch(self, number: int, due_ms: int, missed: int) -> None:
        """Enter a batch in state `OPENING`, unless that number is taken or a batch goes on."""

    def ready(self, number: int) -> None:
        """`OPENING` becomes `OPEN`: nodes may work on it."""

    def note(self, number: int, counts: TaskCounts) -> None:
        """Write down the counts of a batch that goes on."""

    def end_batch(self, number: int, counts: TaskCounts, state: BatchState) -> bool:
        """Write down counts, state and end; False when it had ended before."""


class TaskTable(Protocol):
    """The rows that are the tasks of each batch.

    A row belongs to the batch that its batch column names, and only who names the same batch can
    change its state: a node that slept through the end of a batch cannot touch the next one. Calls
    block, may come from any thread, and may be repeated with the same arguments. All raise
    `StoreUnavailable` when the database does not answer.
    """

    def highest_batch(self) -> int:
        """The highest batch that a row names; 0 when none does."""

    def enter(self, batch: int, after: Any, limit: int) -> Any | None:
        """Let rows of earlier batches, and new ones, enter the batch as `TODO`.

        Looks at `limit` rows whose ids come after `after` (None: at the first ones); returns the
        last id that it looked at, or None when there are no more.
        """

    def claim(self, batch: int, after: Any, limit: int) -> list[Task]:
        """Make the first `TODO` rows of the batch after an id `DOING`, and return them."""

    def put_back(self, batch: int, held: Container[str]) -> int:
        """Make `DOING` rows `TODO` again unless `held` has their ids as text; returns how many."""

    def mark(self, batch: int, states: Mapping[Any, TaskState], *, unsettled: bool = False) -> int:
        """Set the states of rows, by their ids, where they belong to the batch; returns how many.

        `unsettled`: only those that have not come to an end.
        """

    def count(self, batch: int) -> TaskCounts:
        """How many rows of the batch are in each state."""


class BatchStore(Protocol):
    """A table of tasks and the records of its batches, in one database."""

    @property
    def tasks(self) -> TaskTable: ...

    @property
    def id_field(self) -> str:
        """The column, and the field of a task, that names it."""

    def records(self, job: str) -> BatchRecords:
        """The batches of a job."""

    def prepare(self, *, make: bool = True) -> bool:
        """Look the tables up, and make what is missing, where that is allowed; comes before all.

        With `make` False nothing is made, and the answer is False when there are no records yet.
        Raises `ConfigError` that says what is missing, and `StoreUnavailable`.
        """

    def close(self) -> None:
        """Let the connections go."""


def by_state(states: Mapping[Any, TaskState]) -> dict[TaskState, list[Any]]:
    """The ids that get each state, sorted: nodes that lock rows do it in one order."""
    found: dict[TaskState, list[Any]] = {}
    for id, state in sorted(states.items(), key=lambda pair: pair[0]):
        found.setdefault(state, []).append(id)
    return found


def counts_of(numbers: Sequence[tuple[int, int]]) -> TaskCounts:
    """Counts from pairs of state and number; states that are none of ours count in the total."""
    known = dict(numbers)
    return TaskCounts(
        total=sum(known.values()),
        todo=known.get(TODO, 0),
        doing=known.get(DOING, 0),
        done=known.get(DONE, 0),
        failed=known.get(FAILED, 0),
    )
