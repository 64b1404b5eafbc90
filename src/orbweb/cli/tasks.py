"""What `tasks push|list|count` do."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from orbweb.cli import show
from orbweb.cli.store import ask, existing_store
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import RunState, Status
from orbweb.frontier.tasks import NewTask, ValkeyTaskList, new_tasks
from orbweb.settings import Settings
from orbweb.spiders.tasklist import list_at, task_list
from orbweb.spiders.wording import counted

T = TypeVar("T")

PUSHED_AT_ONCE = 5_000


def push(settings: Settings, key: str, file: str) -> None:
    """Read tasks and push them. Raises `ConfigError` when a line is no JSON, or `key` is a file;
    then none is."""
    if Path(key).is_file():
        raise ConfigError(
            f"{key} is a file, and tasks are pushed to a job: right would be the name of its "
            f"spider, as orbweb list {key} shows it"
        )
    tasks = new_tasks(_read(file))

    async def act() -> int:
        waiting = 0
        async with task_list(settings, key) as tasks_of_key:
            for start in range(0, len(tasks), PUSHED_AT_ONCE):
                waiting = await tasks_of_key.push(tasks[start : start + PUSHED_AT_ONCE])
        return waiting

    if not tasks:
        raise ConfigError(f"{file} holds no task: right would be lines of JSON, one for each")
    waiting = asyncio.run(act())
    print(f"{counted(len(tasks), 'task')} pushed to {key}; {show.number(waiting)} wait now")
    show.note(f"next: start the spider, unless it runs · orbweb tasks count {key}")


def show_first(settings: Settings, key: str, limit: int, *, as_json: bool) -> None:
    """Print the tasks that are taken next."""
    values, waiting = _ask(settings, key, lambda tasks: _first(tasks, limit))
    if as_json:
        show.as_json({"job": key, "waiting": waiting, "tasks": values})
        return
    for value in values:
        print(json.dumps(value, ensure_ascii=False))
    if not waiting:
        print(f"no task waits in the list of {key}")
    elif waiting > len(values):
        show.note(f"… and {show.number(waiting - len(values))} more (--limit N)")


def count(settings: Settings, key: str, run: str | None, *, as_json: bool) -> None:
    """Print how many tasks there are in each state."""
    status = Status(RunState.NEW)
    with existing_store(settings, Path.cwd()):  # one start of an embedded store for both questions
        waiting = _ask(settings, key, lambda tasks: tasks.count())
        with suppress(ConfigError):  # no run has begun yet
            status = ask(settings, lambda admin: _status(admin, key, run))
    counts = {
        "waiting": waiting,
        "open": status.tasks,
        "done": status.reasons.get("task_done", 0),
        "failed": status.reasons.get("task_failed", 0),
    }
    if as_json:
        show.as_json({"job": key, **counts})
        return
    print(f"{key}: " + " · ".join(f"{name} {show.number(n)}" for name, n in counts.items()))


async def _status(admin: Admin, job: str, run: str | None) -> Status:
    return (await admin.find(job, run)).status


async def _first(tasks: ValkeyTaskList, limit: int) -> tuple[list[object], int]:
    return await tasks.first(limit), await tasks.count()


def _ask(settings: Settings, key: str, question: Callable[[ValkeyTaskList], Awaitable[T]]) -> T:
    async def answer(url: str) -> T:
        async with list_at(url, settings, key) as tasks:
            return await question(tasks)

    with existing_store(settings, Path.cwd()) as url:
        return asyncio.run(answer(url))


def _read(file: str) -> list[object]:
    if file == "-":
        return list(_parsed(sys.stdin, "stdin"))
    try:
        with Path(file).open(encoding="utf-8") as lines:
            return list(_parsed(lines, file))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def _parsed(lines: Iterable[str], name: str) -> Iterable[object]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            NewTask("check", value).pack()
        except ValueError as error:
            raise ConfigError(
                f"line {number} of {name} is no JSON ({error}): {line.strip()[:80]!r}; nothing was "
                'pushed. Right would be {"id": 1}'
            ) from None
        yield value
