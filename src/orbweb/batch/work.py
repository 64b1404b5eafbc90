"""What a node does for one batch: it claims rows, and writes down how each has come to its end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from orbweb.errors import ItemError, StoreUnavailable
from orbweb.frontier.tasks import NewTask
from orbweb.log import event, get_logger
from orbweb.sources.base import DONE, FAILED, BatchStore, TaskState

T = TypeVar("T")

OUTAGE_SECONDS = 1.0

RUN_PREFIX = "batch-"

_NAME = re.compile(r"[0-9A-Za-z_-]{1,40}").fullmatch

log = get_logger("orbweb.batch")


def run_of(number: int) -> str:
    """The id of the run that a batch is."""
    return f"{RUN_PREFIX}{number}"


def task_name(number: int, id: Any) -> str:
    """The name of a row's task: the same whenever the row is handed out in this batch."""
    text = str(id)
    if not _NAME(text):
        text = f"x{blake2b(text.encode(), digest_size=16).hexdigest()}"
    return f"{number}-{text}"


class BatchWork:
    """The rows of one batch, as one node works on them.

    While the database is away calls wait for it. Every change of a row names the batch, so a node
    that was asleep until the next one changes nothing.
    """

    def __init__(
        self,
        store: BatchStore,
        number: int,
        limit: int,
        run_blocking: Callable[..., Awaitable[Any]],
    ) -> None:
        """`limit`: most rows that are claimed in one step."""
        self.number = number
        self._tasks = store.tasks
        self._id_field = store.id_field
        self._limit = limit
        self._run_blocking = run_blocking
        self._after: Any = None
        self._ends: dict[Any, TaskState] = {}
        self._writing = asyncio.Lock()

    async def poll(self) -> list[NewTask]:
        """Claim the next rows; empty when there are none now."""
        after = self._after
        rows = await self._ask(self._tasks.claim, self.number, after, self._limit)
        self._after = rows[-1].id if rows else None
        if not rows and after is not None:
            return await self.poll()  # those before may have been put back
        return [NewTask(task_name(self.number, task.id), task.row) for task in rows]

    async def recover(self, open_tasks: Sequence[NewTask]) -> None:
        """Put rows back that were claimed, and are not among the tasks that the run has."""
        held = {str(task.value[self._id_field]) for task in open_tasks}
        lost = await self._ask(self._tasks.put_back, self.number, held)
        if lost:
            event(log, "batch_rows_put_back", batch=self.number, rows=lost)
            self._after = None

    async def ended(self, task: Any, *, failed: bool) -> None:
        """Write down that a row has come to its end, unless the spider has said so itself.

        Returns when that is durable. Rows that end together are written together.
        """
        id = self.id_of(task)
        self._ends[id] = FAILED if failed else DONE
        async with self._writing:
            if id not in self._ends:
                return  # it was written with another's
            ends, self._ends = self._ends, {}
            try:
                await self._ask(lambda: self._tasks.mark(self.number, ends, unsettled=True))
            except asyncio.CancelledError:
                self._ends = {**ends, **self._ends}
                raise

    def mark(self, id: Any, state: TaskState) -> bool:
        """Set the state of a row at once; False when the batch has no such row. Blocks.

        Raises `StoreUnavailable`.
        """
        return self._tasks.mark(self.number, {id: state}) > 0

    def id_of(self, task: Any) -> Any:
        """The id of the row that a task is."""
        try:
            return task[self._id_field]
        except (KeyError, TypeError):
            raise ItemError(
                f"a task of a batch is a row with {self._id_field!r}, not {task!r}"
            ) from None

    async def _ask(self, call: Callable[..., T], *args: Any) -> T:
        away = False
        while True:
            try:
                answer: T = await self._run_blocking(call, *args)
            except StoreUnavailable as error:
                if not away:
                    log.warning("batch %d waits: %s", self.number, error)
                away = True
            else:
                if away:
                    log.warning("batch %d goes on", self.number)
                return answer
            await asyncio.sleep(OUTAGE_SECONDS)
