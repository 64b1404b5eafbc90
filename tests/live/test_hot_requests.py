"""What decides about single requests and answers changes in two nodes in the middle of a run."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.live.pair import Answer, Pair, working
from tests.live.proofs import proves
from tests.servers import Server

from orbweb.errors import ConfigError
from orbweb.model.reasons import Reason


async def both(pair: Pair, count: Callable[[int], int], more: int = 2, seconds: float = 4) -> None:
    """Wait until a count of each node has grown."""
    before = [count(node) for node in (0, 1)]
    await pair.until(lambda: all(count(node) >= before[node] + more for node in (0, 1)), seconds)


def reason(pair: Pair, wanted: Reason) -> Callable[[int], int]:
    return lambda node: pair.spiders[node].scheduler.stats.reasons[wanted]


@contextmanager
def deaf_hosts() -> Iterator[list[str]]:
    """Pages of a server that takes no more connections: its queue of them is full.

    It has twelve names, since a node that is busy leaves a host to the one that prefers it.
    """
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.create_server(("0.0.0.0", 0), backlog=1))
        port = deaf.getsockname()[1]
        for _ in range(8):
            each = stack.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        yield [f"http://127.0.0.{n}:{port}/" for n in range(9, 21)]


def stat(pair: Pair, name: str) -> Callable[[int], int]:
    return lambda node: pair.spiders[node].scheduler.stats.get(name)


@proves("DEPTH_LIMIT", "URL_LENGTH_LIMIT", "ALLOWED_DOMAINS", "EXCLUDE_URLS", "INCLUDE_URLS")
async def test_links(live_server: Server, tmp_path: Path) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.005) as pair:
        base = pair.site.url
        for spider in pair.spiders:
            spider.links = [f"{base}/deep?{'x' * 50}"]
        await pair.until(lambda: any(hit.path == "/deep" for hit in pair.site.hits))
        await pair.holds("DEPTH_LIMIT", "1")
        await both(pair, reason(pair, Reason.DEPTH_LIMIT))
        await pair.holds("DEPTH_LIMIT", "0")
        await pair.holds("URL_LENGTH_LIMIT", "60")
        await both(pair, reason(pair, Reason.URL_LENGTH))
        await pair.holds("URL_LENGTH_LIMIT", "0")
        await pair.holds("ALLOWED_DOMAINS", "shop.example")
        await both(pair, reason(pair, Reason.OFFSITE))
        await pair.holds("ALLOWED_DOMAINS", "")
        at = await pair.holds("EXCLUDE_URLS", "/deep,/p/.*7$")
        await both(pair, reason(pair, Reason.EXCLUDED))
        await asyncio.sleep(0.6)
        late = [hit.path for hit in pair.site.since(at + 0.4)]
        assert late
        assert not [path for path in late if path == "/deep" or path.endswith("7")], "queued ones"
        await pair.holds("EXCLUDE_URLS", "")
        for spider in pair.spiders:
            spider.links = []
        at = await pair.holds("INCLUDE_URLS", "/p/.*[13]$")
        await pair.both_fetch(at + 0.4)
        assert {hit.path[-1] for hit in pair.site.since(at + 0.4)} <= {"1", "3"}


@proves(
    *("RETRY_STATUS_CODES", "ACCEPT_STATUS_CODES", "SPIDER_MAX_RETRY_TIMES"),
    *("SPIDER_RETRY_INTERVAL", "RETRY_BACKOFF", "RETRY_MAX_INTERVAL", "RETRY_AFTER_MAX"),
)
async def test_retries(live_server: Server, tmp_path: Path) -> None:
    async with working(
        live_server.url,
        tmp_path,
        SPIDER_RETRY_INTERVAL=0.02,
        RETRY_BACKOFF=1,
        RETRY_AFTER_MAX=0,
        CIRCUIT_FAILURE_THRESHOLD=0,
        DOWNLOAD_DELAY=0.005,
        RETRY_STATUS_CODES="504",
    ) as pair:
        pair.site.answer = lambda path: Answer(status=500, headers={"Retry-After": "100"})
        await both(pair, stat(pair, "request_failed"))
        assert [stat(pair, "retry")(node) for node in (0, 1)] == [0, 0]
        await pair.holds("RETRY_STATUS_CODES", "500")
        await both(pair, stat(pair, "retry"))

        async def delays() -> list[float]:
            """How long (s) requests that wait for a retry still wait."""
            (key,) = [key async for key in pair.client.scan_iter("{t:0}:run:*:delayed")] or [b""]
            meta = key.replace(b":delayed", b":meta")
            clock = int(await pair.client.hget(meta, "log") or 0)
            found = await pair.client.zrange(key, 0, -1, withscores=True)
            return [(at - clock) / 1000 for _, at in found]

        async def waits(least: float, most: float) -> None:
            await both(pair, stat(pair, "retry"))
            for _ in range(200):
                if any(least <= wait <= most for wait in await delays()):
                    return
                await asyncio.sleep(0.01)
            raise AssertionError(f"they wait {await delays()}")

        await pair.holds("RETRY_BACKOFF", "1000")
        await waits(5, 40)
        await pair.holds("SPIDER_RETRY_INTERVAL", "200")
        await waits(90, 300)
        await pair.holds("RETRY_MAX_INTERVAL", "250")
        await pair.holds("SPIDER_RETRY_INTERVAL", "240")
        await both(pair, stat(pair, "retry"))
        assert max(await delays()) <= 300.5
        await pair.holds("SPIDER_MAX_RETRY_TIMES", "0")
        before = [stat(pair, "retry")(node) for node in (0, 1)]
        await both(pair, stat(pair, "request_failed"), 4)
        after = [stat(pair, "retry")(node) for node in (0, 1)]
        assert max(b - a for a, b in zip(before, after, strict=True)) <= 2, "those under way"
        await pair.holds("ACCEPT_STATUS_CODES", "500")
        await both(pair, stat(pair, "request_ok"))
        pair.site.answer = lambda path: Answer(status=503, headers={"Retry-After": "100"})
        await both(pair, stat(pair, "request_failed"))
        await pair.holds("RETRY_AFTER_MAX", "3600")
        await asyncio.sleep(0.3)
        count = len(pair.site.hits)
        await asyncio.sleep(0.4)
        assert len(pair.site.hits) == count, "both leave the host alone as it asks for"


@proves(
    *("REQUEST_TIMEOUT", "READ_TIMEOUT", "CONNECT_TIMEOUT", "USER_AGENT"),
    *("MAX_RESPONSE_SIZE", "MAX_REDIRECTS"),
)
async def test_fetches(live_server: Server, tmp_path: Path) -> None:
    async with working(
        live_server.url,
        tmp_path,
        pages=10_000,
        CIRCUIT_FAILURE_THRESHOLD=0,
        SPIDER_MAX_RETRY_TIMES=0,
        CONCURRENT_REQUESTS=4,
        DOWNLOAD_DELAY=0.005,
        ROBOTS_OBEY="false",
    ) as pair:
        host = f"127.0.0.1:{pair.site.port}"
        at = await pair.holds("USER_AGENT", "mybot/2.0")
        await pair.both_fetch(at, lambda hit: hit.agent == "mybot/2.0")
        at = await pair.holds(f"host:{host}/USER_AGENT", "guest/1.0")
        await pair.both_fetch(at, lambda hit: hit.agent == "guest/1.0")
        pair.site.answer = lambda path: Answer(body="x" * 5000)
        await pair.holds("MAX_RESPONSE_SIZE", "4000")
        await both(pair, reason(pair, Reason.TOO_LARGE))
        await pair.holds(f"host:{host}/MAX_RESPONSE_SIZE", "1MiB")
        await both(pair, stat(pair, "request_ok"))
        pair.site.answer = lambda path: (
            Answer(status=302, headers={"Location": path.replace("/p/", "/to/")})
            if path.startswith("/p/")
            else Answer()
        )
        at = time.monotonic()
        await pair.both_fetch(at, lambda hit: hit.path.startswith("/to/"))
        at = await pair.holds("MAX_REDIRECTS", "0")
        await both(pair, stat(pair, "request_ok"), 20)
        late = [hit.path.partition("/p/")[1] for hit in pair.site.since(at + 0.1)]
        assert late.count("") <= 3, "those that had redirected before"
        pair.site.answer = lambda path: Answer(seconds=0.7)
        await pair.holds("READ_TIMEOUT", "0.2")
        await both(pair, reason(pair, Reason.TIMEOUT))
        await pair.holds("READ_TIMEOUT", "20")
        await both(pair, stat(pair, "request_ok"))
        await pair.holds("REQUEST_TIMEOUT", "0.2")
        await both(pair, reason(pair, Reason.TIMEOUT))
        await pair.holds(f"host:{host}/REQUEST_TIMEOUT", "20")
        await both(pair, stat(pair, "request_ok"))
        await pair.holds("REQUEST_TIMEOUT", "20")
        pair.site.answer = lambda path: Answer()
        with deaf_hosts() as links:
            await pair.holds("CONNECT_TIMEOUT", "0.2")
            for spider in pair.spiders:
                spider.links = links
            await both(pair, reason(pair, Reason.TIMEOUT), 1, 6)


@proves("LOG_LEVEL", "LOG_LEVELS")
async def test_log(live_server: Server, tmp_path: Path) -> None:
    loggers = {name: logging.getLogger(name) for name in ("orbweb.engine", "orbweb.keeper")}
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.05) as pair:
        assert not loggers["orbweb.engine"].isEnabledFor(logging.DEBUG)
        await pair.holds("LOG_LEVEL", "ERROR")
        assert not loggers["orbweb.engine"].isEnabledFor(logging.WARNING)
        await pair.holds("LOG_LEVELS", "orbweb.keeper=DEBUG")
        assert loggers["orbweb.keeper"].isEnabledFor(logging.DEBUG)
        assert not loggers["orbweb.engine"].isEnabledFor(logging.WARNING)
        await pair.holds("LOG_LEVELS", "")
        assert not loggers["orbweb.keeper"].isEnabledFor(logging.WARNING)
        with pytest.raises(ConfigError, match="LOUD"):
            await pair.set("LOG_LEVELS", "orbweb.keeper=LOUD")


@proves("SPIDER_MAX_RUNTIME")
async def test_runtime(live_server: Server, tmp_path: Path) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.05) as pair:
        await pair.holds("SPIDER_MAX_RUNTIME", "0.5")
        await pair.until(lambda: all(_ended(spider) for spider in pair.spiders))


def _ended(spider: object) -> bool:
    return bool(spider._engine.shutdown.requested)  # type: ignore[attr-defined]
