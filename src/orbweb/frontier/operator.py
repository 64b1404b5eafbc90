"""How an operator's acts reach the store: each in one step with the line that records it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from redis.asyncio import Redis

from orbweb.errors import ConfigError
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.routes import shard_of
from orbweb.frontier.server import answer_of, wall_ms
from orbweb.frontier.valkey import ScriptCaller, Word

UNTOUCHED = "="
"""Says to `lua/steer.lua` that the register is not looked at, or left as it is."""


class Author(NamedTuple):
    """Who does something, and why: both stand in the trail."""

    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One act of an operator: on a host, or on a run of a job."""

    at_ms: int
    by: str
    verb: str
    host: str = ""
    job: str = ""
    run: str = ""
    before: str = ""
    after: str = ""
    why: str = ""

    def pack(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def unpack(cls, text: bytes) -> AuditLine:
        """Read what `pack` wrote; fields of later versions are left out.

        What is no line at all says so instead of its reason.
        """
        try:
            fields = json.loads(text)
            return cls(**{name: fields[name] for name in cls.__slots__ if name in fields})
        except (ValueError, TypeError):
            return cls(0, "", "unreadable", why=f"this line cannot be read: {text!r:.200}")


class OperatorStore:
    """The shards of a prefix as operators use them. All calls may raise `StoreUnavailable`."""

    def __init__(
        self,
        client_of: Callable[[int], Redis],
        prefix: str,
        now: int | None = None,
        *,
        shards: int = 1,
    ) -> None:
        """`client_of` gives the client for each of so many shards."""
        self.shards = tuple(ShardKeys(prefix, number) for number in range(shards))
        self._callers = [ScriptCaller(client_of(number), now) for number in range(shards)]

    def shard(self, host: str) -> ShardKeys:
        """The shard in which all that concerns a host lies."""
        return self.shards[shard_of(host, len(self.shards))]

    def caller(self, shard: ShardKeys) -> ScriptCaller:
        """Calls transitions on the server of a shard."""
        return self._callers[shard.shard]

    def client(self, shard: ShardKeys) -> Redis:
        """A client for the server of a shard."""
        return self.caller(shard).client

    def turn(self, now_ms: int) -> None:
        """Set the clock, for tests that turn it."""
        for caller in self._callers:
            caller.time = now_ms

    async def read(self, call: Any) -> Any:
        """The answer of a plain command."""
        return await answer_of(call)

    async def now_ms(self) -> int:
        """The server's clock."""
        first = self._callers[0]
        if first.time != "":
            return int(first.time)
        return await wall_ms(first.client)

    async def steer(
        self,
        line: AuditLine,
        fields: Mapping[str, str],
        entry: tuple[Word, Word] = (UNTOUCHED, UNTOUCHED),
    ) -> None:
        """Set fields of the host that the line names ('' takes one away), and record it.

        `entry`: its entry in the register as it was read, and as it is to be. Raises `ConfigError`
        when that has changed since; nothing was done then.
        """
        words = [word for pair in fields.items() for word in pair]
        shard = self.shard(line.host)
        done, *_ = await self.caller(shard).call(
            "steer", (shard.tag,), (line.host, *entry, line.pack(), *words)
        )
        if not done:
            raise ConfigError(
                f"the rate of {line.host} was changed by someone else in this moment: look at it "
                "(`orbweb rates list`) and decide again"
            )

    async def trail(self, host: str | None = None) -> list[AuditLine]:
        """What was done, the latest first; at most the last 10,000 acts of a shard."""
        lines = []
        for shard in self.shards if host is None else (self.shard(host),):
            for text in await self.read(self.client(shard).lrange(shard.audit, 0, -1)):
                line = AuditLine.unpack(text)
                if host in (None, line.host):
                    lines.append(line)
        lines.reverse()
        return sorted(lines, key=lambda line: -line.at_ms)


def until(at_ms: int, for_ms: int) -> int:
    """When what begins at `at_ms` ends; 0 (no end) when it is for 0 ms."""
    return at_ms + for_ms if for_ms else 0
