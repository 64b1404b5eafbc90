"""Parses recorded pages with a spider; nothing is fetched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from orbweb.download.robots import MemoryRobotsStore
from orbweb.engine.threads import loop_factory
from orbweb.replay.gate import Manners
from orbweb.replay.recorded import RecordedPage
from orbweb.replay.trial import Parsed, trial_of
from orbweb.settings import Settings
from orbweb.spiders.base import BaseSpider
from orbweb.spiders.build_trial import trial_parts


def parse_pages(
    spider: BaseSpider, settings: Settings, pages: Sequence[RecordedPage]
) -> list[Parsed]:
    """What the spider makes of each page; `start_callback` is called first.

    Blocks, on an event loop of its own. What a callback raises is told in its result; what
    `start_callback` raises passes.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_parse(spider, settings, pages))


async def _parse(
    spider: BaseSpider, settings: Settings, pages: Sequence[RecordedPage]
) -> list[Parsed]:
    async with trial_parts(spider, settings, MemoryRobotsStore(time.monotonic)) as parts:
        if parts.callbacks.overrides("start_callback"):
            await parts.callbacks.call(spider.start_callback)
        trial = trial_of(parts, Manners(0.0, None, clock=time.monotonic))
        found = []
        for page in pages:
            request, response = page.page()
            found.append(await trial.parse(request, response))
        return found
