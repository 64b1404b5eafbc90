"""A node's own scrape target, and what it shows: the node as it is now, not as it last said."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from orbweb.log import get_logger
from orbweb.metrics.exporter import tell_version
from orbweb.metrics.exposition import Exposition
from orbweb.metrics.node import Speaker, said, tell_counts, tell_node
from orbweb.metrics.server import serving
from orbweb.metrics.targets import address
from orbweb.monitor.counts import Counts

log = get_logger("orbweb.metrics")


def node_page(who: Speaker, beat: bytes, counts: Counts) -> str:
    """A node's metrics as text."""
    text = Exposition()
    tell_version(text)
    tell_node(text, who, time.time(), said(beat))
    tell_counts(text, who, counts)
    return text.text()


@asynccontextmanager
async def own_target(
    who: Speaker, beat: Callable[[], bytes], counts: Callable[[], Counts], host: str, port: int
) -> AsyncIterator[str]:
    """Serve the node's metrics; gives the address under which it tells others of them.

    A port that is taken is replaced by a free one, as several nodes of a machine have the same
    settings. Raises `ConfigError` for a host that is none of this machine.
    """

    async def page() -> str:
        return node_page(who, beat(), counts())

    async with serving(page, host, port, or_free=True) as own:
        told = address(host, own)
        log.info("metrics of this node: http://%s/metrics", told)
        yield told
