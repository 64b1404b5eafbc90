"""TaskSpider: works through tasks that other processes push, or that it fetches from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from orbweb.frontier.tasks import NewTask
from orbweb.spiders.base import ItemHandler
from orbweb.spiders.distributed import Spider


class TaskSpider(Spider):
    """See `push_tasks`, `task_requests`, `task_done`."""

    task_key: str = ""

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
        super().__init__(
            redis_key=redis_key,
            thread_count=thread_count,
            keep_alive=keep_alive,
            item_handler=item_handler,
            pipelines=pipelines,
        )
        self.task_key = task_key or self.task_key or self.redis_key

    def task_requests(self, task: Any) -> Any: ...

    def fetch_tasks(self, limit: int) -> Any: ...

    def recover_tasks(self, open_tasks: list[Any]) -> Any: ...

    def task_done(self, task: Any) -> Any: ...

    def task_failed(self, task: Any, reason: str) -> Any: ...

    def task_ended(self, uid: str, task: Any, reason: str) -> Any: ...

    def add_tasks(self, *tasks: Any) -> Any: ...

    async def poll(self, limit: int) -> Sequence[NewTask]: ...

    async def recover(self, open_tasks: Sequence[NewTask]) -> None: ...

    @classmethod
    def push_tasks(cls, *tasks: Any, task_key: str | None = None) -> int: ...
