"""How much of the server's memory a job takes: for what waits, and for what it has seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from orbweb.frontier.keys import RunKeys
from orbweb.frontier.seen import SeenKind
from orbweb.frontier.seen_admin import exact_bucket
from orbweb.frontier.seen_places import SeenPlace, SeenShard
from orbweb.frontier.seen_state import PartState
from orbweb.frontier.server import answer_of
from orbweb.frontier.servers import Servers

SAMPLE = 32
"""Keys of one sort that are weighed; the others are taken to be as heavy on average."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Estimates, in bytes, over all shards."""

    waiting_bytes: int = 0
    """Requests that are not finished, of the runs that share what was seen."""
    seen_bytes: int = 0


async def weigh(servers: Servers, place: SeenPlace) -> Weight:
    """Weigh a sample of a job's keys. Raises `StoreUnavailable`."""
    waiting = seen = 0
    for shard in place.shards:
        client = servers.of_shard(shard.number)
        for run in shard.runs.values():
            waiting += await _weigh_run(client, run)
        for part in shard.state.parts:
            seen += await _weigh_part(client, shard, part)
        seen += await _weigh(client, [f"{shard.base}:sure"], 1)
    return Weight(waiting, seen)


async def _weigh_run(client: Redis, run: RunKeys) -> int:
    whole = (run.body, run.ready, run.delayed, run.deadline, run.owner, run.outbox)
    found = await _weigh(client, whole, len(whole))
    hosts = await answer_of(client.zcard(run.ready))
    some = await answer_of(client.zrange(run.ready, 0, SAMPLE - 1))
    return found + await _weigh(client, (run.queue(host.decode()) for host in some), hosts)


async def _weigh_part(client: Redis, shard: SeenShard, part: PartState) -> int:
    key, kind = f"{shard.base}:{part.number}", shard.state.kind
    if kind in (SeenKind.SET, SeenKind.BLOOM_MODULE):
        return await _weigh(client, [key], 1)
    buckets = -(-part.size // 1024) if kind is SeenKind.BLOOM else part.size
    step = max(1, buckets // SAMPLE)
    numbers = range(0, buckets, step)
    names = (exact_bucket(n) if kind is SeenKind.EXACT else str(n) for n in numbers)
    return await _weigh(client, (f"{key}:{name}" for name in names), buckets)


async def _weigh(client: Redis, keys: Iterable[str], count: int) -> int:
    """The bytes of so many keys, of which these are some."""
    found: list[Any] = [await answer_of(client.memory_usage(key, samples=100)) for key in keys]
    return round(sum(bytes_ or 0 for bytes_ in found) * count / len(found)) if found else 0
