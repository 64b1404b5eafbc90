"""Which server holds which shard: one for all, or the masters of a cluster as they are now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast
from urllib.parse import urlsplit, urlunsplit

from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    ReadOnlyError,
    RedisError,
    TimeoutError,
)

from orbweb.errors import ConfigError, StoreUnavailable, StoreUnsafe
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.server import ServerFacts, connect, judge, read_facts
from orbweb.log import mask_address

NOT_THE_OWNER = (
    *(AskError, ReadOnlyError, ClusterDownError, MasterDownError),
    *(ConnectionError, TimeoutError, OSError),
)
"""What a server answers, or does not, that has lost its slots to another. `AskError` is that a slot
moves, or has moved."""


class Servers(Protocol):
    """The servers of one store."""

    several: bool
    """Each of them can lose its last writes alone, and has replicas that may take its place."""

    def of_shard(self, shard: int) -> Redis:
        """A client for the server that holds a shard."""

    async def facts(self) -> dict[str, ServerFacts]:
        """What each server that takes writes says of itself, by its address (without passwords)."""

    def again(self) -> Servers:
        """The same servers over connections of their own, for another event loop."""

    async def aclose(self) -> None:
        """Close all connections."""


class OneServer:
    """See `Servers`. All shards lie on it, so they lose their last writes together."""

    several = False

    def __init__(self, url: str, timeout_seconds: float = 5.0) -> None:
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._client = connect(url, timeout_seconds)

    def of_shard(self, shard: int) -> Redis:
        return self._client

    async def facts(self) -> dict[str, ServerFacts]:
        return {mask_address(self._url): await read_facts(self._client, self._url)}

    def again(self) -> OneServer:
        return OneServer(self._url, self._timeout_seconds)

    async def aclose(self) -> None:
        await self._client.aclose()


class Cluster:
    """See `Servers`. Asks any server that it knows which of them own the slots, and asks again when
    one turns out not to."""

    several = True

    def __init__(self, urls: Sequence[str], prefix: str, timeout_seconds: float) -> None:
        self._urls = list(urls)
        self._prefix = prefix
        self._timeout_seconds = timeout_seconds
        self._clients: dict[str, Redis] = {}
        self._owners: list[tuple[int, int, str]] = []
        self._wrong = True

    def of_shard(self, shard: int) -> Redis:
        slot = key_slot(ShardKeys(self._prefix, shard).tag.encode())
        return cast(Redis, SlotClient(self, slot))

    async def owner(self, slot: int) -> Redis:
        """A client for the master of a slot. Raises `redis.exceptions.ConnectionError`."""
        if self._wrong:
            await self._ask_who_owns_what()
        for first, last, url in self._owners:
            if first <= slot <= last:
                return self._client(url)
        raise ConnectionError(f"no server of the cluster owns slot {slot} now")

    def known_owner(self, slot: int) -> Redis:
        """The master of a slot as far as is known, which may have changed."""
        owners = [url for first, last, url in self._owners if first <= slot <= last]
        return self._client(owners[0] if owners else self._urls[0])

    def is_wrong(self) -> None:
        """What is known of the slots is out of date."""
        self._wrong = True

    async def facts(self) -> dict[str, ServerFacts]:
        await self.owner(0)
        masters = dict.fromkeys(url for _, _, url in self._owners)
        return {mask_address(url): await read_facts(self._client(url), url) for url in masters}

    def again(self) -> Cluster:
        return Cluster(self._urls, self._prefix, self._timeout_seconds)

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    def _client(self, url: str) -> Redis:
        if url not in self._clients:
            self._clients[url] = connect(url, self._timeout_seconds)
        return self._clients[url]

    async def _ask_who_owns_what(self) -> None:
        failure: Exception | None = None
        for url in list(self._urls):
            try:
                slots: Any = await self._client(url).execute_command("CLUSTER SLOTS")  # type: ignore[no-untyped-call]
            except (RedisError, OSError) as error:
                failure = error
                self._urls.append(self._urls.pop(0))  # the next time ask another one first
                continue
            self._owners = [
                (first, last, _address(url, *master[:2])) for first, last, master, *_ in slots
            ]
            known = [_address(url, *node[:2]) for row in slots for node in row[2:]]
            self._urls += [each for each in dict.fromkeys(known) if each not in self._urls]
            self._wrong = False
            return
        raise ConnectionError(f"no server of the cluster answers: {failure}")


class SlotClient:
    """A client for whatever server owns a slot at the time; used as `redis.asyncio.Redis` is."""

    def __init__(self, cluster: Cluster, slot: int) -> None:
        self._cluster = cluster
        self._slot = slot

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            async with self._noting():
                client = await self._cluster.owner(self._slot)
                return await getattr(client, name)(*args, **kwargs)

        return call

    def pipeline(self, transaction: bool = True) -> Any:
        """Several commands to the owner, as far as it is known."""
        return self._cluster.known_owner(self._slot).pipeline(transaction=transaction)

    def pubsub(self, **options: Any) -> Any:
        """A subscription at the owner, as far as it is known; every server tells of all."""
        return self._cluster.known_owner(self._slot).pubsub(**options)

    @asynccontextmanager
    async def _noting(self) -> AsyncIterator[None]:
        try:
            yield
        except NOT_THE_OWNER:
            self._cluster.is_wrong()
            raise


def _address(url: str, host: bytes, port: int) -> str:
    """The URL of another server of the cluster, with everything else as in `url`."""
    parts = urlsplit(url)
    account, at, _ = parts.netloc.rpartition("@")
    name = host.decode() if host else parts.hostname or ""
    if ":" in name:
        name = f"[{name}]"
    return urlunsplit(parts._replace(netloc=f"{account}{at}{name}:{port}"))


def several_urls(url: str) -> list[str]:
    """`redis://:password@a:1,b:2/0` as one URL for each of the servers."""
    parts = urlsplit(url)
    if "," not in parts.netloc:
        return [url]
    account, at, hosts = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{account}{at}{host}")) for host in hosts.split(",")]


def judge_all(facts: Mapping[str, ServerFacts]) -> list[str]:
    """Warnings about servers that may be used. Raises `StoreUnsafe` about one that may not."""
    found = []
    for address, each in facts.items():
        where = f"{address}: " if len(facts) > 1 else ""
        try:
            found += [f"{where}{warning}" for warning in judge(each)]
        except StoreUnsafe as error:
            raise StoreUnsafe(f"{where}{error}") from error
        if each.clustered and not each.replicas:
            found.append(
                f"{where}no replica is connected: while this master of the cluster is away the "
                "crawl waits, and what it loses is lost. Right: a replica for each master"
            )
    return found


async def reach(url: str, prefix: str, timeout_seconds: float) -> Servers:
    """The servers behind a URL, which may name several of a cluster, separated by commas.

    Raises `StoreUnavailable` when none answers, `ConfigError` for a URL that is none.
    """
    failure: StoreUnavailable | None = None
    urls = several_urls(url)
    for each in urls:
        one = OneServer(each, timeout_seconds)
        try:
            facts = await read_facts(one.of_shard(0), each)
        except StoreUnavailable as error:
            failure = error
            await one.aclose()
            continue
        if not facts.clustered:
            if len(urls) > 1:
                await one.aclose()
                raise ConfigError(
                    f"REDIS_URL names several servers, but {mask_address(each)} is not part of a "
                    "cluster: name one server, or those of a Redis Cluster"
                )
            return one
        await one.aclose()
        return Cluster(urls, prefix, timeout_seconds)
    assert failure is not None
    raise failure
