"""Which shard a host, a lease or a link belongs to: pure functions, the same on every node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from zlib import crc32

from orbweb.frontier.base import HOLD_ID, SEED_ID, TASKS_HOST, NewRequest

MOST_SHARDS = 1024
"""A claim's `seq` in a shard is the node's `seq` times this, plus the shard: its token tells it."""

PORT = re.compile(r":\d+$")


@lru_cache(maxsize=16_384)
def shard_of(host: str, shards: int) -> int:
    """The shard of a host: CRC-32 of its name without a port, modulo their number.

    All ports of a machine lie in one shard. Names of one domain need not: a site with many of them
    is spread, and what they link to each other goes through the outbox. Tasks lie in shard 0.
    """
    if host == TASKS_HOST:
        return 0
    return crc32(PORT.sub("", host).encode()) % shards


def seq_in_shard(seq: int, shard: int) -> int:
    """The number that a node's claim `seq` has in a shard."""
    return seq * MOST_SHARDS + shard


def shard_of_lease(id: str, token: str, shards: int) -> int:
    """The shard that handed a lease out; where no shard can have, the first, which refuses it."""
    if id in (SEED_ID, HOLD_ID):
        return 0
    digits = token.rpartition(":")[2]
    shard = int(digits) % MOST_SHARDS if digits.isdecimal() else 0
    return shard if shard < shards else 0


def routed(
    requests: Iterable[NewRequest], here: int, shards: int, origin: Sequence[str]
) -> tuple[NewRequest, ...]:
    """Requests as shard `here` takes them: those of other shards are marked for its outbox.

    One that is not to be deduplicated gets a fingerprint there that only this `origin` (who found
    it, under which lease) gives to it. So it enters its shard once, however often it is delivered.
    """
    found = []
    for request in requests:
        to = shard_of(request.host, shards)
        if to != here:
            print_ = request.fingerprint
            if print_ is None:
                print_ = _once(*origin, request.id)
            request = request._replace(shard=to, fingerprint=print_)
        found.append(request)
    return tuple(found)


def _once(*parts: str) -> int:
    digest = blake2b("\0".join(parts).encode(), digest_size=8, person=b"orbweb once")
    return int.from_bytes(digest.digest(), "big", signed=True)
