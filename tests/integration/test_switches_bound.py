"""The store keeps the live values of so many jobs only."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis
from tests.servers import Server

from orbweb.frontier import configbook
from orbweb.frontier.configbook import ConfigBook


async def test_of_too_many_jobs_the_earliest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configbook, "MOST_SWITCHES", 3)
    server = Server("valkey")
    try:
        async with Redis.from_url(server.url) as client:
            book = ConfigBook(client, "t")
            for n in range(9):
                await book.keep_switches(f"job{n}", b"{}")
            assert len(await book.switches()) == 3
            await book.keep_switches("again", b"{}")
            assert "again" in await book.switches()
    finally:
        server.stop()
