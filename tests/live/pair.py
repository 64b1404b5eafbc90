"""Two nodes of one run at work on a web site, whose live values a test changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web
from redis.asyncio import Redis

import orbweb
from orbweb.config.place import Place
from orbweb.config.values import Canary
from orbweb.frontier.configbook import ConfigBook
from orbweb.frontier.operator import Author
from orbweb.spiders.build import crawl
from orbweb.spiders.live_admin import Done, LiveAdmin, NodeAck
from orbweb.spiders.start import Start, settings_of

LI = Author("li", "a test")
WITHIN_SECONDS = 2.0
"""A change must be applied by then."""
PREFIX = "t"


class Hit(NamedTuple):
    """One request that the site received."""

    t: float
    node: str
    path: str
    agent: str
    host: str
    peer: str
    """The address that it came from."""


class Answer(NamedTuple):
    """What the site says."""

    status: int = 200
    body: str = "page"
    seconds: float = 0.0
    """It takes so long to say it."""
    headers: Mapping[str, str] = {}


class Site:
    """Pages without end; `answer` may be replaced at any time. Its log is the judge."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.now = 0
        """Requests under way."""
        self.answer: Callable[[str], Answer] = lambda path: Answer()
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{tail:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "0.0.0.0", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self.url = f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        assert self._runner
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        headers = request.headers
        self.hits.append(
            Hit(
                time.monotonic(),
                headers.get("x-node", ""),
                request.path,
                headers.get("User-Agent", ""),
                headers.get("Host", ""),
                request.remote or "",
            )
        )
        answer = self.answer(request.path)
        self.now += 1
        try:
            await asyncio.sleep(answer.seconds)
        finally:
            self.now -= 1
        return web.Response(status=answer.status, text=answer.body, headers=answer.headers)

    def since(self, t: float, node: str | None = None) -> list[Hit]:
        return [hit for hit in self.hits if hit.t >= t and node in (None, hit.node)]


class Walker(orbweb.Spider):
    """Fetches what it is given; its items say what its live values were."""

    name = "walker"
    live = {"price_v2": False, "label": "old"}  # noqa: RUF012

    def __init__(self, who: str, urls: list[str]) -> None:
        self.items: list[dict[str, Any]] = []
        super().__init__(item_handler=self.items.extend)
        self.who = who
        self.urls = urls
        self.told: list[Any] = []
        self.links: list[str] = []

    def start_requests(self) -> Iterator[orbweb.Request]:
        for place, url in enumerate(self.urls):  # what is tried again comes before what is new
            yield orbweb.Request(url, filter_repeat=False, priority=place)

    async def download_midware(self, request: orbweb.Request) -> orbweb.Request:
        request.requests_kwargs["headers"] = {"x-node": self.who}
        return request

    async def parse(self, request: orbweb.Request, response: orbweb.Response) -> Any:
        yield {"at": time.monotonic(), "price_v2": self.live["price_v2"], "who": self.who}
        for link in self.links:
            yield orbweb.Request(link, filter_repeat=False, priority=-1)

    @orbweb.on_config("price_v2", "label")
    async def changed(self, value: Any, key: str) -> None:
        if value == "bad":
            raise ValueError("this label will not do")
        self.told.append((key, value))


class Pair:
    """Two nodes, the site, and the operator."""

    def __init__(self, site: Site, client: Redis, spiders: list[Walker]) -> None:
        self.site = site
        self.client = client
        self.spiders = spiders
        self.book = ConfigBook(client, PREFIX)
        self.admin = LiveAdmin(self.book)
        self.reports: list[Any] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.urls: list[str] = []
        self.settings: dict[str, str] = {}

    async def set(
        self, place: str, value: Any, *, for_ms: int = 0, canary: Canary | None = None
    ) -> Done:
        return await self.admin.set(
            Place.read(place), value, LI, for_ms=for_ms, canary=canary, textual=True
        )

    async def acked(self, version: int, seconds: float = WITHIN_SECONDS) -> list[NodeAck]:
        """What both nodes say of a version; they must say it in time."""
        deadline = time.monotonic() + seconds
        while True:
            acks = [ack for ack in await self.admin.acks() if ack.said.version >= version]
            if len(acks) == len(self.spiders):
                return acks
            assert time.monotonic() < deadline, f"only {len(acks)} nodes have acknowledged"
            await asyncio.sleep(0.02)

    async def holds(self, place: str, value: Any, **how: Any) -> float:
        """Set a value; both nodes must say in time that it holds. Returns when that was."""
        done = await self.set(place, value, **how)
        for ack in await self.acked(done.version):
            assert not any(ack.said.keys.values()), ack.said.keys
        return time.monotonic()

    async def until(self, what: Callable[[], Any], seconds: float = WITHIN_SECONDS) -> None:
        """Wait for something that must come in time."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, "it did not come in time"
            await asyncio.sleep(0.01)

    async def both_fetch(self, since: float, what: Callable[[Hit], bool] = bool) -> None:
        """Both nodes send something of that kind since then."""

        def done() -> bool:
            nodes = {hit.node for hit in self.site.since(since) if what(hit)}
            return nodes >= {spider.who for spider in self.spiders}

        await self.until(done)

    def begin(self, who: str, directory: Path, **settings: Any) -> Walker:
        """Start a node."""
        spider = Walker(who, self.urls)
        folder = directory / who
        folder.mkdir(exist_ok=True)
        changes = {**self.settings, **{name: str(value) for name, value in settings.items()}}
        start = Start(overrides=changes, directory=folder, live=False)
        self.spiders.append(spider)
        self.tasks.append(asyncio.create_task(crawl(spider, settings_of(spider, start), start)))
        return spider

    async def join(self, directory: Path, **settings: Any) -> Walker:
        """Start a third node."""
        return self.begin("c", directory, **settings)


@asynccontextmanager
async def working(
    url: str, directory: Path, *, pages: int = 3000, hosts: int = 1, **settings: Any
) -> AsyncIterator[Pair]:
    """Two nodes that have both begun to fetch; they are stopped in the end."""
    site = Site()
    await site.start()
    names = [f"127.0.0.{n}" for n in range(1, hosts + 1)]
    urls = [f"http://{names[n % hosts]}:{site.port}/p/{n}" for n in range(pages)]
    client = Redis.from_url(url)
    await client.flushall()
    pair = Pair(site, client, [])
    pair.urls = urls
    pair.settings = {
        "REDIS_URL": url,
        "REDIS_KEY_PREFIX": PREFIX,
        "CRAWL_LOG_ENABLE": "false",
        "RUN_SUMMARY_ENABLE": "false",
        "LOG_LEVEL": "INFO",
        **{name: str(value) for name, value in settings.items()},
    }
    try:
        for who in "ab":
            pair.begin(who, directory)
        await pair.until(lambda: {hit.node for hit in site.hits} == {"a", "b"}, 10)
        yield pair
    finally:
        for spider in pair.spiders:
            spider.stop()
        pair.reports = await asyncio.gather(*pair.tasks, return_exceptions=True)
        await client.aclose()
        await site.stop()
    for report in pair.reports:
        assert not isinstance(report, BaseException), report
        assert report.exit_code in (0, 75), report


def beats(values: Mapping[bytes, bytes]) -> list[dict[str, Any]]:
    found = []
    for record in values.values():
        with contextlib.suppress(ValueError):
            found.append(json.loads(record.split(b"\n", 1)[1]))
    return found
