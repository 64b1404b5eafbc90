"""robots.txt of an origin, fetched once for the whole fleet: the store's side of it."""

from __future__ import annotations

from redis.asyncio import Redis
from redis.exceptions import RedisError

from orbweb.errors import StoreUnavailable
from orbweb.frontier.keys import ShardKeys


class ValkeyRobotsStore:
    """Entries by origin, and who may fetch one now. Times are seconds, on the server's clock."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self._client = client
        self._keys = ShardKeys(prefix)

    async def get(self, origin: str) -> bytes | None:
        """The stored entry, or None. Raises `StoreUnavailable`."""
        try:
            entry = await self._client.get(self._keys.robots(origin))
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"robots of {origin}: {error}") from error
        return entry if isinstance(entry, bytes) else None

    async def begin(self, origin: str, holder: str, seconds: float) -> bool:
        """True when the caller is the one to fetch it; for `seconds` nobody else is.

        False also when an entry was put since the caller looked for one.
        """
        entry = self._keys.robots(origin)
        key = f"{entry}:fetching"
        try:
            if not await self._client.set(key, holder, nx=True, px=max(1, int(seconds * 1000))):
                return False
            if not await self._client.exists(entry):
                return True
            await self._client.delete(key)
            return False
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"robots of {origin}: {error}") from error

    async def put(self, origin: str, entry: bytes, ttl_seconds: float) -> None:
        """Keep an entry for `ttl_seconds`, and let the others have it."""
        key = self._keys.robots(origin)
        try:
            async with self._client.pipeline(transaction=True) as pipe:
                pipe.set(key, entry, px=max(1, int(ttl_seconds * 1000)))
                pipe.delete(f"{key}:fetching")
                await pipe.execute()
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"robots of {origin}: {error}") from error
