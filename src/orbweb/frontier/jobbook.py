"""What nodes tell others of their job, beside its requests: its rules, and its latest outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from orbweb.frontier.keys import ShardKeys, clean
from orbweb.frontier.server import answer_of

KEPT_MS = 7 * 86_400_000
"""Outcomes of a job of which nobody has told any for this long are forgotten."""

PAGE = 1000

Placed = tuple[str, bytes]
"""A line, and its place among the others."""


class JobBook:
    """Opaque values of one job, in shard 0. All calls may raise `StoreUnavailable`."""

    def __init__(self, client: Redis, prefix: str, job: str) -> None:
        keys = ShardKeys(prefix)
        self._client = client
        self._job = clean(job)
        self._rules = keys.rules
        self._lines = keys.job_log(job)

    async def keep_rules(self, rules: bytes) -> None:
        """Keep by which rules the job takes links; the last that is told counts."""
        await answer_of(self._client.hset(self._rules, self._job, rules))

    async def rules(self) -> bytes | None:
        """See `keep_rules`."""
        found = await answer_of(self._client.hget(self._rules, self._job))
        return found if isinstance(found, bytes) else None

    async def add_lines(self, lines: Sequence[bytes], most: int) -> None:
        """Keep outcomes, in their order; about `most` of the latest stay."""
        async with self._client.pipeline(transaction=False) as pipe:
            for line in lines:
                pipe.xadd(self._lines, {"line": line}, maxlen=most, approximate=True)
            pipe.pexpire(self._lines, KEPT_MS)
            await answer_of(pipe.execute())

    async def lines(self, before: str = "+", most: int = PAGE) -> list[Placed]:
        """A page of outcomes, the latest first; those `before` a place, or all."""
        end = before if before == "+" else f"({before}"
        return _placed(await answer_of(self._client.xrevrange(self._lines, end, count=most)))

    async def lines_after(self, place: str, most: int = PAGE) -> list[Placed]:
        """Outcomes that came after a place, the first one first."""
        return _placed(await answer_of(self._client.xrange(self._lines, f"({place}", count=most)))


def _placed(rows: Any) -> list[Placed]:
    return [(place.decode(), fields.get(b"line", b"")) for place, fields in rows]
