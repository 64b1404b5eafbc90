"""A server that refuses: new work is refused whole, and what is held can be finished."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from tests.servers import Server, redis_binary

from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.base import Nack, NackResult, RunConfig
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.testing.contract_store import LEASE_MS, Node, done, page, pages

KINDS = [
    "valkey",
    pytest.param(
        "redis",
        marks=pytest.mark.skipif(
            redis_binary() is None, reason="redis-server (Debian package) is not installed"
        ),
    ),
]


@pytest.fixture(params=KINDS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Redis]:
    server = Server(request.param, "--maxmemory-policy", "noeviction")
    client = Redis(unix_socket_path=str(server.socket))
    yield client
    await client.aclose()
    server.stop()


async def test_a_full_server_takes_no_new_work_and_finishes_what_is_held(client: Redis) -> None:
    node = Node(ValkeyFrontier(client, prefix="t", job="job"))
    await node.frontier.open(RunConfig())
    await node.push(*pages("abcd"), final=False)
    first, second, third = await node.take(3)
    before = await node.frontier.status()
    await client.config_set("maxmemory", "1")
    try:
        refused = (
            lambda: node.claim(),
            lambda: node.frontier.add(pages("xy")),
            lambda: node.frontier.seed_push("A:1000000", 2, True, pages("xy")),
            lambda: node.frontier.seed_claim("B", 1, LEASE_MS),
            lambda: node.frontier.open(RunConfig()),
        )
        for call in refused:
            with pytest.raises(StoreUnavailable, match="takes no writes now"):
                await call()
        assert await node.frontier.status() == before, "refused whole"
        held = [first.held, second.held, third.held]
        assert await node.frontier.renew("A", LEASE_MS, held, b"alive") == ([], False)
        await node.frontier.fetched([first.held])
        assert await node.frontier.ack([done(first, page("e"))]) == [True]
        answer = await node.frontier.nack([Nack(*second.held, counted=False)])
        assert answer == [NackResult.REQUEUED]
        assert await node.frontier.recover() == 0
        await node.frontier.stop()
    finally:
        await client.config_set("maxmemory", "0")
    assert await node.finish(third) == [True]
    assert sorted(await node.ids()) == ["b", "d", "e"]
    assert (await node.frontier.status()).seeds == 1


async def test_refusals_say_whether_to_wait_or_to_correct_something(client: Redis) -> None:
    frontier = ValkeyFrontier(client, prefix="t", job="job")
    await frontier.open(RunConfig())
    await client.config_set("min-replicas-to-write", "1")
    with pytest.raises(StoreUnavailable, match="takes no writes now: NOREPLICAS"):
        await frontier.add(pages("a"))
    await client.config_set("min-replicas-to-write", "0")
    await client.config_set("requirepass", "secret")
    await client.connection_pool.disconnect()
    with pytest.raises(ConfigError, match="refuses these credentials"):
        await frontier.add(pages("a"))
