"""A small web site for demos, tests and measurements, with the faults that real sites have.

    /            a shop (`orbweb.testing.shop`): lists, details, duplicates by query order,
                 redirects (/p/7), robots.txt, a 429, a slow, a broken and a failing page
    /tree        ?n=0&of=4000[&roots=4&fan=4&cross=2&items=1]   pages that link to pages
    /flat        ?n=0[&items=1]                                 pages without links
    /news        ?p=1[&details=10], /article?id=1               lists of details
    /bench       ?n=0&of=2000[&links=20&size=10240]             pages of a fixed weight
    /status      ?code=503[&times=2&retry_after=1&id=x]         fails the first `times` (0: always)
    /hops        ?n=3                                           n redirects before the page
    /echo                                                       the request, as JSON

Every page takes `delay=SECONDS`. Everything else is 404.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from aiohttp import web

from orbweb.testing import pages, shop
from orbweb.testing.origin import Hit, OriginLog, OriginWriter

__all__ = ["DemoSite", "OriginLog", "SiteThread", "main"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class DemoSite:
    """The site, served on the running event loop between `start` and `stop`, or as `async with`.

    Each request is in the log file, whole, before its answer is sent.
    """

    def __init__(
        self,
        *,
        log: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        latency_seconds: float = 0.0,
        also_on: Sequence[str] = (),
    ) -> None:
        """`port` 0 takes a free one. `latency_seconds` is added to every page.

        `also_on`: further addresses of this machine, served on the same port.
        """
        self._host = host
        self._also_on = also_on
        self._port = port
        self._latency_seconds = latency_seconds
        self._log_path = log
        self._log: OriginWriter | None = None
        self._asked: Counter[str] = Counter()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """`http://host:port`, without a slash at the end."""
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        if self._log_path is not None:
            self._log = OriginWriter(self._log_path)
        app = web.Application(middlewares=[self._observe])
        app.router.add_route("*", "/echo", self._echo)
        for path, handler in self._pages().items():
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, backlog=1024).start()
        self._port = self._runner.addresses[0][1]
        for address in self._also_on:
            await web.TCPSite(self._runner, address, self._port, backlog=1024).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._log is not None:
            self._log.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _pages(self) -> dict[str, Handler]:
        return {
            "/": self._home,
            "/about": self._about,
            "/list": self._list,
            "/product": self._product,
            "/p/{number}": self._short_link,
            "/admin": self._admin,
            "/robots.txt": self._robots,
            "/tree": self._tree,
            "/flat": self._flat,
            "/news": self._news,
            "/article": self._article,
            "/bench": self._bench,
            "/status": self._status,
            "/hops": self._hops,
        }

    @web.middleware
    async def _observe(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        arrived = time.time()
        delay = self._latency_seconds + _number(request, "delay", 0.0)
        if delay > 0:
            await asyncio.sleep(delay)
        response: web.StreamResponse
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=error.text, headers=error.headers)
        if self._log is not None:
            self._log.write(
                Hit(
                    t=arrived,
                    end=time.time(),
                    host=request.host,
                    method=request.method,
                    path=request.path_qs,
                    status=response.status,
                    peer=request.remote or "",
                )
            )
        return response

    async def _home(self, request: web.Request) -> web.Response:
        return _html(shop.home())

    async def _about(self, request: web.Request) -> web.Response:
        return _html(shop.about())

    async def _list(self, request: web.Request) -> web.Response:
        return _html(shop.listing(request.query.get("category", ""), _whole(request, "page", 1)))

    async def _product(self, request: web.Request) -> web.Response:
        number = _whole(request, "id", 0)
        if number == shop.FAILING:
            return web.Response(status=500, text="this product always fails")
        if number == shop.BUSY and self._times_asked(request) == 1:
            return web.Response(status=429, text="slow down", headers={"Retry-After": "1"})
        if number == shop.SLOW:
            await asyncio.sleep(2)
        if number == shop.BROKEN:
            return web.Response(
                body=shop.broken_product(), content_type="text/html", charset="utf-8"
            )
        return _html(shop.product(number))

    async def _short_link(self, request: web.Request) -> web.Response:
        number = request.match_info["number"]
        if not number.isdigit() or not 1 <= int(number) <= shop.PRODUCTS:
            raise web.HTTPNotFound
        raise web.HTTPFound(shop.product_url(int(number)))

    async def _admin(self, request: web.Request) -> web.Response:
        return _html("<html><body><h1>Not for robots</h1></body></html>")

    async def _robots(self, request: web.Request) -> web.Response:
        return web.Response(text=shop.ROBOTS)

    async def _tree(self, request: web.Request) -> web.Response:
        tree = pages.Tree(
            of=_whole(request, "of", 100),
            roots=_whole(request, "roots", 4),
            fan=_whole(request, "fan", 4),
            cross=_whole(request, "cross", 2),
            items=_whole(request, "items", 1),
        )
        return _html(tree.page(_whole(request, "n", 0)))

    async def _flat(self, request: web.Request) -> web.Response:
        return _html(pages.flat(_whole(request, "n", 0), _whole(request, "items", 1)))

    async def _news(self, request: web.Request) -> web.Response:
        return _html(pages.news(_whole(request, "p", 1), _whole(request, "details", 10)))

    async def _article(self, request: web.Request) -> web.Response:
        return _html(pages.article(_whole(request, "id", 1)))

    async def _bench(self, request: web.Request) -> web.Response:
        return _html(
            pages.bench(
                _whole(request, "n", 0),
                _whole(request, "of", 2000),
                _whole(request, "links", 20),
                _whole(request, "size", 10_240),
            )
        )

    async def _status(self, request: web.Request) -> web.Response:
        times = _whole(request, "times", 0)
        if times and self._times_asked(request) > times:
            return _html("<html><body><h1>well again</h1></body></html>")
        headers = {}
        if "retry_after" in request.query:
            headers["Retry-After"] = request.query["retry_after"]
        return web.Response(status=_whole(request, "code", 500), headers=headers)

    async def _hops(self, request: web.Request) -> web.Response:
        left = _whole(request, "n", 0)
        if left > 0:
            raise web.HTTPFound(f"/hops?n={left - 1}")
        return _html("<html><body><h1>arrived</h1></body></html>")

    async def _echo(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "method": request.method,
                "path": request.path_qs,
                "headers": dict(request.headers),
                "body": (await request.read()).decode("latin-1"),
            }
        )

    def _times_asked(self, request: web.Request) -> int:
        self._asked[request.path_qs] += 1
        return self._asked[request.path_qs]


class SiteThread:
    """A `DemoSite` with an event loop and a thread of its own, between `start` and `stop`."""

    def __init__(
        self,
        *,
        log: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        latency_seconds: float = 0.0,
        also_on: Sequence[str] = (),
    ) -> None:
        """See `DemoSite`."""
        self._site = DemoSite(
            log=log, host=host, port=port, latency_seconds=latency_seconds, also_on=also_on
        )
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="demo-site", daemon=True)

    @property
    def url(self) -> str:
        return self._site.url

    def start(self) -> None:
        """Return when the site answers. Raises what kept it from starting (a taken port)."""
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        self._started.result().call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        async with self._site:
            self._started.set_result(asyncio.get_running_loop())
            await self._stop.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. The first line on stdout is the site's URL."""
    parser = argparse.ArgumentParser(
        prog="python -m orbweb.testing.site",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--log", help="append one JSON line a request to this file")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds, added to every page")
    options = parser.parse_args(arguments)
    site = DemoSite(
        log=options.log, host=options.host, port=options.port, latency_seconds=options.latency
    )
    asyncio.run(_serve_until_signal(site))


async def _serve_until_signal(site: DemoSite) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with site:
        print(site.url, flush=True)
        await stop.wait()


def _html(text: str | None) -> web.Response:
    if text is None:
        raise web.HTTPNotFound
    return web.Response(text=text, content_type="text/html", charset="utf-8")


def _whole(request: web.Request, name: str, default: int) -> int:
    return int(_number(request, name, default))


def _number(request: web.Request, name: str, default: float) -> float:
    try:
        number = float(request.query.get(name, default))
    except ValueError:
        return default
    return number if math.isfinite(number) else default


if __name__ == "__main__":
    main()
