"""The buffer between callbacks and pipelines: it says when the items of a page are durable."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from orbweb.errors import ItemError, PipelineError
from orbweb.log import event, get_logger
from orbweb.model.item import Origin
from orbweb.model.weight import weight
from orbweb.pipelines.base import BasePipeline
from orbweb.pipelines.lane import Entry, Lane, Rejected, RunBlocking, Ticket
from orbweb.settings.names import PIPELINES

if TYPE_CHECKING:
    from orbweb.model.item import ItemRecord

__all__ = ["ItemBuffer", "Rejected"]

WAIT_SECONDS = 1.0
"""A batch that is stored sooner than this is nothing to speak of."""

CLOSE_SECONDS = 5.0
"""How long one pipeline may take to close."""


class ItemBuffer:
    """Gathers records into batches and answers each page when all of its records are durable.

    The pipelines work side by side: a slow or failing one neither delays the others nor makes
    them get a batch twice. A pipeline that fails is tried again with backoff for as long as the
    buffer lives; a record that can not be written is rejected without harm to those beside it.
    Nothing is stored on the way: after a crash the pages that were not answered come again.
    """

    def __init__(
        self,
        pipelines: Mapping[str, BasePipeline],
        *,
        flush_interval: float = 0.1,
        max_items: int = 5000,
        max_bytes: int = 64 * 1024 * 1024,
        batch_items: int = 500,
        retry_min: float = 0.5,
        retry_max: float = 30.0,
        rng: random.Random | None = None,
        run_blocking: RunBlocking = asyncio.to_thread,
    ) -> None:
        """Times in seconds. `flush_interval`: least time between two small batches of a table.

        `max_items`, `max_bytes`: records that may be unanswered, and what their rows may hold
        together, before the buffer counts as full.
        `batch_items`: the largest batch.
        """
        self._lanes = {
            name: Lane(
                name,
                pipeline,
                flush_interval=flush_interval,
                batch_items=batch_items,
                retry_min=retry_min,
                retry_max=retry_max,
                rng=rng or random.Random(),
                run_blocking=run_blocking,
            )
            for name, pipeline in pipelines.items()
        }
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._held = 0
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._asked_to_close = asyncio.Event()
        self._closing = False
        self._logger = get_logger("pipelines")

    @property
    def held(self) -> int:
        """Records that are not answered yet."""
        return self._held

    @property
    def full(self) -> bool:
        """Too many records are not answered yet, or they are too large."""
        return self._held >= self._max_items or self._held_bytes >= self._max_bytes

    @property
    def troubles(self) -> dict[str, str]:
        """The last error of each pipeline that fails at the moment."""
        return {name: lane.trouble for name, lane in self._lanes.items() if lane.trouble}

    def waits(self) -> dict[str, tuple[float, str]]:
        """Pipelines that store nothing now: for how many seconds, and the last error."""
        now = asyncio.get_running_loop().time()
        waits = {name: lane.waits() for name, lane in self._lanes.items()}
        return {
            name: (round(now - since, 1), trouble[:200])
            for name, (since, trouble) in waits.items()
            if now - since >= WAIT_SECONDS
        }

    @property
    def targets(self) -> tuple[str, ...]:
        """Where the rows went, over all pipelines."""
        return tuple(target for lane in self._lanes.values() for target in lane.pipeline.targets)

    async def wait_for_room(self) -> None:
        """Wait until the buffer is not full.

        A caller that submits before its next `await` keeps the buffer within its limits and one
        page, however many callers wait.
        """
        while self.full:
            await self._room.wait()

    def submit(
        self, records: Sequence[ItemRecord], origin: Origin | None = None
    ) -> asyncio.Future[list[Rejected]]:
        """Take the records of one page, or of one part of it; `origin` says of which attempt.

        Without an origin the records belong to no page, and come from nowhere a second time.

        The future ends when each record is durable in every pipeline that it goes to, with those
        that were rejected. It fails with `PipelineError` when the buffer was closed before that:
        then do not acknowledge the page. Raises `PipelineError` after `close`.
        """
        if self._closing:
            raise PipelineError("the item buffer is closed: the records were not taken")
        future: asyncio.Future[list[Rejected]] = asyncio.get_running_loop().create_future()
        size = sum(weight(record.row) for record in records)
        ticket = Ticket(future, self._settle, unanswered=1, records=len(records), size_bytes=size)
        self._held += len(records)
        self._held_bytes += size
        origin = origin or Origin("", uuid.uuid4().hex, "")
        pages: dict[str, list[ItemRecord]] = {}
        for record in records:
            for lane in self._lanes_of(record, ticket):
                if lane.takes_pages:
                    pages.setdefault(lane.name, []).append(record)
                else:
                    self._pass_on(lane, Entry((record,), origin, ticket))
        for name, whole in pages.items():
            self._pass_on(self._lanes[name], Entry(tuple(whole), origin, ticket))
        if self.full:
            self._room.clear()
        ticket.answer()
        return future

    def _pass_on(self, lane: Lane, entry: Entry) -> None:
        entry.ticket.unanswered += 1
        lane.add(entry)

    async def run(self) -> None:
        """Write batches until `close`. When cancelled, pages that wait get `PipelineError`."""
        try:
            async with asyncio.TaskGroup() as group:
                self._tasks = [group.create_task(lane.run()) for lane in self._lanes.values()]
                await self._asked_to_close.wait()
        finally:
            self._closing = True
            self._abandon()
            self._ended.set()

    async def close(self, seconds: float = 30.0) -> None:
        """Flush what is held, then close the pipelines. Takes no new records from now on.

        What is not stored after `seconds` is given up, and its pages get `PipelineError`.
        """
        self._closing = True
        self._asked_to_close.set()
        for lane in self._lanes.values():
            lane.drain()
        if self._tasks:
            await self._end_within(seconds)
        self._abandon()
        for lane in self._lanes.values():
            await self._close_lane(lane)

    async def _end_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            for task in self._tasks:
                task.cancel()
            await self._ended.wait()

    async def _close_lane(self, lane: Lane) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await lane.close()
        except Exception as error:
            event(
                self._logger,
                "pipeline_not_closed",
                level=logging.ERROR,
                pipeline=lane.name,
                error=repr(error),
            )

    def _lanes_of(self, record: ItemRecord, ticket: Ticket) -> Iterable[Lane]:
        if not record.pipelines:
            return self._lanes.values()
        lanes = []
        for given in record.pipelines:
            name = PIPELINES.get(given, given)
            if name in self._lanes:
                lanes.append(self._lanes[name])
            else:
                known = ", ".join(self._lanes) or "none"
                error = ItemError(f"pipeline {name!r} is not among ITEM_PIPELINES ({known})")
                ticket.rejected.append(Rejected(record, error, name))
        return lanes

    def _settle(self, ticket: Ticket) -> None:
        self._release(ticket)
        if not ticket.future.done():
            ticket.future.set_result(ticket.rejected)

    def _release(self, ticket: Ticket) -> None:
        self._held -= ticket.records
        self._held_bytes -= ticket.size_bytes
        if not self.full:
            self._room.set()

    def _abandon(self) -> None:
        tickets = {entry.ticket for lane in self._lanes.values() for entry in lane.leftovers()}
        for ticket in tickets:
            self._release(ticket)
            if not ticket.future.done():
                text = "; ".join(f"{name}: {error}" for name, error in self.troubles.items())
                ticket.future.set_exception(
                    PipelineError(f"stopped before the items were stored ({text or 'no error'})")
                )
                ticket.future.exception()  # heard: a page that was given up no longer asks
