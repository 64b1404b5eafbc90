"""Tasks: what a request of a task looks like in the frontier, and the list in which tasks wait."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from redis.asyncio import Redis

from orbweb.errors import UnserialisableError
from orbweb.frontier.base import TASKS_HOST, NewRequest
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.server import answer_of

TASK_PRIORITY = 300

_UID = re.compile(r"[0-9A-Za-z_-]{1,64}").fullmatch


class NewTask(NamedTuple):
    """A task on its way into the frontier: a JSON value under a name that no other task has."""

    uid: str
    """Letters, digits, `_` and `-`. While a task of that name is open, another is a duplicate."""
    value: Any

    def pack(self) -> bytes:
        """The value as JSON. Raises `UnserialisableError` when it is none."""
        return pack_task(self.value)


class TaskEnd(NamedTuple):
    """What a hook is called with: the task, and why it failed; no reason when it is done."""

    uid: str
    value: Any
    reason: str = ""


class TaskList(Protocol):
    """Where tasks wait until a run takes them. It belongs to no run. Calls: `StoreUnavailable`."""

    async def push(self, tasks: Sequence[NewTask]) -> int:
        """Add tasks at the end; returns how many wait now. All of them, or none."""

    async def count(self) -> int:
        """How many wait."""

    async def first(self, most: int) -> list[Any]:
        """The values of those that are taken next; a text about what is no task."""


def new_uid() -> str:
    """A name that no task has had."""
    return uuid.uuid4().hex[:16]


def new_tasks(values: Iterable[Any]) -> list[NewTask]:
    """Tasks with names of their own."""
    return [NewTask(new_uid(), value) for value in values]


def task_of(id: str) -> str:
    """The task that a request belongs to; empty for a request of none."""
    uid, dot, _ = id.partition(".")
    return uid if dot else ""


def adopted(id: str, owner: str) -> str:
    """The id of a request as one of the owner's task."""
    task, page = task_of(owner), id.rpartition(".")[2]
    return f"{task}.{page}" if task else page


def page_of(id: str) -> str:
    """What names the page of a request, whatever task it belongs to."""
    page = id.rpartition(".")[2]
    return id if page == "task" else page


def task_request(task: NewTask, fingerprint: int | None = None) -> NewRequest:
    """A task as it enters the frontier. Raises `UnserialisableError` for a wrong value or name."""
    if not _UID(task.uid):
        raise UnserialisableError(
            f"{task.uid!r} cannot name a task: right would be up to 64 letters, digits, _ and -"
        )
    return NewRequest(f"{task.uid}.task", TASKS_HOST, TASK_PRIORITY, fingerprint, task.pack())


def pack_task(value: Any) -> bytes:
    """A task as JSON. Raises `UnserialisableError` that names what is no JSON value."""
    _check(value, "task")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def unpack_task(payload: bytes) -> Any:
    """See `pack_task`."""
    return json.loads(payload)


def unpack_end(uid: str, payload: bytes) -> TaskEnd:
    """What the pseudo-request at a task's end says: its reason, a line end, the task."""
    reason, _, value = payload.partition(b"\n")
    return TaskEnd(uid, unpack_task(value), reason.decode())


def _check(value: Any, where: str) -> None:
    if value is None or isinstance(value, bool | int):
        return
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UnserialisableError(f"{where}: half a surrogate pair in {value!r}") from None
        return
    if isinstance(value, float):
        if value - value == 0:
            return
        raise UnserialisableError(f"{where} is {value}, which JSON does not have")
    if isinstance(value, list | tuple):
        for place, each in enumerate(value):
            _check(each, f"{where}[{place}]")
        return
    if isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(name, str):
                raise UnserialisableError(
                    f"{where} has the key {name!r}; the keys of a JSON object are text"
                )
            _check(each, f"{where}[{name!r}]")
        return
    raise UnserialisableError(
        f"{where} is a {type(value).__name__} ({str(value)[:80]!r}); a task is a JSON value: a "
        "dict, list, str, int, float, bool or None, so right would be its text or its number"
    )


class ValkeyTaskList:
    """See `TaskList`. Plain commands; `lua/take_tasks.lua` moves tasks from it into a run."""

    def __init__(self, client: Redis, prefix: str, key: str) -> None:
        """`client` for the server of shard 0; `key` is the spider's `task_key`."""
        self._client = client
        self._key = ShardKeys(prefix).task_list(key)

    async def push(self, tasks: Sequence[NewTask]) -> int:
        if not tasks:
            return await self.count()
        rows = [pack_row(task) for task in tasks]
        return int(await answer_of(self._client.rpush(self._key, *rows)))

    async def count(self) -> int:
        return int(await answer_of(self._client.llen(self._key)))

    async def first(self, most: int) -> list[Any]:
        if most < 1:
            return []
        rows = await answer_of(self._client.lrange(self._key, 0, most - 1))
        return [_value(row) for row in rows]


def _value(row: bytes) -> Any:
    try:
        return unpack_task(row.partition(b" ")[2])
    except ValueError:
        return f"(no task: {row!r:.80})"


def pack_row(task: NewTask) -> bytes:
    """A task as it stands in the list."""
    request = task_request(task)
    payload: bytes = request.payload
    return b"%s %s" % (task.uid.encode(), payload)
