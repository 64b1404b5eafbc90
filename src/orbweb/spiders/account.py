"""The account of a run: how it was made and what it comes to, kept for `orbweb diff`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from orbweb.engine.report import RunReport
from orbweb.errors import OrbwebError
from orbweb.frontier.base import Status
from orbweb.frontier.runbook import RunBook
from orbweb.log import get_logger
from orbweb.monitor.code_version import commit_of, file_version
from orbweb.monitor.crawl_line import CrawlLine, CrawlLog
from orbweb.monitor.run_record import Code, PageTally, RunFigures, RunMade, read_as, written
from orbweb.settings import Settings
from orbweb.settings.load import masked
from orbweb.settings.version import own_version
from orbweb.spiders.base import BaseSpider
from orbweb.spiders.rules import target_of

LONGEST_VALUE = 500
"""Characters of a setting's value that are kept."""

NOT_OF_A_RUN = frozenset({"RUN_ID", "RUN_SUMMARY_ENABLE"})
"""Settings that say nothing of how a run crawls."""

DECIDING = (
    "ALLOWED_DOMAINS",
    "DEPTH_LIMIT",
    "URL_LENGTH_LIMIT",
    "DROP_QUERY_PARAMS",
    "DEDUP_SCOPE",
    "TASK_DEDUP",
    "ROBOTS_OBEY",
    "ROBOTS_USER_AGENT",
    "USER_AGENT",
    "ALLOWED_CONTENT_TYPES",
    "CHECK_STATUS_CODE",
    "ACCEPT_STATUS_CODES",
    "RETRY_STATUS_CODES",
    "MAX_RESPONSE_SIZE",
    "DOWNLOADER_MIDDLEWARES",
    "ITEM_PIPELINES",
)
"""Settings that decide which pages a run has in the end, and where their items are.

Of those that the store keeps for all nodes of a run, `RunLook` tells the differences.
"""

log = get_logger("orbweb.engine")


def run_made(spider: BaseSpider, own: Settings, settings: Settings) -> RunMade:
    """How a run of this spider is made now.

    `own`: the settings without live values, `settings`: with them.
    """
    live = [
        name for name in settings if name not in own or settings.origin(name) != own.origin(name)
    ]
    return RunMade(
        run=settings["RUN_ID"],
        spider=spider.name,
        version=own_version(),
        code=code_of(type(spider)),
        settings={
            name: _kept(name, own[name])
            for name in sorted(own)
            if own.origin(name) != "default" and name not in NOT_OF_A_RUN
        },
        live={name: _kept(name, settings[name]) for name in sorted(live)},
    )


def _kept(name: str, value: Any) -> str:
    return json.dumps(masked(name, value), ensure_ascii=False, default=str)[:LONGEST_VALUE]


def code_of(kind: type[BaseSpider]) -> Code:
    """The code of a spider class, as far as it has a file."""
    with suppress(TypeError, OSError):
        file = Path(inspect.getfile(kind)).resolve()
        return Code(target_of(kind) or file.name, file_version(file), commit_of(file.parent))
    return Code()


def differences(first: RunMade, now: RunMade) -> list[str]:
    """What settings that decide about pages and items were when a run was begun, and are now.

    Live values are none of that: they are the same for all nodes.
    """
    return [
        f"{name} was {first.settings.get(name, 'not set')}, is {now.settings.get(name, 'not set')}"
        for name in DECIDING
        if first.settings.get(name) != now.settings.get(name)
    ]


class CountingLog:
    """See `CrawlLog`: counts lines, and passes them on where a log is wanted."""

    def __init__(self, log: CrawlLog | None) -> None:
        self._log = log
        self.tally = PageTally()

    def write(self, line: CrawlLine) -> None:
        self.tally.see(line)
        if self._log is not None:
            self._log.write(line)


class Account:
    """Tells the store of this node's run. That the store is away never holds up a crawl."""

    def __init__(self, book: RunBook | None, made: RunMade, pages: PageTally) -> None:
        """Without a book the account only stands in the summary."""
        self._book = book
        self._made = made
        self._pages = pages
        self._kept = ""

    async def tell(self, epoch: str, node: str, status: Callable[[], Any]) -> None:
        """Say how the run was made, once, and what this node has counted so far."""
        if self._book is None or not epoch:
            return
        with suppress(OrbwebError):  # a run that is lost is told of by the engine
            if self._kept != epoch:
                started: Status = await status()
                at_ms, made = started.started_at_ms, written(self._made)
                first = read_as(RunMade, await self._book.keep_made(epoch, at_ms, made))
                self._kept = epoch
                if first is not None and (differ := differences(first, self._made)):
                    log.warning(
                        "this run was begun with other settings, which are not kept: %s. To crawl "
                        "as before, give the same -s again or set them in the project",
                        ", ".join(differ),
                    )
            await self._book.keep_pages(epoch, node, written(self._pages))

    async def end(self, epoch: str, report: RunReport) -> RunReport:
        """The report with how the run was made; what it came to is kept."""
        if self._book is not None and epoch and report.run is not None:
            try:
                await self._book.keep_figures(epoch, written(figures(report)))
            except OrbwebError as error:
                log.warning("what the run came to is not kept for orbweb diff: %s", error)
        return replace(report, made=self._shown())

    def _shown(self) -> dict[str, Any]:
        code = self._made.code
        return {
            "version": self._made.version,
            "code": {"file": code.file, "digest": code.digest, "commit": code.commit},
            "settings": self._made.held,
        }


def figures(report: RunReport) -> RunFigures:
    """The figures of the whole run."""
    run = report.run
    assert run is not None, "a report without counts has no figures"
    return RunFigures(
        state=str(run.state),
        why=report.why[:LONGEST_VALUE],
        started_at_ms=run.started_at_ms,
        ended_at_ms=run.finished_at_ms,
        pages=report.pages,
        items=run.items,
        failed=run.dead,
        retried=run.retried,
        reasons=dict(run.reasons),
        outputs=tuple(report.outputs),
    )
