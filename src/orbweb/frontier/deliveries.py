"""How often alerts were delivered, and refused: counted in the store, by channel."""

from __future__ import annotations

from collections import Counter

from redis.asyncio import Redis

from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.server import answer_of, whole

SENT, REFUSED = "sent", "refused"
"""What became of one try. All calls may raise `StoreUnavailable`."""


class Deliveries:
    """Counts of one prefix. Channels are few, for each is a setting."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self._client = client
        self._key = ShardKeys(prefix).alerts("deliveries")

    async def count(self, channel: str, result: str) -> None:
        """One more try on a channel; a call that is repeated counts twice."""
        await answer_of(self._client.hincrby(self._key, f"{result} {channel}", 1))

    async def all(self) -> Counter[tuple[str, str]]:
        """How many tries there were, by channel and result."""
        found = Counter[tuple[str, str]]()
        for name, number in (await answer_of(self._client.hgetall(self._key))).items():
            result, _, channel = name.decode(errors="replace").partition(" ")
            found[channel, result] += whole(number)
        return found
