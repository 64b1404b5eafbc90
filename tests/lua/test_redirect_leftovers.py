"""What a redirect has noted leaves the store with its request, whoever took the page since."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from tests.servers import Server

from orbweb.frontier.base import RunConfig
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.testing.contract_store import Node, page, pages

TARGET = page("target")


@pytest.fixture
async def client() -> AsyncIterator[Redis]:
    server = Server("valkey")
    client = Redis(unix_socket_path=str(server.socket))
    yield client
    await client.aclose()
    server.stop()


async def test_two_requests_that_redirect_to_a_page_that_was_forgotten_between(
    client: Redis,
) -> None:
    frontier = ValkeyFrontier(client, prefix="t", job="job")
    node = Node(frontier)
    await frontier.open(RunConfig(host_concurrency=0))
    await node.push(*pages("ab"))
    first, second = await node.take(2)
    run = frontier.run
    assert run is not None
    assert TARGET.fingerprint is not None
    mark = TARGET.fingerprint
    assert await frontier.visit(*first.held, mark, TARGET.host)
    words = ("url", mark, TARGET.host)
    assert await frontier.caller.call("seen_forget", (frontier.shard.tag, run.seen), words) == 1
    assert await frontier.visit(*second.held, mark, TARGET.host)
    await node.finish(first)
    await node.finish(second)
    assert await client.exists(run.visits, run.visited) == 0
