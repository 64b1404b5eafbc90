"""The connection to a store: what a cancelled call leaves behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbweb.errors import ConfigError, StoreUnsafe
from orbweb.frontier.embedded import EmbeddedStore
from orbweb.frontier.server import connect, judge, read_facts


async def test_a_call_that_is_cancelled_at_any_moment_ends_cancelled(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path) as url:
        client = connect(url, 5.0)
        heard = 0
        for turns in range(60):
            call = asyncio.ensure_future(client.execute_command("PING"))
            for _ in range(turns):
                await asyncio.sleep(0)
            cancelled = call.cancel()
            await asyncio.wait([call])
            if cancelled:
                assert call.cancelled(), f"after {turns} turns of the loop"
                heard += 1
        assert heard >= 5
        assert await client.ping()
        await client.aclose()


async def test_broken_text_in_a_command_does_not_end_the_caller(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path) as url:
        client = connect(url, 5.0)
        await client.set("error", "price \ud800")
        assert await client.get("error") == rb"price \ud800"
        await client.aclose()


async def test_a_replica_is_refused_and_its_master_named(tmp_path: Path) -> None:
    """A node would wait for ever for a server that takes no writes, or write what is lost."""
    with EmbeddedStore(tmp_path) as url:
        client = connect(url, 5.0)
        judge(await read_facts(client, url))
        await client.replicaof("127.0.0.1", 1)
        with pytest.raises(StoreUnsafe, match=r"replica of 127\.0\.0\.1:1.*name its master"):
            judge(await read_facts(client, url))
        await client.replicaof("NO", "ONE")
        await client.aclose()


async def test_a_password_that_is_missing_is_told_with_where_to_write_it(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path) as url:
        client = connect(url, 5.0)
        await client.config_set("requirepass", "secret")
        stranger = connect(url, 5.0)
        with pytest.raises(ConfigError, match="redis://:password@host"):
            await read_facts(stranger, url)
        await client.config_set("requirepass", "")
        await client.aclose()
        await stranger.aclose()
