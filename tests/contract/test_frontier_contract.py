"""Every frontier keeps the contract: in memory, on Valkey, on Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.servers import Server, redis_binary

from orbweb.frontier.admin import Admin
from orbweb.frontier.base import DeadLetter
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.memory_state import MemoryShard
from orbweb.frontier.memory_tasks import MemoryTaskList
from orbweb.frontier.servers import OneServer, Servers
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.frontier.tasks import ValkeyTaskList
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.testing.contract import FrontierContract

START_MS = 1_700_000_000_000


class Clocks:
    """The server's clock, which a test may turn back, and the nodes', which it may not."""

    def __init__(self) -> None:
        self.wall = START_MS
        self.monotonic_ms = 0

    def turn(self, ms: int) -> None:
        self.wall += ms
        self.monotonic_ms += max(ms, 0)

    def seconds(self) -> float:
        return self.monotonic_ms / 1000


class MemoryStore(Clocks):
    """See `orbweb.testing.contract.Store`."""

    def __init__(self, shards: int = 1) -> None:
        super().__init__()
        self.shards = [MemoryShard(lambda: self.wall) for _ in range(shards)]

    def frontier(self, job: str = "job", run: str = "") -> Any:
        number = len(self.shards)
        parts = [MemoryFrontier(shard, job, run, shards=number) for shard in self.shards]
        return parts[0] if number == 1 else ShardedFrontier(parts, clock=self.seconds)

    def task_list(self, key: str) -> MemoryTaskList:
        return MemoryTaskList(self.shards[0].task_lists, key)

    async def lose(self) -> None:
        for shard in self.shards:
            shard.runs.clear()
            shard.current.clear()

    async def dead_letters(self, job: str = "job", run: str = "") -> list[DeadLetter]:
        epoch = self.shards[0].current[job, run]
        return [
            DeadLetter(
                id,
                buried.reason,
                buried.error,
                buried.tries,
                buried.at_ms,
                buried.task.host,
                buried.task.priority,
                buried.task.payload,
                buried.node,
            )
            for shard in self.shards
            for id, buried in shard.runs[f"{job}:{run}:{epoch}"].dead.items()
        ]

    async def responses(self, job: str = "job", run: str = "") -> dict[str, bytes]:
        epoch = self.shards[0].current[job, run]
        runs = [shard.runs[f"{job}:{run}:{epoch}"] for shard in self.shards]
        return {id: kept for each in runs for id, kept in each.responses.items()}


class ServerStore(Clocks):
    """See `orbweb.testing.contract.Store`."""

    def __init__(self, servers: Servers, shards: int = 1) -> None:
        super().__init__()
        self.servers = servers
        self.client = servers.of_shard(0)
        self.shards = shards
        self.made: list[ValkeyFrontier] = []

    def frontier(self, job: str = "job", run: str = "") -> Any:
        parts = [
            ValkeyFrontier(
                self.servers.of_shard(number),
                prefix="t",
                job=job,
                run=run,
                shard=number,
                shards=self.shards,
                now=self.wall,
            )
            for number in range(self.shards)
        ]
        self.made += parts
        return parts[0] if self.shards == 1 else ShardedFrontier(parts, clock=self.seconds)

    def turn(self, ms: int) -> None:
        super().turn(ms)
        for frontier in self.made:
            frontier.caller.time = self.wall

    def task_list(self, key: str) -> ValkeyTaskList:
        return ValkeyTaskList(self.client, "t", key)

    async def lose(self) -> None:
        await self.client.flushall()

    async def dead_letters(self, job: str = "job", run: str = "") -> list[DeadLetter]:
        admin = Admin(self.servers, "t")
        return [letter async for letter in admin.dead_letters(await admin.find(job, run))]

    async def responses(self, job: str = "job", run: str = "") -> dict[str, bytes]:
        admin = Admin(self.servers, "t")
        info = await admin.find(job, run)
        kept = {
            letter.id: await admin.response(info, letter)
            async for letter in admin.dead_letters(info)
        }
        return {id: response for id, response in kept.items() if response is not None}


SHARDS = pytest.mark.parametrize("shards", [1, 4])


@SHARDS
class TestMemory(FrontierContract):
    @pytest.fixture
    def store(self, shards: int) -> MemoryStore:
        return MemoryStore(shards)


@pytest.fixture(scope="module")
def valkey() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def redis() -> Iterator[Server]:
    server = Server("redis")
    yield server
    server.stop()


@asynccontextmanager
async def server_store(server: Server, shards: int = 1) -> AsyncIterator[ServerStore]:
    servers = OneServer(server.url)
    store = ServerStore(servers, shards)
    await store.client.flushall()
    yield store
    await servers.aclose()


@SHARDS
class TestValkey(FrontierContract):
    @pytest.fixture
    async def store(self, valkey: Server, shards: int) -> AsyncIterator[ServerStore]:
        async with server_store(valkey, shards) as store:
            yield store


@SHARDS
@pytest.mark.skipif(redis_binary() is None, reason="redis-server (Debian package) is not installed")
class TestRedis(FrontierContract):
    @pytest.fixture
    async def store(self, redis: Server, shards: int) -> AsyncIterator[ServerStore]:
        async with server_store(redis, shards) as store:
            yield store
