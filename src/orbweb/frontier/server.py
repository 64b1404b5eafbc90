"""Connections to a Valkey or Redis server, and what it must offer before a crawl may rely on it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from orbweb.errors import ConfigError, StoreUnavailable, StoreUnsafe
from orbweb.log import mask_address

OLDEST = (7, 0)
"""Redis before 7.0 knows no script flags: on a full server a transition could fail half-way."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself."""

    product: str
    version: str
    eviction_policy: str
    append_only: bool
    append_fsync: str
    used_memory: int
    max_memory: int
    clustered: bool = False
    """It is one of the servers of a cluster."""
    replicas: int = 0
    """Servers that copy it and are connected to it."""
    copy_of: str = ""
    """`host:port` of the server that this one is a replica of."""


def connect(url: str, timeout_seconds: float) -> Redis:
    """A client that answers in bytes and never repeats a call by itself. Does not connect yet.

    Raises `ConfigError` for a URL that is none.
    """
    try:
        client = Redis.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
        )
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # refuses options that it does not know
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"REDIS_URL {mask_address(url)!r} is no Redis URL ({_what_is_wrong(error)}); "
            "right would be redis://[:password@]host:6379/0, rediss://… or unix:///path/to/socket"
        ) from error
    pool.connection_class = type("Connection", (Wire, pool.connection_class), {})
    return client


def _what_is_wrong(error: ValueError | TypeError) -> str:
    """In words that show no part of a password: where it has a `/`, it looks like a port."""
    text = str(error)
    if text.startswith("Port "):
        return "its port is no number; in a password write / ? # @ as %2F %3F %23 %40"
    _, unknown, name = text.partition("got an unexpected keyword argument ")
    return f"unknown option {name}" if unknown else text


class Wire:
    """How a connection sends: commands are packed in C, and a cancellation is always heard.

    redis-py packs in C for its blocking client only, and sends within `asyncio.wait_for`, which
    before Python 3.12 loses a cancellation that comes in the instant in which it ends: the task
    would go on for ever.
    """

    socket_timeout: float | None
    is_connected: bool
    connect_check_health: Callable[..., Awaitable[None]]
    disconnect: Callable[..., Awaitable[None]]
    _writer: asyncio.StreamWriter

    def pack_command(self, *words: Any) -> list[bytes]:
        name, *rest = words
        command = (*str(name).split(), *rest)
        try:
            return [pack_command(command)]
        except UnicodeEncodeError:  # half a surrogate pair, as in a word of the command line
            return [pack_command(tuple(map(_whole, command)))]

    async def send_packed_command(
        self, command: bytes | Iterable[bytes], check_health: bool = True
    ) -> None:
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        try:
            async with asyncio.timeout(self.socket_timeout):
                self._writer.writelines([command] if isinstance(command, bytes) else command)
                await self._writer.drain()
        except OSError as error:
            await self.disconnect(nowait=True)
            raise ConnectionError(f"while writing to the store: {error!r}") from error
        except BaseException:  # half a command may be on its way
            await self.disconnect(nowait=True)
            raise


def _whole(word: Any) -> Any:
    return word.encode(errors="backslashreplace") if isinstance(word, str) else word


def refuses_us(error: BaseException | None) -> bool:
    """Whether the server answers but wants other credentials: waiting would not help.

    A client that is refused while it connects wraps that in an error of the connection.
    """
    while error is not None:
        if isinstance(error, (AuthenticationError, NoPermissionError)):
            return True
        if str(error).startswith(("NOAUTH", "HELLO must be called with the client already auth")):
            return True
        error = error.__cause__
    return False


async def read_facts(client: Redis, url: str) -> ServerFacts:
    """Ask the server what it is. Raises `StoreUnavailable`; `ConfigError` if it refuses us."""
    try:
        info: Mapping[str, Any] = await client.info()
    except ResponseError as error:
        raise ConfigError(f"{mask_address(url)} does not answer INFO: {error}") from error
    except (RedisError, OSError) as error:
        if refuses_us(error):
            raise ConfigError(
                f"{mask_address(url)} refuses these credentials: {error}; right would be "
                "redis://:password@host:6379/0, or redis://user:password@… for a user of its own"
            ) from error
        raise StoreUnavailable(
            f"no Redis or Valkey answers at {mask_address(url)}: {error}"
        ) from error
    valkey = "valkey_version" in info
    return ServerFacts(
        product="Valkey" if valkey else "Redis",
        version=str(info["valkey_version" if valkey else "redis_version"]),
        eviction_policy=str(info.get("maxmemory_policy", "noeviction")),
        append_only=bool(int(info.get("aof_enabled", 0))),
        append_fsync=await _config(client, "appendfsync"),
        used_memory=int(info.get("used_memory", 0)),
        max_memory=int(info.get("maxmemory", 0)),
        clustered=bool(int(info.get("cluster_enabled", 0))),
        replicas=int(info.get("connected_slaves", 0)),
        copy_of=f"{info.get('master_host')}:{info.get('master_port')}"
        if info.get("role") == "slave"
        else "",
    )


async def _config(client: Redis, name: str) -> str:
    """A value of the server's configuration; empty where a managed service does not tell."""
    try:
        return str((await client.config_get(name)).get(name, ""))
    except (RedisError, OSError):
        return ""


def judge(facts: ServerFacts) -> tuple[str, ...]:
    """Warnings about a server that may be used. Raises `StoreUnsafe` about one that may not."""
    version = tuple(int(part) for part in re.findall(r"\d+", facts.version)[:2])
    if version < OLDEST:
        raise StoreUnsafe(
            f"{facts.product} {facts.version} is too old: Orbweb needs Redis >= 7.0 or Valkey >= 8"
        )
    if facts.copy_of and not facts.clustered:
        raise StoreUnsafe(
            f"the server is a replica of {facts.copy_of}: it takes no writes, or loses them. "
            "Right: name its master in REDIS_URL"
        )
    if facts.eviction_policy != "noeviction":
        raise StoreUnsafe(
            f"the server's maxmemory-policy is {facts.eviction_policy}: it would throw queued "
            "requests away when memory is short. Right: CONFIG SET maxmemory-policy noeviction"
        )
    if not facts.append_only:
        return (
            "the server writes no append-only file (appendonly no): if it is restarted, the queue "
            "of the crawl is gone. Right: CONFIG SET appendonly yes",
        )
    if facts.append_fsync == "no":
        return (
            "the server leaves syncing to the system (appendfsync no): a power cut costs minutes",
        )
    return ()


async def answer_of(call: Awaitable[Any] | Any) -> Any:
    """The answer of a plain command. Raises `StoreUnavailable` when there is none."""
    try:
        return await call
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"the store does not answer: {error}") from error


async def wall_ms(client: Redis) -> int:
    """The server's clock. Raises `StoreUnavailable`."""
    seconds, micros = await answer_of(client.time())
    return int(seconds * 1000 + micros // 1000)


def whole(text: bytes) -> int:
    """A count or a time as the store keeps it; 0 for what is none, as another version may write."""
    return int(text) if text.isdigit() else 0
