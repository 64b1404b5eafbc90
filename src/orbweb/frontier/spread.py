"""Puts the frontier of a run together: one shard, or one frontier over several."""

from __future__ import annotations

import time

from orbweb.errors import ConfigError
from orbweb.frontier.routes import MOST_SHARDS
from orbweb.frontier.servers import Servers
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.frontier.valkey import ValkeyFrontier


def shared_frontier(
    servers: Servers, *, prefix: str, job: str, run: str, shards: int
) -> ValkeyFrontier | ShardedFrontier:
    """The frontier of a run that is spread over so many shards. Raises `ConfigError`."""
    if shards > MOST_SHARDS:
        raise ConfigError(f"FRONTIER_SHARDS is {shards}; the most is {MOST_SHARDS}")
    parts = [
        ValkeyFrontier(
            servers.of_shard(number),
            prefix=prefix,
            job=job,
            run=run,
            shard=number,
            shards=shards,
            replicated=servers.several,
        )
        for number in range(shards)
    ]
    return parts[0] if shards == 1 else ShardedFrontier(parts, clock=time.monotonic)
