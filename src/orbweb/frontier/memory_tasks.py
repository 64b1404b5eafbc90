"""What a run in memory knows of its tasks: the twin of the task keys in `lua/shard.lua`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orbweb.frontier.base import TaskLook
from orbweb.frontier.tasks import NewTask, task_of, task_request, unpack_task


class MemoryTaskList:
    """See `TaskList`."""

    def __init__(self, lists: dict[str, list[tuple[str, bytes]]], key: str) -> None:
        """`lists`: those of a `MemoryShard`."""
        self._waiting = lists.setdefault(key, [])

    async def push(self, tasks: Sequence[NewTask]) -> int:
        self._waiting += [(task.uid, task_request(task).payload) for task in tasks]
        return len(self._waiting)

    async def count(self) -> int:
        return len(self._waiting)

    async def first(self, most: int) -> list[Any]:
        return [unpack_task(value) for _, value in self._waiting[: max(most, 0)]]


@dataclass(slots=True)
class TaskBook:
    """Tasks of one run (of one shard of it), and which of their requests are left."""

    living: dict[str, bytes] = field(default_factory=dict)
    """JSON of each task that has not ended."""
    failed: dict[str, bytes] = field(default_factory=dict)
    open: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    fallen: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    faults: dict[str, tuple[int, str]] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)
    left: dict[str, None] = field(default_factory=dict)
    """Tasks of which the transition at work has taken something away."""

    def attach(self, id: str, seq: int | None, mark: str = "") -> None:
        """See `attach` in `shard.lua`; `seq` in a run of several shards."""
        if task := task_of(id):
            self.open[task].add(mark or id)
            if seq is not None:
                self.moved[task] = seq + 1

    def detach(self, id: str, mark: str = "") -> None:
        """See `detach` in `shard.lua`."""
        if task := task_of(id):
            _take(self.open, task, mark or id)
            self.left[task] = None

    def fault(self, id: str, wall: int, reason: str) -> None:
        """A request of a task is a dead letter now."""
        if task := task_of(id):
            self.fallen[task].add(id)
            self.faults.setdefault(task, (wall, reason))

    def absolve(self, id: str) -> None:
        """A dead letter is none any more."""
        if task := task_of(id):
            _take(self.fallen, task, id)
            if task not in self.fallen:
                self.faults.pop(task, None)
            self.left[task] = None

    def revive(self, task: str) -> bool:
        """Let a task that has failed be open again; False when there is none."""
        value = self.failed.pop(task, None)
        if value is None:
            return False
        self.living[task] = value
        self.left[task] = None
        return True

    def take_left(self) -> list[str]:
        """The tasks that this transition may have ended."""
        left, self.left = list(self.left), {}
        return [task for task in left if task not in self.open]

    def look_again(self) -> None:
        """See `end_forgotten` in `fsck.lua`."""
        self.left |= dict.fromkeys(
            task for task in self.living if task not in self.open and task not in self.idle
        )

    def fault_of(self, task: str) -> str:
        """Why the task has failed; empty when it has not."""
        return self.faults.get(task, (0, ""))[1]

    def look(self, task: str) -> TaskLook:
        """See `TaskControl.look_at_tasks`."""
        fault = self.faults.get(task)
        return TaskLook(
            task in self.open,
            self.word(task),
            f"{fault[0]}\n{fault[1]}" if fault else "",
            "living" if task in self.living else "failed" if task in self.failed else "",
        )

    def word(self, task: str) -> str:
        """See `TaskLook.moved`."""
        return str(self.moved.get(task, ""))


def _take(index: defaultdict[str, set[str]], task: str, mark: str) -> None:
    if task in index:
        index[task].discard(mark)
        if not index[task]:
            del index[task]
