"""The live values as the store keeps them: opaque bytes with a version, a history, and acks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import unquote

from redis.asyncio import Redis
from redis.exceptions import RedisError

from orbweb.errors import StoreUnavailable
from orbweb.frontier.keys import ShardKeys, clean
from orbweb.frontier.server import answer_of, whole
from orbweb.frontier.valkey import ScriptCaller

MOST_SWITCHES = 500
"""Jobs whose own live values are known."""


class StoredValues(NamedTuple):
    """All live values at one instant. Version 0: there were never any."""

    version: int
    values: bytes
    at_ms: int
    """The server's wall clock."""


class Written(NamedTuple):
    """Answer of `write`: the version that is there now, and the server's wall clock."""

    done: bool
    version: int
    at_ms: int


class StoredAck(NamedTuple):
    """What a node has said of the live values, and when (the server's wall clock)."""

    node: str
    at_ms: int
    text: bytes


class ConfigBook:
    """The live values of a prefix, in shard 0. All calls may raise `StoreUnavailable`."""

    def __init__(self, client: Redis, prefix: str, now: int | None = None) -> None:
        self._client = client
        self._keys = ShardKeys(prefix)
        self._caller = ScriptCaller(client, now)

    def turn(self, now_ms: int) -> None:
        """Set the clock, for tests that turn it."""
        self._caller.time = now_ms

    async def read(self) -> StoredValues:
        """The values as they are now."""
        async with self._client.pipeline(transaction=True) as pipe:
            pipe.hmget(self._keys.config, "version", "values")
            pipe.time()
            (version, values), (seconds, micros) = await answer_of(pipe.execute())
        at_ms = int(self._caller.time or seconds * 1000 + micros // 1000)
        return StoredValues(int(version or 0), values or b"", at_ms)

    async def version(self) -> int:
        """The version that is there now."""
        return int(await answer_of(self._client.hget(self._keys.config, "version")) or 0)

    async def write(
        self, made_from: int, values: bytes, line: bytes, not_before_ms: int = 0
    ) -> Written:
        """Put a new version in the place of `made_from`, with its line in the history.

        Nothing is done when another version is there by now, or the server's clock says that it is
        too early. A call whose answer was lost may have happened: then the version has changed.
        """
        words = (made_from, values, line, not_before_ms)
        done, version, at_ms = await self._caller.call("configure", (self._keys.tag,), words)
        return Written(bool(done), int(version), int(at_ms))

    async def history(self, most: int) -> list[bytes]:
        """The lines of the latest versions, the latest first; at most 1,000 are kept."""
        lines = await answer_of(self._client.lrange(self._keys.config_history, -most, -1))
        return list(reversed(lines))

    async def acknowledge(self, node: str, text: bytes) -> None:
        """Keep what a node says of the values it goes by, instead of what it said before."""
        await self._caller.call("acknowledge", (self._keys.tag,), (node, text))

    async def acks(self) -> list[StoredAck]:
        """What each node said last, of those that said something within a day."""
        found = await answer_of(self._client.hgetall(self._keys.config_acks))
        return [StoredAck(node.decode(), *_ack(record)) for node, record in sorted(found.items())]

    async def keep_switches(self, job: str, switches: bytes) -> None:
        """Keep which live values of its own a job has; the last that is told counts.

        Of more than `MOST_SWITCHES` jobs those are forgotten that told it longest ago.
        """
        name, key = clean(job), self._keys.switches
        seconds, micros = await answer_of(self._client.time())
        async with self._client.pipeline(transaction=True) as pipe:
            pipe.hset(key, name, switches)
            pipe.zadd(f"{key}:told", {name: int(seconds) * 1_000_000 + int(micros)})
            pipe.zrange(f"{key}:told", 0, -MOST_SWITCHES - 1)
            *_, old = await answer_of(pipe.execute())
        if old:
            await answer_of(self._client.hdel(key, *old))
            await answer_of(self._client.zrem(f"{key}:told", *old))

    async def switches(self) -> dict[str, bytes]:
        """See `keep_switches`: all jobs'."""
        found = await answer_of(self._client.hgetall(self._keys.switches))
        return {unquote(job.decode()): switches for job, switches in found.items()}

    @asynccontextmanager
    async def told(self) -> AsyncIterator[Callable[[float], Any]]:
        """Listen for new versions: `await wait(seconds)` ends with the first, or after that time.

        What was told before is not told again, so look once after the context has begun.
        """
        channel = self._client.pubsub(ignore_subscribe_messages=True)
        try:
            await answer_of(channel.subscribe(self._keys.config))

            async def wait(seconds: float) -> None:
                with suppress(asyncio.TimeoutError):
                    await answer_of(channel.get_message(timeout=seconds))

            yield wait
        finally:
            with suppress(RedisError, OSError, StoreUnavailable):
                await channel.aclose()  # type: ignore[no-untyped-call]


def _ack(record: bytes) -> tuple[int, bytes]:
    at_ms, _, text = record.partition(b"\n")
    return whole(at_ms), text
