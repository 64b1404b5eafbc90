"""The connection to a store: what a cancelled call leaves behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbweb.frontier.embedded import EmbeddedStore
from orbweb.frontier.server import connect


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
