"""What a consumer says of itself from time to time, so that others notice when it stands still."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from orbweb.consume.consumer import Consumer
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.notes import NoteBook, NoteKind
from orbweb.frontier.server import connect
from orbweb.log import get_logger

BEAT_SECONDS = 3.0
LAST_SECONDS = 1.0

log = get_logger("orbweb.consume")


class ConsumerBeat:
    """Leaves a note in the store every few seconds, from a thread: a consumer blocks."""

    def __init__(self, url: str, prefix: str, consumer: Consumer, place: str) -> None:
        """`place` says what is consumed, for people."""
        self._url = url
        self._prefix = prefix
        self._consumer = consumer
        self._place = place
        self._id = uuid.uuid4().hex
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._main, name="orbweb-beat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Say good-bye, if the store answers at once."""
        self._stopped.set()
        self._thread.join(2 * LAST_SECONDS)

    def _said(self, *, ended: bool) -> dict[str, Any]:
        consumer = self._consumer
        since = consumer.busy_since
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "from": self._place,
            "new": consumer.counts.new,
            "busy": round(time.monotonic() - since, 1) if since else 0.0,
            "error": consumer.trouble[:200],
            "ended": ended,
        }

    def _main(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._beat())

    async def _beat(self) -> None:
        try:
            client = connect(self._url, LAST_SECONDS)
        except ConfigError as error:
            log.warning("this consumer is not watched: %s", error)
            return
        notes = NoteBook(client, self._prefix)
        try:
            while not self._stopped.is_set():
                with suppress(StoreUnavailable):
                    await notes.leave(NoteKind.CONSUMER, self._id, self._said(ended=False))
                await asyncio.to_thread(self._stopped.wait, BEAT_SECONDS)
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await notes.leave(NoteKind.CONSUMER, self._id, self._said(ended=True))
        finally:
            await client.aclose()


@contextmanager
def telling(url: str, prefix: str, consumer: Consumer, place: str) -> Iterator[None]:
    """Tell of a consumer for as long as the block lasts; with no store (`url` empty) of nothing."""
    if not url:
        yield
        return
    beat = ConsumerBeat(url, prefix, consumer, place)
    beat.start()
    try:
        yield
    finally:
        beat.stop()
