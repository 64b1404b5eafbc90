"""A role that one process of the fleet has at a time, and what its holder puts down."""

from __future__ import annotations

from typing import NamedTuple

from redis.asyncio import Redis

from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.server import answer_of
from orbweb.frontier.valkey import ScriptCaller


class Lead(NamedTuple):
    """Answer to who asks for a role."""

    fence: int
    """Above 0: the caller has the role, and its words are taken under this fence."""
    left_ms: int
    """How long the holder's lease lasts."""
    deputy: bool
    """Another has the role; the caller is the first of those who wait."""
    at_ms: int
    """The server's wall clock."""


class Role:
    """One role of a prefix. The server's clock counts. All calls may raise `StoreUnavailable`."""

    def __init__(self, client: Redis, prefix: str, name: str, *, now: int | None = None) -> None:
        """`now` turns the clock in tests; None is the server's own."""
        keys = ShardKeys(prefix)
        self._tag = keys.tag
        self._record = f"{keys.role(name)}:record"
        self._name = name
        self._caller = ScriptCaller(client, now)
        self._client = client

    async def lead(self, who: str, lease_ms: int, rank: int = 0) -> Lead:
        """Take or keep the role. A higher rank takes it from its holder at once."""
        words = (self._name, who, lease_ms, rank)
        fence, left, deputy, at = await self._caller.call("lead", (self._tag,), words)
        return Lead(int(fence), int(left), bool(deputy), int(at))

    async def give_back(self, who: str) -> None:
        """Let another take the role at once."""
        await self._caller.call("lead", (self._tag,), (self._name, who, 0, 0))

    async def record(self, fence: int, words: bytes) -> bool:
        """Put something down in the place of what was there; False when another leads by now."""
        return bool(await self._caller.call("record", (self._tag,), (self._name, fence, words)))

    async def recorded(self) -> bytes | None:
        """What was put down last, by whoever led then."""
        found = await answer_of(self._client.get(self._record))
        return found if isinstance(found, bytes) else None
