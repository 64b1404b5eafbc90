"""Spider: many processes and machines share one frontier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orbweb.spiders.base import BaseSpider, ItemHandler


class Spider(BaseSpider):
    """A spider whose frontier is in a Redis or Valkey server (`REDIS_URL`).

    Every process that starts the same spider joins the same run. Without `REDIS_URL` the processes
    of one directory share a server that the first of them starts.
    """

    redis_key: str = ""
    """Names the job; nodes with the same one work together. Default: the name."""

    def __init__(
        self,
        *,
        redis_key: str | None = None,
        thread_count: int | None = None,
        keep_alive: bool | None = None,
        item_handler: ItemHandler | None = None,
        pipelines: Iterable[Any] | None = None,
    ) -> None:
        """`redis_key` goes before the class attribute.

        `keep_alive`: stay and wait for more work when the queue is empty.
        """
        super().__init__(thread_count=thread_count, item_handler=item_handler, pipelines=pipelines)
        self.redis_key = redis_key or self.redis_key or self.name
        if keep_alive is not None:
            self._arguments["SPIDER_KEEP_ALIVE"] = keep_alive
