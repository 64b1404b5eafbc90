"""A scrape target: a small HTTP server with `/metrics` and `/healthz`."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from orbweb.errors import ConfigError
from orbweb.metrics.exposition import CONTENT_TYPE

Page = Callable[[], Awaitable[str]]


@asynccontextmanager
async def serving(page: Page, host: str, port: int) -> AsyncIterator[int]:
    """Serve for as long as the context lives; gives the port (0 asks for any that is free).

    Raises `ConfigError` when the address cannot be had.
    """

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=await page(), headers={"Content-Type": CONTENT_TYPE})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(f"{host}:{port} cannot be served: {_why(error)}") from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "something else listens there; port 0 takes one that is free"
    return error.strerror or str(error)
