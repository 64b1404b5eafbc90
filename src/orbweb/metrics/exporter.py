"""The exporter of a fleet: looks at the store and gives the page that Prometheus reads."""

from __future__ import annotations

import time
from importlib import metadata

from orbweb.errors import OrbwebError, StoreUnavailable
from orbweb.frontier.overview import Overview
from orbweb.log import get_logger
from orbweb.metrics import catalogue as of
from orbweb.metrics.exposition import Exposition
from orbweb.metrics.fleet import tell_fleet

log = get_logger("orbweb.metrics")


class Exporter:
    """See `page`. What it needs to know of the last look is in the `Overview`."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._was_up = True

    async def page(self) -> str:
        """The metrics now. A store that is away is said by `orbweb_store_up`, not by an error."""
        text, began = Exposition(), time.monotonic()
        tell_version(text)
        try:
            tell_fleet(text, await self._overview.look(), time.time())
        except StoreUnavailable as error:
            self._note_outage(error)
            text = Exposition()
            tell_version(text)
            text.add(of.STORE_UP, 0)
        else:
            self._was_up = True
        text.add(of.LOOK, round(time.monotonic() - began, 6))
        text.add(of.CPU, round(time.process_time(), 3))
        return text.text()

    def _note_outage(self, error: OrbwebError) -> None:
        if self._was_up:
            log.warning("store unavailable, orbweb_store_up is 0: %s", error)
        self._was_up = False


def tell_version(text: Exposition) -> None:
    """Which Orbweb this is."""
    try:
        version = metadata.version("orbweb")
    except metadata.PackageNotFoundError:
        version = "dev"
    text.add(of.BUILD_INFO, 1, version)
