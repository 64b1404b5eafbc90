"""What `orbweb demo` does: it serves a small shop, crawls it, and says what came of it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from orbweb.cli import show
from orbweb.cli.run import emptying, file_settings, new_run_id
from orbweb.engine.report import RunReport
from orbweb.engine.shutdown import ExitCode
from orbweb.spiders.build import run_spider
from orbweb.spiders.ending import end_text
from orbweb.spiders.progress import on_terminal
from orbweb.spiders.start import Start, settings_of
from orbweb.testing.demo_spider import DemoSpider
from orbweb.testing.site import SiteThread

OUTPUT = Path("demo.jsonl")


def run_demo() -> int:
    """Crawl the demo shop as a new run; returns the exit code."""
    with SiteThread() as site:
        spider = DemoSpider()
        spider.site = site.url
        changes = {
            "REDIS_URL": "",
            "RUN_ID": new_run_id(),
            "SPIDER_RETRY_INTERVAL": "0.5",
            "LOGSTATS_INTERVAL": "2",
            "LOG_LEVEL": "WARNING" if on_terminal() else "INFO",
        }
        changes |= file_settings(spider, settings_of(spider, Start(changes)), str(OUTPUT))
        show.note(f"a shop is open at {site.url}; crawling it · run {changes['RUN_ID']}")
        report = run_spider(spider, Start(changes, on_new_run=emptying(str(OUTPUT))))
    show.note(end_text(report.as_dict()))
    if report.exit_code == ExitCode.DONE:
        _show_next(report)
    return report.exit_code


def _show_next(report: RunReport) -> None:
    job, program = report.spider, _program()
    show.note("One page of this shop always fails: it waits as a failed request. Look around:")
    for words in (f"status {job}", f"failed list {job}", f"log {job} --count", "doctor"):
        show.note(f"  {program} {words}")
    show.note(f"  head {OUTPUT}")


def _program() -> str:
    """How this program is called from here: `scripts/demo` runs it without an active `.venv`."""
    called = Path(sys.argv[0])
    if called.name != "orbweb" or shutil.which("orbweb"):
        return "orbweb"
    return os.path.relpath(called)
