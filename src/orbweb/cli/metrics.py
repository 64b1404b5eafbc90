"""What `orbweb metrics …` does: show, serve, targets, and the files for Grafana and Prometheus."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar

from orbweb.cli import show
from orbweb.cli.store import existing_store
from orbweb.errors import ConfigError
from orbweb.frontier.overview import Overview
from orbweb.frontier.servers import Servers, reach
from orbweb.metrics.exporter import Exporter
from orbweb.metrics.targets import LOOPBACK, write_targets
from orbweb.settings import Settings

T = TypeVar("T")

SHIPPED = files("orbweb.metrics").joinpath("shipped")


def show_metrics(settings: Settings, *, as_json: bool) -> None:
    """Print the metrics of the fleet as Prometheus reads them."""
    found = _once(settings, lambda exporter: exporter.exposition())
    if as_json:
        show.as_json(found.records())
    else:
        sys.stdout.write(found.text())


def targets(settings: Settings, folder: Path | None, *, as_json: bool) -> None:
    """Print the scrape targets of nodes, as JSON in Prometheus' form, or write that to a file."""
    found = _once(settings, lambda exporter: exporter.targets())
    addresses = [address for group in found for address in group["targets"]]
    if folder is not None:
        path = write_targets(folder, found)
        show.note(f"{path}: {show.counted(len(addresses), 'node')} with METRICS_PORT")
    if as_json:
        show.as_json(found)
    elif folder is None:
        print("\n".join(addresses) or "no node with METRICS_PORT spoke lately")


def serve(settings: Settings, host: str, port: int) -> None:
    """Serve the metrics of the fleet until SIGINT or SIGTERM."""
    with existing_store(settings, Path.cwd()) as url:
        asyncio.run(_serve(url, settings, host, port))


def write_shipped(kind: str, folder: Path, *, as_json: bool) -> None:
    """Write the dashboards (`grafana`) or the alert rules (`rules`) that come with Orbweb."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for source in sorted(_shipped(kind), key=lambda each: each.name):
        path = folder / source.name
        text = source.read_text(encoding="utf-8")
        if path.is_file() and path.read_text(encoding="utf-8") not in ("", text):
            raise ConfigError(
                f"{path} is there already and differs: it may hold changes of yours. Move it away, "
                "or choose another folder with --out"
            )
        path.write_text(text, encoding="utf-8")
        written.append(str(path))
    if as_json:
        print(json.dumps(written))
        return
    for name in written:
        print(name)
    show.note(f"undo: rm {' '.join(written)}")


def _shipped(kind: str) -> list[Traversable]:
    return list(SHIPPED.joinpath(kind).iterdir())


def _once(settings: Settings, ask: Callable[[Exporter], Awaitable[T]]) -> T:
    """One look at the store. Raises `StoreUnavailable` where an exporter would go on."""

    async def look(url: str) -> T:
        servers = await _reach(url, settings)
        try:
            return await ask(Exporter(lambda: _overview(servers, settings)))
        finally:
            await servers.aclose()

    with existing_store(settings, Path.cwd()) as url:
        return asyncio.run(look(url))


async def _serve(url: str, settings: Settings, host: str, port: int) -> None:
    from orbweb.metrics.server import serving

    opened: list[Servers] = []

    async def connect() -> Overview:
        opened.append(await _reach(url, settings))
        return await _overview(opened[-1], settings)

    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    exporter = Exporter(connect)
    try:
        async with serving(exporter.page, host, port, exporter.targets) as own:
            print(f"http://{host}:{own}/metrics", flush=True)
            if not host.startswith(LOOPBACK):
                show.note("anybody who can reach this address reads names of jobs and hosts")
            await ended.wait()
    finally:
        for servers in opened:
            await servers.aclose()


async def _reach(url: str, settings: Settings) -> Servers:
    return await reach(url, settings["REDIS_KEY_PREFIX"], settings["STORE_TIMEOUT"])


async def _overview(servers: Servers, settings: Settings) -> Overview:
    return Overview(servers, settings["REDIS_KEY_PREFIX"])
