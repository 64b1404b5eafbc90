"""Every frontier keeps the contract: in memory, on Valkey, on Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from tests.servers import Server, redis_binary

from orbweb.frontier.admin import Admin
from orbweb.frontier.base import DeadLetter
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.memory_state import MemoryShard
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.testing.contract import FrontierContract

START_MS = 1_700_000_000_000


class MemoryStore:
    """See `orbweb.testing.contract.Store`."""

    def __init__(self) -> None:
        self.wall = START_MS
        self.shard = MemoryShard(lambda: self.wall)

    def frontier(self, job: str = "job", run: str = "") -> MemoryFrontier:
        return MemoryFrontier(self.shard, job, run)

    def turn(self, ms: int) -> None:
        self.wall += ms

    async def lose(self) -> None:
        self.shard.runs.clear()
        self.shard.current.clear()

    async def dead_letters(self, job: str = "job", run: str = "") -> list[DeadLetter]:
        epoch = self.shard.current[job, run]
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
            )
            for id, buried in self.shard.runs[f"{job}:{run}:{epoch}"].dead.items()
        ]


class ServerStore:
    """See `orbweb.testing.contract.Store`."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self.wall = START_MS
        self.made: list[ValkeyFrontier] = []

    def frontier(self, job: str = "job", run: str = "") -> ValkeyFrontier:
        frontier = ValkeyFrontier(self.client, prefix="t", job=job, run=run, now=self.wall)
        self.made.append(frontier)
        return frontier

    def turn(self, ms: int) -> None:
        self.wall += ms
        for frontier in self.made:
            frontier.caller.time = self.wall

    async def lose(self) -> None:
        await self.client.flushall()

    async def dead_letters(self, job: str = "job", run: str = "") -> list[DeadLetter]:
        admin = Admin(self.client, "t")
        return [letter async for letter in admin.dead_letters(await admin.find(job, run))]


class TestMemory(FrontierContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


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
async def server_store(server: Server) -> AsyncIterator[ServerStore]:
    client = Redis(unix_socket_path=str(server.socket))
    await client.flushall()
    yield ServerStore(client)
    await client.aclose()


class TestValkey(FrontierContract):
    @pytest.fixture
    async def store(self, valkey: Server) -> AsyncIterator[ServerStore]:
        async with server_store(valkey) as store:
            yield store


@pytest.mark.skipif(redis_binary() is None, reason="redis-server (Debian package) is not installed")
class TestRedis(FrontierContract):
    @pytest.fixture
    async def store(self, redis: Server) -> AsyncIterator[ServerStore]:
        async with server_store(redis) as store:
            yield store
