"""What the store keeps of a job's runs after they are gone. No Lua: no transition reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.server import answer_of

HISTORY = 50
"""Runs of a job that are kept; of more the oldest are forgotten."""

PAGES_SECONDS = 30 * 86_400
"""What nodes have counted of a run is kept for this long after the last word of one."""

TIME_BYTES = 8
END = "+"
"""Behind the epoch in the name of the field with a run's end."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """What is kept of one incarnation of a run: opaque words of the nodes that worked on it."""

    epoch: str
    made_at_ms: int
    made: bytes
    figures: bytes
    """Empty when no node has left it in order."""


class RunBook:
    """The runs of one job, in shard 0.

    Every call may be repeated with the same arguments, and may raise `StoreUnavailable`.
    """

    def __init__(self, client: Redis, prefix: str, job: str) -> None:
        self._client = client
        self._keys = ShardKeys(prefix)
        self._job = job
        self._runs = self._keys.job_runs(job)

    async def keep_made(self, epoch: str, at_ms: int, made: bytes) -> bytes:
        """Keep what a run was made with. The first word counts; very old runs are forgotten.

        Returns the word that counts.
        """
        entry = at_ms.to_bytes(TIME_BYTES, "big") + made
        if not await answer_of(self._client.hsetnx(self._runs, epoch, entry)):
            first: bytes | None = await answer_of(self._client.hget(self._runs, epoch))
            return first[TIME_BYTES:] if first else made
        for kept in (await self.runs())[HISTORY:]:
            pipe = self._client.pipeline(transaction=False)
            pipe.hdel(self._runs, kept.epoch, f"{kept.epoch}{END}")
            pipe.unlink(self._keys.job_pages(self._job, kept.epoch))
            await answer_of(pipe.execute())
        return made

    async def keep_figures(self, epoch: str, figures: bytes) -> None:
        """Keep what a run has come to, in the place of what was said before."""
        await answer_of(self._client.hset(self._runs, f"{epoch}{END}", figures))

    async def keep_pages(self, epoch: str, node: str, counts: bytes) -> None:
        """Keep what a node has counted of a run so far."""
        key = self._keys.job_pages(self._job, epoch)
        pipe = self._client.pipeline(transaction=False)
        pipe.hset(key, node, counts)
        pipe.expire(key, PAGES_SECONDS)
        await answer_of(pipe.execute())

    async def runs(self) -> list[KeptRun]:
        """All that are kept, the latest made first."""
        found: dict[bytes, bytes] = await answer_of(self._client.hgetall(self._runs))
        kept = [
            KeptRun(
                name.decode(),
                int.from_bytes(entry[:TIME_BYTES], "big"),
                entry[TIME_BYTES:],
                found.get(name + END.encode(), b""),
            )
            for name, entry in found.items()
            if not name.endswith(END.encode())
        ]
        return sorted(kept, key=lambda one: (-one.made_at_ms, one.epoch))

    async def pages(self, epoch: str) -> list[bytes]:
        """What each node has counted of a run."""
        key: Any = self._keys.job_pages(self._job, epoch)
        found: dict[bytes, bytes] = await answer_of(self._client.hgetall(key))
        return list(found.values())
