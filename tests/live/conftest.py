"""A server for all tests of live values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis
from tests.live.pair import Pair, Site
from tests.servers import Server


@pytest.fixture(scope="session")
def live_server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture
async def quiet(live_server: Server) -> AsyncIterator[Pair]:
    """The operator alone: no node is at work, one job has told its own values."""
    client = Redis.from_url(live_server.url)
    await client.flushall()
    pair = Pair(Site(), client, [])
    await pair.book.keep_switches("walker", b'{"price_v2": false, "label": "old"}')
    yield pair
    await client.aclose()
