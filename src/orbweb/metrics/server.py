"""A scrape target: a small HTTP server with `/metrics`, `/healthz` and `/targets`."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from orbweb.errors import ConfigError
from orbweb.log import get_logger
from orbweb.metrics.exposition import CONTENT_TYPE, Exposition
from orbweb.metrics.targets import Target, address

log = get_logger("orbweb.metrics")

Page = Callable[[], Awaitable[str]]
Targets = Callable[[], Awaitable[Sequence[Target]]]


@asynccontextmanager
async def serving(
    page: Page, host: str, port: int, targets: Targets | None = None, *, or_free: bool = False
) -> AsyncIterator[int]:
    """Serve for as long as the context lives; gives the port (0 asks for any that is free).

    `targets` are told to Prometheus' `http_sd_configs`. `or_free`: where the port is taken, a free
    one will do. Raises `ConfigError` when the address cannot be had.
    """

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=await page(), headers={"Content-Type": CONTENT_TYPE})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def discovery(request: web.Request) -> web.Response:
        return web.json_response(await targets() if targets is not None else [])

    async def root(request: web.Request) -> web.Response:
        pages = ["/metrics", "/healthz", *(["/targets"] if targets is not None else [])]
        return web.Response(text=f"Orbweb's metrics; there are: {', '.join(pages)}\n")

    app = web.Application()
    app.router.add_get("/", root)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    if targets is not None:
        app.router.add_get("/targets", discovery)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await _listen(runner, host, port, or_free=or_free)
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def own_target(gather: Callable[[], Exposition], host: str, port: int) -> AsyncIterator[str]:
    """Serve the node's metrics; gives the address under which it tells others of them.

    A port that is taken is replaced by a free one, as several nodes of a machine have the same
    settings. Raises `ConfigError` for a host that is none of this machine.
    """

    async def page() -> str:
        return gather().text()

    async with serving(page, host, port, or_free=True) as own:
        told = address(host, own)
        log.info("metrics of this node: http://%s/metrics", told)
        yield told


async def _listen(runner: web.AppRunner, host: str, port: int, *, or_free: bool) -> None:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        if not (or_free and port and error.errno == errno.EADDRINUSE):
            raise ConfigError(f"{host}:{port} cannot be served: {_why(error)}") from error
        log.warning("port %d is taken, so the metrics of this node get a free one", port)
        await web.TCPSite(runner, host, 0).start()


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "something else listens there; port 0 takes one that is free"
    return error.strerror or str(error)
