"""Start entries that others push into the store: how they enter the run, and lose nothing.

Up to a batch of them becomes one request of the run, in one step (`take.lua`); who claims it makes
requests of it and hands those in with its ack. So an entry stands in the list, in the run, or in
requests, and never only in a process.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from orbweb.engine.session import Session
from orbweb.errors import ConfigError, RunLost, StoreUnavailable
from orbweb.frontier.base import Lease
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.log import get_logger

START_HOST = "@start"
"""Host of the pseudo-requests that hold start entries."""

WAIT_SECONDS = 60
"""How long one call waits for an entry of a list; then it asks again."""

AWAY_SECONDS = 1.0

POLL_SECONDS = 6.0
"""How often sets and sorted sets are looked at: no command waits for their first member."""

MARK = b"start\n"

log = get_logger("orbweb.scrapy")


@dataclass(frozen=True, slots=True)
class StartSource:
    """Where a spider's start entries are pushed to."""

    keys: tuple[str, ...]
    """Lists, sets or sorted sets, the most important first."""
    batch: int = 16
    """How many entries are taken in one step."""
    max_idle_seconds: float = 0.0
    """A worker closes when the crawl has been idle for so long; 0 = never."""


@dataclass(slots=True)
class StartBatch:
    """Entries under a lease. They are done when the next batch is asked for."""

    lease: Lease
    key: str
    entries: list[bytes]
    refused: list[bytes] = field(default_factory=list)
    """What is kept of entries that no request can be made of."""

    def refuse(self, entry: bytes, error: Exception) -> None:
        """Keep an entry that no request can be made of in the list `<key>:bad`, with the reason."""
        self.refused.append(refusal(entry, error))


def refusal(entry: Any, error: Exception) -> bytes:
    """What is kept in the list `<key>:bad` of an entry that no request can be made of."""
    text = entry.decode("utf-8", "backslashreplace") if isinstance(entry, bytes) else str(entry)
    reason = f"{type(error).__name__}: {error}"
    record = {"entry": text, "reason": reason, "at": int(time.time())}
    return json.dumps(record, ensure_ascii=False).encode()


def is_refused_key(error: ResponseError) -> bool:
    """Whether a key can never be written to: it is of another type, or forbidden to this user."""
    return isinstance(error, NoPermissionError) or str(error).startswith("WRONGTYPE")


def not_kept(key: str, entries: int, error: Exception) -> str:
    """Why the list `<key>:bad` has not been given entries, and what to do."""
    return (
        f"{entries} start entries could not be kept in {key!r}, only in this log: {error}. "
        "Right would be a list there, which this worker may write to: rename or delete the key"
    )


def is_start(payload: bytes) -> bool:
    """Whether a leased request holds start entries."""
    return payload.startswith(MARK)


def read_batch(lease: Lease) -> StartBatch:
    """Take apart what `take.lua` has packed: the key, then each entry behind its length."""
    parts, at, payload = [], len(MARK), lease.payload
    while at < len(payload):
        end = payload.index(b":", at)
        size = int(payload[at:end])
        parts.append(payload[end + 1 : end + 1 + size])
        at = end + 1 + size
    key, *entries = parts
    return StartBatch(lease, key.decode(), entries)


class Starts:
    """Lets entries enter the run, and knows whether there may be some."""

    def __init__(self, session: Session, frontier: ValkeyFrontier, source: StartSource) -> None:
        self.ready = True
        """There may be entries to take."""
        self._session = session
        self._frontier = frontier
        self._source = source
        self._emptied = asyncio.Event()

    async def take(self) -> int:
        """Let up to a batch of entries enter as one request; returns how many, 0: there are none.

        Repeated until the store has answered: what an answer that was lost had taken is in the run.
        """
        for key in self._source.keys:
            if taken := await self._session.repeat(partial(self._take, key)):
                return taken
        self.ready = False
        self._emptied.set()
        return 0

    async def watch(self, client: Redis, nudge: Callable[[], None]) -> None:
        """Call `nudge` when there are entries, until cancelled. `client` waits, for nobody else.

        While there are more entries than are wanted nothing is asked of the store.
        """
        watch = _Watch(client, self._source.keys)
        while True:
            try:
                await self._emptied.wait()
                await watch.wait()
                self._emptied.clear()
                self.ready = True
                nudge()
            except StoreUnavailable as error:
                log.debug("start entries: %s", error)
                await asyncio.sleep(AWAY_SECONDS)

    async def _take(self, key: str) -> int:
        frontier = self._frontier
        if frontier.run is None:
            raise RunLost("entries were asked for before the run was opened")
        keys = (frontier.shard.tag, frontier.run.base, key)
        words = (uuid.uuid4().hex[:16], START_HOST, self._source.batch, MARK)
        try:
            return int(await frontier.caller.call("take", keys, words))
        except ResponseError as error:
            if "CROSSSLOT" not in str(error):
                raise
            raise ConfigError(
                f"the start key {key!r} lies in another slot of the cluster than the run. Right "
                f"would be a key with {frontier.shard.tag} in its name"
            ) from error


class _Watch:
    """Says when there may be something to take. It blocks its connection, and changes nothing."""

    def __init__(self, client: Redis, keys: Sequence[str]) -> None:
        self._client = client
        self._keys = keys

    async def wait(self) -> None:
        """Return when there is an entry, or may be one."""
        key = self._keys[0]
        if len(self._keys) > 1 or await self._execute("TYPE", key) not in (b"none", b"list"):
            await self._poll()
            return
        while not await self._peek(key):
            pass

    async def _poll(self) -> None:
        while True:
            for key in self._keys:
                if await self._execute("TYPE", key) != b"none":
                    return
            await asyncio.sleep(POLL_SECONDS)

    async def _peek(self, key: str) -> bool:
        """Wait for an entry: it goes from the left end of the list to the left end, in one step."""
        try:
            words = ("BLMOVE", key, key, "LEFT", "LEFT", WAIT_SECONDS)
            return await self._execute(*words) is not None
        except ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise StoreUnavailable(f"waiting for start entries: {error}") from error
            return True

    async def _execute(self, *words: str | int) -> Any:
        try:
            return await self._client.execute_command(*words)  # type: ignore[no-untyped-call]
        except ResponseError:
            raise
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"waiting for start entries: {error}") from error
