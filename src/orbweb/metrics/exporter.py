"""The exporter of a fleet: looks at the store and gives the page that Prometheus reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from importlib import metadata

from orbweb.errors import StoreUnavailable
from orbweb.frontier.overview import Overview, StoreView
from orbweb.log import get_logger
from orbweb.metrics import catalogue as of
from orbweb.metrics.exposition import Exposition
from orbweb.metrics.fleet import tell_fleet
from orbweb.metrics.targets import Target, targets_of

log = get_logger("orbweb.metrics")

Connect = Callable[[], Awaitable[Overview]]
"""Reaches the store. Raises `StoreUnavailable` and `ConfigError`."""


class Exporter:
    """One look at the store for each page, one at a time.

    A store that is away, at the start too, is said by `orbweb_store_up`, not by an error.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._overview: Overview | None = None
        self._lock = asyncio.Lock()
        self._was_up = True

    async def page(self) -> str:
        """The metrics now, as text."""
        return (await self.exposition()).text()

    async def exposition(self) -> Exposition:
        """The metrics now."""
        text, began = Exposition(), time.monotonic()
        tell_version(text)
        view = await self._look()
        if view is None:
            text.add(of.STORE_UP, 0)
        else:
            tell_fleet(text, view, time.time())
        text.add(of.LOOK, round(time.monotonic() - began, 6))
        text.add(of.CPU, round(time.process_time(), 3))
        return text

    async def targets(self) -> list[Target]:
        """The nodes that have a scrape target of their own, as Prometheus discovers them."""
        view = await self._look()
        return [] if view is None else targets_of(view)

    async def _look(self) -> StoreView | None:
        async with self._lock:
            try:
                if self._overview is None:
                    self._overview = await self._connect()
                view = await self._overview.look()
            except StoreUnavailable as error:
                if self._was_up:
                    log.warning("store unavailable, orbweb_store_up is 0: %s", error)
                self._was_up = False
                return None
            self._was_up = True
            return view


def tell_version(text: Exposition) -> None:
    """Which Orbweb this is."""
    try:
        version = metadata.version("orbweb")
    except metadata.PackageNotFoundError:
        version = "dev"
    text.add(of.BUILD_INFO, 1, version)
