"""What the engine calls of a BatchSpider for its tasks, which are the rows of one batch."""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from functools import lru_cache
from typing import Any

from orbweb.batch.work import BatchWork
from orbweb.engine.callbacks import as_outputs
from orbweb.frontier.tasks import NewTask
from orbweb.model.request import Request
from orbweb.spiders.task import TaskSpider


class BatchTasks:
    """Stands between the engine and the spider: rows come from the batch, and their ends go there.

    See `TaskSpider` for what each method is.
    """

    def __init__(
        self, spider: TaskSpider, work: BatchWork, call: Callable[..., Awaitable[Any]]
    ) -> None:
        """`call` calls code of the spider that may block."""
        self._spider = spider
        self._work = work
        self._call = call

    async def poll(self, limit: int) -> Sequence[NewTask]:
        return await self._work.poll()

    async def recover(self, open_tasks: Sequence[NewTask]) -> None:
        await self._work.recover(open_tasks)

    def task_requests(self, task: Any) -> Any:
        """The spider's, and each request carries the task to its callback."""
        result = self._spider.task_requests(task)
        if _is_async(result):
            return self._carried_later(result, task)
        return self._carried(as_outputs(result), task)

    def task_ended(self, uid: str, task: Any, reason: str) -> Any:
        """The state of the row is written first, then the spider's own hook is called."""
        return self._end(task, reason)

    async def _end(self, task: Any, reason: str) -> AsyncIterator[Any]:
        await self._work.ended(task, failed=bool(reason))
        name = "task_failed" if reason else "task_done"
        if getattr(type(self._spider), name) is getattr(TaskSpider, name):
            return
        hook, args = getattr(self._spider, name), (task, reason) if reason else (task,)
        outputs = await self._call(_called, hook, args)
        async for output in _as_stream(outputs):
            yield output

    def _carried(self, outputs: Iterable[Any], task: Any) -> Iterator[Any]:
        for output in outputs:
            self._give(output, task)
            yield output

    async def _carried_later(self, result: Any, task: Any) -> AsyncIterator[Any]:
        async for output in _as_stream(result):
            self._give(output, task)
            yield output

    def _give(self, output: Any, task: Any) -> None:
        """Give the task to the callback, if it takes one and is not given another."""
        if not isinstance(output, Request) or "task" in output.cb_kwargs:
            return
        callback: Any = output.callback or self._spider.parse
        if isinstance(callback, str):
            callback = getattr(self._spider, callback, None)
        function = getattr(callback, "__func__", callback)
        if callable(function) and _takes(function, "task"):
            output.cb_kwargs = {**output.cb_kwargs, "task": task}


def _is_async(result: Any) -> bool:
    return inspect.isawaitable(result) or isinstance(result, AsyncIterable)


async def _as_stream(result: Any) -> AsyncIterator[Any]:
    """What a function returned, plain or not, as an asynchronous series of outputs."""
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, AsyncIterable):
        async for output in result:
            yield output
        return
    for output in as_outputs(result):
        yield output


def _called(hook: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call a hook in a thread, where a plain one may block and is read to its end."""
    result = hook(*args)
    return result if _is_async(result) else list(as_outputs(result))


@lru_cache(maxsize=256)
def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function can be given that keyword argument."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
