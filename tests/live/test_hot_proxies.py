"""The pool of proxies changes in two nodes in the middle of a run; the site sees who comes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from tests.live.pair import Pair, working
from tests.live.proofs import proves
from tests.proxies import ForwardProxy
from tests.servers import Server

from orbweb.errors import ConfigError

DIRECT = "127.0.0.1"
WINDOW_SECONDS = 0.3
"""What is looked at: a request that was under way may arrive after a change."""


@pytest.fixture
async def proxies() -> AsyncIterator[list[ForwardProxy]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(ForwardProxy(f"127.0.0.{50 + n}")) for n in range(4)]


async def come_from(pair: Pair, peer: str) -> None:
    """Soon both nodes send from there, and from nowhere else."""

    def only() -> bool:
        late = pair.site.since(time.monotonic() - WINDOW_SECONDS)
        return {(hit.node, hit.peer) for hit in late} == {("a", peer), ("b", peer)}

    await pair.until(only, 4)


async def is_silent(pair: Pair) -> None:
    """Soon nobody sends anything."""
    await pair.until(lambda: not pair.site.since(time.monotonic() - 2 * WINDOW_SECONDS), 4)


async def goes_on(pair: Pair, proxy: ForwardProxy) -> None:
    """It is tried again and again."""
    before = len(proxy.asked)
    await pair.until(lambda: len(proxy.asked) > before + 6, 4)


async def rests(pair: Pair, proxy: ForwardProxy) -> None:
    """Nobody asks it any more."""
    asked, since = len(proxy.asked), time.monotonic()

    def is_calm() -> bool:
        nonlocal asked, since
        if len(proxy.asked) != asked:
            asked, since = len(proxy.asked), time.monotonic()
        return time.monotonic() - since > 0.5

    await pair.until(is_calm, 4)
    await pair.both_fetch(time.monotonic())


@proves("PROXY_LIST", "PROXY_FILE", "PROXY_ENABLE")
async def test_the_pool(live_server: Server, tmp_path: Path, proxies: list[ForwardProxy]) -> None:
    one, two, three, _ = proxies
    settings = {"PROXY_LIST": one.url(), "DOWNLOAD_DELAY": 0.02}
    async with working(live_server.url, tmp_path, **settings) as pair:
        await come_from(pair, one.source)
        await pair.holds("PROXY_LIST", two.url())
        await come_from(pair, two.source)
        with pytest.raises(ConfigError, match=r"PROXY_LIST .*entry 2: 'x' is no proxy"):
            await pair.set("PROXY_LIST", f"{one.url()},x")
        done = await pair.set("PROXY_FILE", str(tmp_path / "missing.txt"))
        for ack in await pair.acked(done.version):
            assert "No such file" in "".join(ack.said.keys.values())
        await come_from(pair, two.source)
        file = tmp_path / "proxies.txt"
        file.write_text(three.url())
        await pair.holds("PROXY_FILE", str(file))
        await pair.holds("PROXY_LIST", "")
        await come_from(pair, three.source)
        await pair.holds("PROXY_ENABLE", "false")
        await come_from(pair, DIRECT)
        await pair.holds("PROXY_ENABLE", "true")
        await come_from(pair, three.source)
        await pair.holds("PROXY_FILE", "")
        await is_silent(pair)
        await pair.holds("PROXY_LIST", one.url())
        await come_from(pair, one.source)


async def test_a_host_keeps_its_gap_however_many_proxies_it_is_asked_through(
    live_server: Server, tmp_path: Path, proxies: list[ForwardProxy]
) -> None:
    settings = {"PROXY_LIST": ",".join(each.url() for each in proxies), "DOWNLOAD_DELAY": 0.3}
    async with working(live_server.url, tmp_path, **settings) as pair:
        await pair.until(lambda: len(pair.site.hits) > 12, 8)
        assert {hit.peer for hit in pair.site.hits} == {each.source for each in proxies}
        gaps = [later.t - hit.t for hit, later in pairwise(pair.site.hits)]
        assert min(gaps) > 0.1, "what a proxy takes to pass a request on is not in our hands"
        assert pair.site.hits[-1].t - pair.site.hits[0].t > 0.3 * len(gaps) - 0.1


@proves(
    *("PROXY_COOLDOWN_STATUS_CODES", "PROXY_COOLDOWN", "PROXY_COOLDOWN_MAX"),
    "PROXY_SUSPECT_BAN_AFTER",
)
async def test_rests(live_server: Server, tmp_path: Path, proxies: list[ForwardProxy]) -> None:
    good, bad, worse, broken = proxies
    bad.refuse = worse.refuse = 418
    broken.drop = 1_000_000
    settings = {
        "PROXY_LIST": f"{good.url()},{bad.url()}",
        "PROXY_SUSPECT_BAN_AFTER": 1_000_000,
        "CIRCUIT_FAILURE_THRESHOLD": 0,
        "DOWNLOAD_DELAY": 0.01,
        "SPIDER_MAX_RETRY_TIMES": 0,
        "LOG_LEVEL": "CRITICAL",
    }
    async with working(live_server.url, tmp_path, pages=6000, **settings) as pair:
        await goes_on(pair, bad)
        await pair.holds("PROXY_COOLDOWN_STATUS_CODES", "418")
        await rests(pair, bad)
        await pair.holds("PROXY_COOLDOWN_MAX", "0.05")
        await pair.holds("PROXY_COOLDOWN", "0.05")
        await pair.holds("PROXY_LIST", f"{good.url()},{worse.url()}")
        await goes_on(pair, worse)
        await goes_on(pair, worse)
        await goes_on(pair, worse)
        await pair.holds("PROXY_COOLDOWN_MAX", "60")
        await rests(pair, worse)
        await pair.holds("PROXY_COOLDOWN", "60")
        await pair.holds("PROXY_LIST", f"{good.url()},{broken.url()}")
        await goes_on(pair, broken)
        await pair.holds("PROXY_SUSPECT_BAN_AFTER", "1")
        await rests(pair, broken)
