"""Assembly: from a spider and its settings to a running engine. Nothing else builds these."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

from orbweb.engine.report import RunReport
from orbweb.engine.shutdown import hold_signals, install_signals
from orbweb.engine.threads import loop_factory
from orbweb.errors import StoreUnavailable
from orbweb.log import get_logger
from orbweb.settings import Settings
from orbweb.settings.log import configure_log
from orbweb.spiders.account import Account, CountingLog, run_made
from orbweb.spiders.base import BaseSpider
from orbweb.spiders.build_engine import build_engine, speaker
from orbweb.spiders.build_metrics import tell_metrics
from orbweb.spiders.build_store import Store, open_store
from orbweb.spiders.crawl_log import crawl_log
from orbweb.spiders.judge import judged, quality_rules
from orbweb.spiders.progress import engine_look, on_terminal, showing
from orbweb.spiders.rules import tell_rules
from orbweb.spiders.start import Start, settings_of
from orbweb.spiders.watching import note_lost, say_without_store, watching

log = get_logger("orbweb.engine")


def run_spider(spider: BaseSpider, start: Start | None = None) -> RunReport:
    """Run a spider to its end on an event loop of its own; blocks.

    Raises `ConfigError`, `StoreUnsafe` and `StoreUnavailable` when the crawl cannot begin.
    """
    start = start or Start()
    settings = settings_of(spider, start)
    configure_log(settings)
    for note in settings.notes:
        log.warning("%s", note)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(crawl(spider, settings, start))


async def crawl(spider: BaseSpider, settings: Settings, start: Start) -> RunReport:
    """Work on one run to its end, on the running loop. Raises as `run_spider` does."""
    rules = quality_rules(settings)
    async with AsyncExitStack() as stack:
        stack.callback(
            hold_signals(spider.stop, settings["GRACEFUL_TIMEOUT"], lambda: not spider.is_bound)
        )
        node = uuid.uuid4().hex
        store, live = await open_store(spider, settings, start, stack, node)
        own, settings = settings, live.settings
        if store.book is not None:
            await tell_rules(store.book, settings, spider)
        lines = await stack.enter_async_context(
            crawl_log(settings, start.directory or Path.cwd(), spider.name, node, store.book)
        )
        counting = CountingLog(lines)
        account = Account(store.runs, run_made(spider, own, settings), counting.tally)
        tell = partial(_tell, account, store, node)
        engine = build_engine(spider, live, start, store, stack, node, counting, tell)
        uninstall = install_signals(engine.shutdown, live.reload)
        stack.callback(uninstall)
        spider.bind(engine)
        await tell_metrics(engine, settings, speaker(store, settings, node, spider), stack)
        if start.on_engine is not None:
            start.on_engine(engine)
        await stack.enter_async_context(
            showing(
                engine_look(engine, store.control.status),
                live=on_terminal() if start.live is None else start.live,
                interval_seconds=settings["LOGSTATS_INTERVAL"],
            )
        )
        if store.servers is None:
            say_without_store(settings)
        servers = store.servers if start.watch else None
        watch = await stack.enter_async_context(watching(lambda: live.settings, servers))
        report = await engine.run()
        if store.watch is not None:
            with suppress(StoreUnavailable):
                await store.watch()
        await tell()
        report = await account.end(store.epoch(), await judged(report, store.counts, rules))
        await note_lost(lambda: live.settings, store.servers, report, store.epoch())
        if watch is not None:
            await watch.end(report)
        return report


async def _tell(account: Account, store: Store, node: str) -> None:
    await account.tell(store.epoch(), node, store.control.status)
