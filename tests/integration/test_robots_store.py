"""robots.txt of an origin is fetched once for the whole fleet: the store's side of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from tests.servers import Server

from orbweb.frontier.robots import ValkeyRobotsStore

ORIGIN = "https://shop.example"


@pytest.fixture
async def store() -> AsyncIterator[ValkeyRobotsStore]:
    server = Server("valkey")
    client = Redis(unix_socket_path=str(server.socket))
    yield ValkeyRobotsStore(client, "t")
    await client.aclose()
    server.stop()


async def test_one_node_fetches_and_the_others_wait(store: ValkeyRobotsStore) -> None:
    assert await store.begin(ORIGIN, "a", 60)
    assert not await store.begin(ORIGIN, "b", 60)
    await store.put(ORIGIN, b"entry", 60)
    assert await store.get(ORIGIN) == b"entry"


async def test_who_looked_before_the_entry_was_put_does_not_fetch_again(
    store: ValkeyRobotsStore,
) -> None:
    assert await store.begin(ORIGIN, "a", 60)
    assert await store.get(ORIGIN) is None
    await store.put(ORIGIN, b"entry", 60)
    assert not await store.begin(ORIGIN, "b", 60)
    assert await store.get(ORIGIN) == b"entry"
