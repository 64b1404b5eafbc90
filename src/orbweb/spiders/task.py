"""TaskSpider: works through tasks that other processes push, or that it fetches from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from orbweb.engine.outputs import collecting
from orbweb.errors import ConfigError, SpiderError
from orbweb.frontier.tasks import NewTask, new_tasks
from orbweb.spiders.base import BaseParser, ItemHandler
from orbweb.spiders.distributed import Spider

R = TypeVar("R")


class _OfClassOrSpider(Generic[R]):
    """A method that is called on the class or on a spider, and gets what it was called on."""

    def __init__(self, function: Callable[..., R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, spider: object | None, owner: type) -> Callable[..., R]:
        return partial(self._function, owner if spider is None else spider)


class TaskSpider(Spider):
    """A spider that gets tasks instead of start requests, and is told when each has ended.

    A task is a JSON value. It is pending in the store until every request that descends from it is
    finished and all their items are stored, whatever happens to nodes: then `task_done` is called,
    or `task_failed` when one of them was given up. Each task crawls for itself: what another one
    has fetched, or the same one earlier, is fetched again, unless `TASK_DEDUP` is on.

    Tasks come from a list in the store (`push_tasks`, `orbweb tasks push`), or from `fetch_tasks`.
    """

    task_key: str = ""
    """Name of the list; the spider's name when empty."""

    def __init__(
        self,
        *,
        redis_key: str | None = None,
        task_key: str | None = None,
        thread_count: int | None = None,
        keep_alive: bool | None = None,
        item_handler: ItemHandler | None = None,
        pipelines: Iterable[Any] | None = None,
    ) -> None:
        """`task_key` names the list of tasks; whoever pushes has to name the same.

        `keep_alive`: wait for further tasks until `orbweb stop`, instead of ending when there are
        none. Raises `ConfigError` for a spider that has start requests.
        """
        super().__init__(
            redis_key=redis_key,
            thread_count=thread_count,
            keep_alive=keep_alive,
            item_handler=item_handler,
            pipelines=pipelines,
        )
        self._refuse_misplaced_hooks()
        self.task_key = _key(self, task_key)

    def _refuse_misplaced_hooks(self) -> None:
        if self.start_urls or type(self).start_requests is not BaseParser.start_requests:
            raise ConfigError(
                f"{type(self).__name__} is a TaskSpider, which begins with tasks: what start_urls "
                "or start_requests yields belongs into task_requests, or into a Spider of its own"
            )

    # -- what users write

    def task_requests(self, task: Any) -> Any:
        """Yield the requests of a task; items too. Must be overridden.

        When it raises it is called again, as a request is tried again, and at last the task has
        failed.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method task_requests(task)")

    def fetch_tasks(self, limit: int) -> Any:
        """Return up to `limit` tasks that nobody has been given; an empty list when there are none.

        Without a method of your own the tasks come from the list in the store. One node at a time
        calls it: at once again when there were some, else after `TASK_POLL_INTERVAL`. A node that
        dies after it has returned, and before the tasks are in the store, takes them with it: see
        `recover_tasks`.
        """
        raise NotImplementedError("without fetch_tasks the tasks come from the list in the store")

    def recover_tasks(self, open_tasks: list[Any]) -> Any:
        """Put back what `fetch_tasks` has marked as taken and what is not among `open_tasks`.

        `open_tasks` are all tasks that wait, are worked on, or whose end was not told yet. Called
        before `fetch_tasks` by each node that takes over the fetching, and whenever nothing is left
        to do. Tasks that have ended must be marked as such by then: by `task_done`.
        """
        return None

    def task_done(self, task: Any) -> Any:
        """Every request of the task has ended well, and its items are stored.

        Called at least once for each such task. May yield items; requests that it yields belong to
        no task. When it raises it is tried again as a request is, and ends as a dead letter.
        """
        return None

    def task_failed(self, task: Any, reason: str) -> Any:
        """Nothing of the task is left, and a request of it was given up: for this reason.

        As `task_done` otherwise. After `orbweb failed retry` the task is open again and its end is
        told once more.
        """
        return None

    def task_ended(self, uid: str, task: Any, reason: str) -> Any:
        """Calls `task_done`, or `task_failed` if there is a reason; `uid` is the task's name."""
        return self.task_failed(task, reason) if reason else self.task_done(task)

    # -- what users call

    @_OfClassOrSpider
    def push_tasks(this: Any, *tasks: Any, task_key: str | None = None) -> int:
        """Let tasks wait in the list; returns how many wait there now. For any process.

        Can be called on the class and on a spider, with the same result. Blocks. Raises
        `UnserialisableError` for what is no JSON value (then none is pushed), `ConfigError` and
        `StoreUnavailable`.
        """
        from orbweb.spiders.tasklist import push_now

        return push_now(this, _key(this, task_key), tasks)

    def add_tasks(self, *tasks: Any) -> None:
        """Add tasks from a callback: they enter with its page's links, all or none.

        Outside of callbacks it is `push_tasks`. Raises `UnserialisableError` for no JSON value.
        """
        outputs = collecting.get()
        if outputs is None:
            self.push_tasks(*tasks)
        else:
            outputs.add_tasks(tasks)

    # -- what the engine calls

    @property
    def calls(self) -> Any:
        """What the engine calls for tasks: the spider itself, unless something stands before it."""
        return self

    async def poll(self, limit: int) -> Sequence[NewTask]:
        """The next tasks, each with a name of its own."""
        engine = self._started("tasks")
        fetched = await engine.call(self.fetch_tasks, limit)
        if fetched is None:
            return ()
        if isinstance(fetched, str | bytes | Mapping) or not isinstance(fetched, Iterable):
            raise SpiderError(
                f"fetch_tasks must return a list of tasks, not {type(fetched).__name__}: "
                f"{str(fetched)[:80]!r}"
            )
        if isinstance(fetched, Iterator):
            fetched = await engine.call(list, fetched)
        return new_tasks(fetched)

    async def recover(self, open_tasks: Sequence[NewTask]) -> None:
        """Has what was lost put back."""
        if type(self).recover_tasks is not TaskSpider.recover_tasks:
            values = [task.value for task in open_tasks]
            await self._started("tasks").call(self.recover_tasks, values)

    @property
    def has_source(self) -> bool:
        """Tasks come from the spider's own `fetch_tasks`, not from the list."""
        return self._has_own("fetch_tasks", "poll")

    @property
    def wants_done(self) -> bool:
        """There is something to call for a task that is done."""
        return self._has_own("task_done", "task_ended")

    @property
    def wants_failed(self) -> bool:
        """There is something to call for a task that has failed."""
        return self._has_own("task_failed", "task_ended")

    def _has_own(self, *names: str) -> bool:
        return any(getattr(type(self), name) is not getattr(TaskSpider, name) for name in names)


def _key(this: Any, task_key: str | None = None) -> str:
    """The one place that says which list is meant, of a class and of its spiders alike."""
    return str(task_key or this.task_key or this.name)
