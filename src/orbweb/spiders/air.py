"""AirSpider: one process, everything in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orbweb.spiders.base import BaseSpider, ItemHandler


class AirSpider(BaseSpider):
    """A spider whose frontier is in memory: nothing to install, nothing survives the process.

    Callbacks may be any function, local ones and lambdas too, for requests never leave the
    process.
    """

    def __init__(
        self,
        *,
        thread_count: int | None = None,
        item_handler: ItemHandler | None = None,
        pipelines: Iterable[Any] | None = None,
        debug: bool = False,
    ) -> None:
        """`debug`: one request at a time and DEBUG log lines."""
        super().__init__(
            thread_count=1 if debug else thread_count,
            item_handler=item_handler,
            pipelines=pipelines,
        )
        if debug:
            self._arguments["LOG_LEVEL"] = "DEBUG"
