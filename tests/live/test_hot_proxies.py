"""The proxy pool changes in two nodes in the middle of a run; the site says who asks it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.live.pair import Answer, Pair, working
from tests.live.proofs import proves
from tests.proxies import ForwardProxy
from tests.servers import Server


async def only_from(pair: Pair, peer: str, since: float) -> None:
    """Both nodes ask from there, and nothing comes from elsewhere any more."""
    await pair.both_fetch(since + 0.3, lambda hit: hit.peer == peer)
    assert {hit.peer for hit in pair.site.since(since + 0.3)} == {peer}


async def rests(pair: Pair) -> bool:
    """Whether the site is left alone for a while."""
    await asyncio.sleep(0.3)
    count = len(pair.site.hits)
    await asyncio.sleep(0.7)
    return len(pair.site.hits) == count


def longest_rests(pair: Pair) -> list[float]:
    """Of each node how long (s) a proxy still rests at most."""
    pools = [spider._engine._parts.proxies for spider in pair.spiders]  # type: ignore[union-attr]
    return [max(r.until - pool._now() for r in pool._records.values()) for pool in pools]


async def fresh(pair: Pair, stack: AsyncExitStack, number: int) -> ForwardProxy:
    """A proxy of which no node knows anything, in the place of the others."""
    proxy = await stack.enter_async_context(ForwardProxy(f"127.0.0.{60 + number}"))
    at = await pair.holds("PROXY_LIST", proxy.url())
    await only_from(pair, proxy.source, at)
    return proxy


@proves(
    *("PROXY_LIST", "PROXY_FILE", "PROXY_ENABLE", "PROXY_COOLDOWN", "PROXY_COOLDOWN_MAX"),
    *("PROXY_COOLDOWN_STATUS_CODES", "PROXY_SUSPECT_BAN_AFTER"),
)
async def test_proxies(live_server: Server, tmp_path: Path) -> None:
    settings = {
        "SPIDER_MAX_RETRY_TIMES": 0,
        "CIRCUIT_FAILURE_THRESHOLD": 0,
        "DOWNLOAD_DELAY": 0.01,
        "CONCURRENT_REQUESTS": 2,
        "ROBOTS_OBEY": "false",
    }
    async with AsyncExitStack() as stack:
        pair = await stack.enter_async_context(working(live_server.url, tmp_path, **settings))
        await fresh(pair, stack, 0)
        at = await pair.holds("PROXY_ENABLE", "false")
        await only_from(pair, "127.0.0.1", at)
        await pair.holds("PROXY_ENABLE", "true")

        second = await stack.enter_async_context(ForwardProxy("127.0.0.70"))
        listed = tmp_path / "proxies.txt"
        await asyncio.to_thread(listed.write_text, f"{second.url()}\n")
        await pair.holds("PROXY_FILE", str(listed))
        at = await pair.holds("PROXY_LIST", "")
        await only_from(pair, second.source, at)
        await pair.holds("PROXY_FILE", "")

        proxy = await fresh(pair, stack, 1)
        await pair.holds("PROXY_COOLDOWN", "0.2")
        proxy.refuse = 403
        await asyncio.sleep(0.3)
        proxy.refuse = 0
        await pair.both_fetch(time.monotonic())
        await pair.holds("PROXY_COOLDOWN_MAX", "0.25")
        proxy.refuse = 403
        await asyncio.sleep(1.2)
        assert max(longest_rests(pair)) <= 0.25, "it would be longer each time"
        await pair.holds("PROXY_COOLDOWN_MAX", "900")
        await pair.until(lambda: min(longest_rests(pair)) > 0.5, 5)
        await pair.holds("PROXY_COOLDOWN", "600")

        await fresh(pair, stack, 2)
        pair.site.answer = lambda path: Answer(status=418)
        await pair.both_fetch(time.monotonic())
        await pair.holds("PROXY_COOLDOWN_STATUS_CODES", "418")
        assert await rests(pair)
        pair.site.answer = lambda path: Answer()

        proxy = await fresh(pair, stack, 3)
        await pair.holds("PROXY_SUSPECT_BAN_AFTER", "1000")
        proxy.drop = 20
        await pair.until(lambda: proxy.drop == 0)
        await pair.both_fetch(time.monotonic())
        await pair.holds("PROXY_SUSPECT_BAN_AFTER", "1")
        proxy.drop = 1000
        assert await rests(pair)
