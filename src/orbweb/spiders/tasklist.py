"""The list of tasks as processes outside of a run use it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from orbweb.frontier.embedded import EmbeddedStore
from orbweb.frontier.servers import reach
from orbweb.frontier.tasks import ValkeyTaskList, new_tasks, pack_row
from orbweb.settings import Settings, load_settings

T = TypeVar("T")


@asynccontextmanager
async def task_list(
    settings: Settings, key: str, directory: Path | None = None
) -> AsyncIterator[ValkeyTaskList]:
    """The list of that key in the store that the settings name; the embedded one if none.

    Raises `ConfigError` and `StoreUnavailable`.
    """
    url, embedded = settings["REDIS_URL"], None
    if not url:
        embedded = EmbeddedStore(directory or Path.cwd())
        url = await asyncio.to_thread(embedded.__enter__)
    try:
        async with list_at(url, settings, key) as tasks:
            yield tasks
    finally:
        if embedded is not None:
            await asyncio.to_thread(embedded.release)


@asynccontextmanager
async def list_at(url: str, settings: Settings, key: str) -> AsyncIterator[ValkeyTaskList]:
    """The list of that key in the store at a URL."""
    prefix = settings["REDIS_KEY_PREFIX"]
    servers = await reach(url, prefix, settings["STORE_TIMEOUT"])
    try:
        yield ValkeyTaskList(servers.of_shard(0), prefix, key)
    finally:
        await servers.aclose()


def push_now(spider: Any, key: str, values: Sequence[Any]) -> int:
    """Push tasks with the settings of a spider or of its class; blocks, in an event loop too."""
    tasks = new_tasks(values)
    for task in tasks:
        pack_row(task)  # all are looked at before anything is asked of the store
    settings = load_settings(
        spider_settings=spider.class_settings(),
        spider_name=spider.name,
        arguments={},
        overrides={},
        directory=Path.cwd(),
        environ=os.environ,
    )

    async def push() -> int:
        async with task_list(settings, key) as waiting:
            return await waiting.push(tasks)

    return run_apart(push)


def run_apart(call: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine on an event loop of its own, whether or not there is one here."""

    async def run() -> T:
        return await call()

    with ThreadPoolExecutor(1, "orbweb-tasks") as thread:
        return thread.submit(asyncio.run, run()).result()
