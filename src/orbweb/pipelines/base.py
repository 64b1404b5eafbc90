"""The seam between the item buffer and a place where items are stored."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from orbweb.errors import ItemError
from orbweb.log import get_logger
from orbweb.model.item import ItemRecord, Origin

Row = dict[str, Any]


class UpdateUnsupported(ItemError, NotImplementedError):
    """This pipeline can never update rows: the rows are rejected at once, not tried again."""


class BasePipeline(ABC):
    """Stores batches of rows of one table.

    Each method may be a plain function (it then runs in a thread) or `async def` (it then runs on
    the event loop). The buffer never calls two methods of one pipeline at the same time, and the
    tables of one pipeline fail independently of each other.

    What an answer means: `True`, the whole batch is durable; anything else, or an exception, the
    batch is kept and tried again with a growing pause; `ItemError`, a row of the batch can never be
    stored, and the batch is split until that row is found and rejected. So a batch may arrive
    twice, whole or in part: each row carries in `_key` what tells a second copy.
    """

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Build the pipeline from the settings of the spider; by default without arguments."""
        return cls()

    @property
    def logger(self) -> logging.Logger:
        return get_logger(f"pipelines.{type(self).__name__}")

    @property
    def targets(self) -> tuple[str, ...]:
        """Where rows went so far, for the summary of a run: file names, for example."""
        return ()

    @abstractmethod
    def save_items(self, table: str, items: list[Row]) -> bool | Awaitable[bool]:
        """Store new rows. True only when all of them would survive a crash of the machine."""

    def update_items(
        self, table: str, items: list[Row], update_keys: Sequence[str]
    ) -> bool | Awaitable[bool]:
        """Change the rows that have the same values in `update_keys`."""
        raise UpdateUnsupported(
            f"{type(self).__name__} cannot update rows (table {table!r}):"
            " send this UpdateItem to a pipeline that can, by its `__pipelines__`"
        )

    def close(self) -> Awaitable[None] | None:  # noqa: B027 - many pipelines hold nothing
        """Release connections and files. Called once, after the last batch."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one attempt at a page has yielded for one pipeline, in its order."""

    origin: Origin
    records: tuple[ItemRecord, ...]


class Refusal(NamedTuple):
    """A record that can never be stored as it is, and why."""

    record: ItemRecord
    error: Exception


class PagePipeline(BasePipeline):
    """Stores whole pages, for pipelines that can make the effect of a page happen once.

    The buffer calls `save_pages` with the pages of all tables together, and nothing else. The same
    page may come again, from the same attempt or a later one.
    """

    @abstractmethod
    def save_pages(self, pages: Sequence[Page]) -> list[Refusal] | Awaitable[list[Refusal]]:
        """Make the pages durable, except for the records that are returned as refused.

        An exception says that nothing is known to be stored: the pages are kept and tried again
        with a growing pause. Refused records must not keep those beside them from being stored.
        """

    def save_items(self, table: str, items: list[Row]) -> bool:
        """Not used: `save_pages` takes its place."""
        raise NotImplementedError(f"{type(self).__name__} stores pages: call save_pages")
