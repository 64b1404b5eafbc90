"""The loop of a consumer: take, store in one transaction, settle; until it is told to stop."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import sqlalchemy as sa

from orbweb.consume.base import Message, Source
from orbweb.consume.store import Counts, ItemStore
from orbweb.errors import OrbwebError, StoreUnavailable
from orbweb.log import event, get_logger
from orbweb.pipelines.sql_tables import is_rows_fault
from orbweb.sql.databases import reason_of

T = TypeVar("T")

TAKE_SECONDS = 0.5
RETRY_MIN_SECONDS = 0.1
RETRY_MAX_SECONDS = 10.0

logger = get_logger("consume")


class Stopped(OrbwebError):
    """The consumer was asked to stop while it waited for something that does not answer."""


class Patience:
    """Repeats calls to services that may be away, until they answer or the consumer is stopped."""

    def __init__(self, stop: threading.Event) -> None:
        self.trouble = ""
        """What does not answer now; empty = all is well."""
        self._stop = stop

    def ask(self, call: Callable[[], T], *, within_seconds: float | None = None) -> T:
        """The answer of `call`, which must be safe to repeat.

        `StoreUnavailable` and errors of SQLAlchemy that are no row's fault are waited out, with a
        growing pause. Raises `Stopped` when asked to stop meanwhile; after `within_seconds`
        `StoreUnavailable`.
        """
        pause, began, told = RETRY_MIN_SECONDS, time.monotonic(), False
        while True:
            try:
                answer = call()
            except (StoreUnavailable, sa.exc.SQLAlchemyError) as error:
                if is_rows_fault(error):
                    raise
                text = reason_of(error)
                if within_seconds is not None and time.monotonic() - began > within_seconds:
                    raise StoreUnavailable(f"gave up after {within_seconds:g} s: {text}") from error
                self.trouble = text
                event(
                    logger,
                    "waiting",
                    level=logging.DEBUG if told else logging.WARNING,
                    error=text,
                )
                told = True
            else:
                self.trouble = ""
                if told:
                    seconds = round(time.monotonic() - began, 1)
                    event(logger, "going_on", waited_seconds=seconds)
                return answer
            if self._stop.wait(pause * random.uniform(0.5, 1.0)):
                raise Stopped(f"stopped while waiting: {text}")
            pause = min(2 * pause, RETRY_MAX_SECONDS)


class Consumer:
    """Moves messages from a source into a database."""

    def __init__(
        self,
        source: Source,
        store: ItemStore,
        *,
        stop: threading.Event,
        batch_messages: int = 500,
        on_progress: Callable[[Counts], None] = lambda counts: None,
    ) -> None:
        """`on_progress` is called after each batch, and while there is none."""
        self.counts = Counts()
        self.busy_since = 0.0
        """When it began with what it has taken and not stored (monotonic); 0 = it has nothing."""
        self._source = source
        self._store = store
        self._stop = stop
        self._patience = Patience(stop)
        self._batch_messages = batch_messages
        self._on_progress = on_progress

    @property
    def trouble(self) -> str:
        """What does not answer now; empty = all is well."""
        return self._patience.trouble

    def run(self, *, until_empty: bool = False) -> bool:
        """Consume until stopped (False); with `until_empty` until nothing is left (True).

        A batch that is in work is finished when the stop comes, unless the database is away: then
        it is left to whoever comes next.
        """
        try:
            while not self._stop.is_set():
                messages = self._patience.ask(self._take)
                self._store_all(messages)
                self._try_again(self._store.early.due())
                self._on_progress(self.counts)
                if until_empty and not messages and self._source.lag() == 0:
                    self._try_again(self._store.early.all())
                    return True
        except Stopped as stopped:
            event(logger, "stopped_waiting", level=logging.WARNING, why=str(stopped))
        return False

    def _take(self) -> Sequence[Message]:
        return self._source.take(self._batch_messages, TAKE_SECONDS)

    def _store_all(self, messages: Sequence[Message]) -> None:
        waiting = deque([messages] if messages else [])
        self.busy_since = time.monotonic() if messages else 0.0
        while waiting:
            some = waiting[0]
            counts = self._patience.ask(partial(self._stored, some))
            waiting.popleft()
            if counts is None:
                middle = len(some) // 2
                waiting.extendleft((some[middle:], some[:middle]))
                continue
            self.counts.add(counts)
            self._patience.ask(partial(self._source.settle, some))
            self.busy_since = time.monotonic()
        self.busy_since = 0.0

    def _try_again(self, early: Sequence[Message]) -> None:
        for message in early:
            self.counts.add(self._patience.ask(partial(self._store.try_again, message)))

    def _stored(self, messages: Sequence[Message]) -> Counts | None:
        return self._store.store(messages, self._source.positions)
