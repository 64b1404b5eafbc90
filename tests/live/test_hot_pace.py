"""What decides how fast hosts are fetched changes in two nodes in the middle of a run."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

from tests.live.pair import Answer, Pair, working
from tests.live.proofs import proves
from tests.servers import Server


async def reserved(pair: Pair, host: str, times: int = 4) -> list[float]:
    """For how long (ms) the store keeps a host for the next fetches, one after the other."""
    found: dict[float, float] = {}

    def tag(name: str) -> str:
        return f"{{t:0}}:{name}"

    async def look() -> bool:
        began = await pair.client.hget(tag(f"host:{host}"), "began")
        until = await pair.client.zscore(tag("next"), host)
        if began and until and until > float(began):
            found[float(began)] = until - float(began)
        return len(found) >= times

    for _ in range(800):
        if await look():
            return list(found.values())
        await asyncio.sleep(0.01)
    raise AssertionError(f"only {found} of {host}")


@proves("DOWNLOAD_DELAY", "RANDOMIZE_DOWNLOAD_DELAY")
async def test_delays(live_server: Server, tmp_path: Path) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.02) as pair:
        host = f"127.0.0.1:{pair.site.port}"
        at = await pair.holds("DOWNLOAD_DELAY", "0.4")
        await pair.until(lambda: len(pair.site.since(at + 0.1)) > 3, 5)  # turns were given before
        times = [hit.t for hit in pair.site.since(at + 0.1)]
        assert min(b - a for a, b in pairwise(times)) > 0.3
        await pair.holds("DOWNLOAD_DELAY", "0.1")
        lengths = await reserved(pair, host)
        assert min(lengths) == 105
        assert all(ms.is_integer() for ms in lengths), "whole milliseconds are added"
        await pair.holds("RANDOMIZE_DOWNLOAD_DELAY", "true")
        lengths = await reserved(pair, host, 6)
        assert min(lengths) >= 105
        assert not all(ms.is_integer() for ms in lengths), "sixteenths are, by chance"
        await pair.holds(f"host:{host}/DOWNLOAD_DELAY", "0.01")
        assert min(await reserved(pair, host)) < 40, "the host's own one wins"
        at = await pair.holds(f"host:{host}/DOWNLOAD_DELAY", "0")
        await pair.until(lambda: len(pair.site.since(at)) > 60)


@proves("CONCURRENT_REQUESTS", "CONCURRENT_REQUESTS_PER_DOMAIN")
async def test_concurrency(live_server: Server, tmp_path: Path) -> None:
    async with working(
        live_server.url, tmp_path, CONCURRENT_REQUESTS=1, CONCURRENT_REQUESTS_PER_DOMAIN=0
    ) as pair:
        pair.site.answer = lambda path: Answer(seconds=0.1)
        await pair.until(lambda: pair.site.now == 2)
        await pair.holds("CONCURRENT_REQUESTS", "5")
        await pair.until(lambda: pair.site.now == 10)
        await pair.holds("CONCURRENT_REQUESTS_PER_DOMAIN", "3")
        await asyncio.sleep(0.3)
        seen = [pair.site.now for _ in range(20) if not await asyncio.sleep(0.02)]
        assert max(seen) <= 3
        host = f"127.0.0.1:{pair.site.port}"
        await pair.holds(f"host:{host}/CONCURRENT_REQUESTS_PER_DOMAIN", "7")
        await pair.until(lambda: pair.site.now == 7)
        await pair.holds("CONCURRENT_REQUESTS", "2")
        await asyncio.sleep(0.3)  # what was handed out before is still sent
        seen = [pair.site.now for _ in range(20) if not await asyncio.sleep(0.02)]
        assert max(seen) <= 4


@proves("HOST_BACKLOG_LIMIT")
async def test_backlog(live_server: Server, tmp_path: Path) -> None:
    async with working(
        live_server.url, tmp_path, CONCURRENT_REQUESTS=1, CONCURRENT_REQUESTS_PER_DOMAIN=0
    ) as pair:
        pair.site.answer = lambda path: Answer(seconds=0.01)
        await pair.until(lambda: all(len(pair.site.since(0, who)) > 5 for who in "ab"))

        def share(word: str) -> float:
            """Of the long queue while the short one lasts."""
            times = [hit.t for hit in pair.site.hits if hit.path.startswith(f"/short/{word}")]
            hits = [hit for hit in pair.site.hits if times[0] <= hit.t <= times[-1]]
            return sum(hit.path.startswith("/p/") for hit in hits) / len(hits)

        async def short(word: str) -> float:
            pair.spiders[0].links = [
                f"http://127.0.0.2:{pair.site.port}/short/{word}/{n}" for n in range(30)
            ]
            await asyncio.sleep(0.05)
            pair.spiders[0].links = []
            await pair.until(
                lambda: sum(hit.path.startswith(f"/short/{word}") for hit in pair.site.hits) >= 30
            )
            return share(word)

        assert await short("before") > 0.25
        await pair.holds("HOST_BACKLOG_LIMIT", "500")
        assert await short("after") < 0.2


@proves("CIRCUIT_FAILURE_THRESHOLD", "CIRCUIT_COOLDOWN")
async def test_circuit(live_server: Server, tmp_path: Path) -> None:
    async with working(
        live_server.url,
        tmp_path,
        CIRCUIT_FAILURE_THRESHOLD=0,
        CIRCUIT_COOLDOWN=0.5,
        CONCURRENT_REQUESTS=2,
        RETRY_STATUS_CODES="429",
    ) as pair:
        key = f"{{t:0}}:host:127.0.0.1:{pair.site.port}"
        pair.site.answer = lambda path: Answer(status=500, seconds=0.01)
        count = len(pair.site.hits)
        await pair.until(lambda: len(pair.site.hits) > count + 40)
        assert await pair.client.hget(key, "opens") is None, "it was off"
        await pair.holds("CIRCUIT_COOLDOWN", "600")
        await pair.holds("CIRCUIT_FAILURE_THRESHOLD", "5")
        for _ in range(200):
            if opens := await pair.client.hget(key, "open_until"):
                break
            await asyncio.sleep(0.01)
        assert opens
        clock = int(await pair.client.hget("{t:0}:clock", "log"))
        assert int(opens) - clock > 500_000, "the new cooldown"
        await asyncio.sleep(0.2)
        count = len(pair.site.hits)
        await asyncio.sleep(0.4)
        assert len(pair.site.hits) == count, "both nodes leave it alone"


@proves("AUTOTHROTTLE_ENABLED", "AUTOTHROTTLE_START_DELAY", "AUTOTHROTTLE_MAX_DELAY")
async def test_throttle(live_server: Server, tmp_path: Path) -> None:
    async with working(
        live_server.url, tmp_path, CIRCUIT_FAILURE_THRESHOLD=0, RETRY_STATUS_CODES="429"
    ) as pair:
        host = f"127.0.0.1:{pair.site.port}"
        await pair.holds("AUTOTHROTTLE_START_DELAY", "0.15")
        await pair.holds("AUTOTHROTTLE_MAX_DELAY", "0.2")
        await pair.holds("AUTOTHROTTLE_ENABLED", "true")
        assert 150 < min(await reserved(pair, host, 2)) <= 175
        pair.site.answer = lambda path: Answer(status=500, seconds=0.01)

        async def gap(least: float, most: float) -> None:
            for _ in range(600):
                found = float(await pair.client.hget(f"{{t:0}}:host:{host}", "auto") or 0)
                if least <= found <= most:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError(f"the throttle has found {found}")

        await gap(200, 200)
        await pair.holds("AUTOTHROTTLE_MAX_DELAY", "0.3")
        await gap(300, 300)
        at = await pair.holds("AUTOTHROTTLE_ENABLED", "false")
        await pair.until(lambda: len(pair.site.since(at)) > 40)
