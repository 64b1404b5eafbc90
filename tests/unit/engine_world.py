"""A small world for engines: virtual time, a frontier in memory, pages from a dict."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from orbweb.download.base import DownloadError, Dropped, Failed, Fetched, Meeting, Redirected
from orbweb.engine.engine import Engine, EngineParts
from orbweb.engine.options import EngineOptions, World
from orbweb.engine.report import RunReport
from orbweb.engine.threads import KeeperTask
from orbweb.frontier.base import Frontier, RunConfig
from orbweb.frontier.items import MemoryItemBook
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.memory_state import MemoryShard
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import host_of
from orbweb.pipelines.base import BasePipeline
from orbweb.pipelines.buffer import ItemBuffer
from orbweb.spiders.base import BaseParser
from orbweb.testing.virtual import Timeline, VirtualLoop

SITE = "http://site.test"
HOUR_MS = 3_600_000


async def run_inline(func: Callable[..., Any], /, *args: Any) -> Any:
    """`run_blocking` without threads."""
    return func(*args)


class ListPipeline(BasePipeline):
    """Keeps rows in a list."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    async def save_items(self, table: str, items: list[dict[str, Any]]) -> bool:
        self.rows += [{"_table": table, **item} for item in items]
        return True


class FakeChain:
    """Answers from a dict of URL to body, status, or a function of the request."""

    def __init__(self, pages: Mapping[str, Any], seconds: float = 0.1) -> None:
        self.pages = dict(pages)
        self.seconds = seconds
        self.asked: list[str] = []
        self.most_at_once = 0
        self._at_once = 0

    async def download(
        self,
        request: Request,
        *,
        download_midware: Any = None,
        gate: Any,
        admit: Any = None,
    ):
        if not request.auto_request:
            return Fetched(request, None)
        if download_midware is not None:
            request = download_midware(request) or request
        await gate.ready()
        await gate.enter()
        gate.sent()
        self.asked.append(request.url)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self._at_once -= 1
        page = self.pages.get(request.url, 404)
        if callable(page):
            page = page(request)
        pause = page.retry_after if isinstance(page, Failed) else None
        healthy = not isinstance(page, Failed) and (not isinstance(page, int) or page < 500)
        await gate.met(Meeting(host_of(request.url), healthy, retry_after=pause))
        if isinstance(page, (Dropped, Failed)):
            return replace(page, request=request)
        if isinstance(page, Redirected):
            return page
        if isinstance(page, int):
            error = DownloadError(Reason.STATUS_REJECTED, f"{page}", retry=page >= 500)
            return Failed(request, Reason.STATUS_REJECTED, error, retry=page >= 500)
        return Fetched(request, Response(request.url, 200, page.encode(), request=request))

    async def sitemaps(self, url: str, gate: Any) -> tuple[str, ...]:
        await gate.ready()
        return (f"{SITE}/sitemap.xml",)

    async def close(self) -> None:
        return None


class CopyCodec:
    """Requests travel as copies."""

    def encode(self, request: Request) -> Request:
        return request.copy()

    def decode(self, payload: Any) -> Request:
        return payload.copy()


@dataclass
class Town:
    """One site and one store; nodes are engines in virtual time."""

    pages: Mapping[str, Any] = field(default_factory=dict)
    config: RunConfig = field(default_factory=lambda: RunConfig(lease_ms=10_000))
    seconds: float = 0.1
    pipelines: dict[str, BasePipeline] = field(default_factory=lambda: {"list": ListPipeline()})
    codec: Any = field(default_factory=CopyCodec)

    def __post_init__(self) -> None:
        self.rng = random.Random(1)
        self.timeline = Timeline(self.rng)
        self.shard = MemoryShard(lambda: self.timeline.now_ms)
        self.chain = FakeChain(self.pages, self.seconds)
        self.errors: list[str] = []
        self.nodes = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        pipeline = self.pipelines["list"]
        assert isinstance(pipeline, ListPipeline)
        return pipeline.rows

    def frontier(self) -> MemoryFrontier:
        return MemoryFrontier(self.shard, "job")

    def node(
        self,
        spider: BaseParser,
        *,
        frontier: Any = None,
        collect: Any = None,
        items: Any = None,
        crawl_log: Any = None,
        totals: Any = None,
        **options: Any,
    ) -> Callable[[], Engine]:
        """How to build an engine, on the loop on which it will run."""
        store = frontier or self.frontier()
        self.nodes += 1
        name = f"node{self.nodes}"

        @asynccontextmanager
        async def connect(epoch: str) -> AsyncIterator[Frontier]:
            yield store

        def build() -> Engine:
            options.setdefault("retry_interval_seconds", 1.0)
            return Engine(
                EngineParts(
                    frontier=store,
                    control=store,
                    spider=spider,
                    spider_base=BaseParser,
                    chain=self.chain,
                    buffer=ItemBuffer(
                        self.pipelines, rng=self.rng, run_blocking=run_inline, flush_interval=0.05
                    ),
                    codec=self.codec,
                    options=EngineOptions(
                        node=name, spider=spider.name, run=self.config, **options
                    ),
                    world=World(
                        clock=self.timeline.seconds,
                        rng=self.rng,
                        run_blocking=run_inline,
                        background=KeeperTask(),
                        connect=connect,
                    ),
                    collect=collect,
                    tasks=spider if options.get("tasks") else None,  # type: ignore[arg-type]
                    items=items or MemoryItemBook(),
                    totals=totals,
                    crawl_log=crawl_log,
                    wall_ms=lambda: int(self.timeline.now_ms),
                )
            )

        return build

    def run(self, *builders: Callable[[], Engine], hours: float = 1.0) -> list[RunReport]:
        """Run nodes side by side to their ends."""
        return self.drive([self.start(build) for build in builders], hours)

    def start(
        self, build: Callable[[], Engine], meanwhile: Callable[[Engine], Any] | None = None
    ) -> asyncio.Task[RunReport]:
        """Begin a node on a loop of its own; `meanwhile` is a coroutine beside it."""
        loop = VirtualLoop(self.timeline)

        async def main() -> RunReport:
            engine = build()
            beside = loop.create_task(meanwhile(engine)) if meanwhile else None
            report = await engine.run()
            if beside is not None:
                beside.cancel()
            return report

        return loop.create_task(main())

    def drive(self, tasks: list[Any], hours: float = 1.0) -> list[RunReport]:
        """Let time pass until the nodes have ended."""
        until = self.timeline.now_ms + int(hours * HOUR_MS)
        ended = self.timeline.run(until, lambda: all(task.done() for task in tasks))
        for loop in list(self.timeline.loops):
            self.errors += loop.errors
            end(loop)
        assert ended, "the nodes did not end"
        assert self.errors == []
        return [task.result() for task in tasks]


def end(loop: VirtualLoop) -> None:
    """What is left of a loop is unwound, and the loop is closed."""
    loop.unwind()
    loop.close()


def links(*names: str) -> str:
    """A page with links."""
    return "<html>" + "".join(f'<a href="/{name}">x</a>' for name in names) + "</html>"


class Crawler(BaseParser):
    """Follows all links and yields one item a page."""

    name = "crawler"

    def __init__(self, *seeds: str) -> None:
        self.seeds = seeds or ("a",)

    def start_requests(self) -> Any:
        for name in self.seeds:
            yield Request(f"{SITE}/{name}")

    def parse(self, request: Request, response: Response) -> Any:
        yield {"url": request.url}
        yield from response.follow_all(css="a")
