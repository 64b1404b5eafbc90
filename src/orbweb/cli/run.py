"""What `orbweb run` does: one process of a spider, or several that are watched."""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orbweb.cli import show
from orbweb.cli.fleet import Fleet
from orbweb.cli.options import overrides, pairs
from orbweb.cli.store import ask
from orbweb.cli.target import load_spider, make_spider
from orbweb.cli.worker import give_summary
from orbweb.cli.workers import Workers
from orbweb.engine.shutdown import ExitCode
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import RunState
from orbweb.log import event, get_logger
from orbweb.pipelines.folders import is_url, open_folder
from orbweb.pipelines.onefile import Mark, empty_unchanged, mark, pipeline_for
from orbweb.pipelines.parts import parts_for
from orbweb.settings import Settings
from orbweb.settings.log import configure_log
from orbweb.spiders.base import BaseSpider
from orbweb.spiders.batch import BatchSpider
from orbweb.spiders.distributed import Spider
from orbweb.spiders.ending import tell_end
from orbweb.spiders.progress import on_terminal
from orbweb.spiders.start import Start, settings_of

logger = get_logger("cli.run")


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The options of `orbweb run`, as they were given."""

    target: str
    workers: int = 1
    arguments: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    store: str | None = None
    append: str | None = None
    overwrite: str | None = None
    concurrency: int | None = None
    stop_after: int = 0
    gates: tuple[str, ...] = ()
    run_id: str | None = None
    fresh: bool = False
    resume: bool = False
    log_level: str | None = None
    log_file: Path | None = None
    progress: bool | None = None
    monitor: bool = False
    once: bool = False
    summary_fd: int | None = None
    """A worker of `-w N` gives its summary there and not on stdout."""


def run_spider(plan: RunPlan) -> int:
    """Run the spider of a plan to its end; returns the exit code.

    Raises `ConfigError`, `StoreUnsafe` and `StoreUnavailable` when it cannot begin.
    """
    _refuse_contradictions(plan)
    spider = make_spider(load_spider(plan.target), pairs(plan.arguments, "-a"))
    changes = _changes(plan)
    settings = settings_of(spider, Start(changes))
    if isinstance(spider, BatchSpider):
        _refuse_runs(plan)
    elif plan.monitor:
        raise ConfigError(f"--monitor is for a BatchSpider, and {spider.name} is none")
    if not isinstance(spider, Spider):
        _refuse_sharing(plan)
    elif plan.fresh:
        changes["RUN_ID"] = new_run_id()
    elif plan.resume:
        found = unfinished_run(settings, spider.redis_key)
        if found is None:
            show.note(
                f"orbweb: no run of {spider.redis_key} is unfinished, so there is nothing to "
                "resume; --fresh begins a new one"
            )
            return ExitCode.NOTHING_DONE
        changes["RUN_ID"] = found
    if isinstance(spider, Spider) and plan.workers > 1:
        return _run_workers(plan, spider, changes)
    return _run_one(plan, spider, settings, changes)


def new_run_id() -> str:
    """An id that sorts by the time at which it was made: `20261130-223107-4f1c`."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def unfinished_run(settings: Settings, job: str) -> str | None:
    """The latest run of a job that has not ended; None when there is none."""

    async def look(admin: Admin) -> str | None:
        runs = await admin.runs(job)
        return next((info.run for info in runs if info.status.state is not RunState.DONE), None)

    return ask(settings, look)


def _run_one(plan: RunPlan, spider: BaseSpider, settings: Settings, changes: dict[str, str]) -> int:
    file = plan.overwrite or plan.append
    if file is not None:
        changes |= file_settings(spider, settings, file)
    start = Start(
        changes,
        stop_after_pages=plan.stop_after,
        on_new_run=emptying(plan.overwrite) if plan.overwrite else None,
        live=plan.progress,
        monitor=plan.monitor,
        once=plan.once,
    )
    report = spider.run(start)
    if plan.summary_fd is not None:
        give_summary(plan.summary_fd, report.line())
        return report.exit_code
    tell_end(report.as_dict(), live=_is_live(plan), wanted=report.show_summary)
    if _is_live(plan) and report.state == "stopped" and isinstance(spider, Spider):
        how = "" if isinstance(spider, BatchSpider) else " --resume"
        show.note(f"  go on: orbweb run {plan.target}{how}")
    return report.exit_code


def file_settings(spider: BaseSpider, settings: Settings, file: str) -> dict[str, str]:
    """Settings that send all items to one file.

    The file takes the place of the default pipeline, and is added to pipelines that were chosen.
    """
    if spider.item_handler is not None or spider.pipelines is not None:
        raise ConfigError(
            f"{spider.name} brings its own pipelines (constructor), so items cannot go to {file}"
        )
    if not is_url(file):
        _refuse_unwritable(Path(file))
        file = str(Path(file).absolute())
    chosen = settings["ITEM_PIPELINES"] if settings.origin("ITEM_PIPELINES") != "default" else ()
    pipelines = dict.fromkeys([*chosen, parts_for(file) or pipeline_for(Path(file))])
    return {"OUTPUT_FILE": file, "ITEM_PIPELINES": ",".join(pipelines)}


def _refuse_unwritable(file: Path) -> None:
    folder = file.absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"items cannot go to {file}: {error}") from error
    if (file.is_dir() and not parts_for(str(file))) or not os.access(
        file if file.exists() else folder, os.W_OK
    ):
        raise ConfigError(f"items cannot go to {file}: it cannot be written")


def emptying(target: str) -> Callable[[], None]:
    """What a new run does to the file of `-O`; the file's state is noted now."""
    if parts_for(target):
        return _emptying_folder(target)
    file = Path(target)
    before: Mark = mark(file)

    def empty() -> None:
        if not empty_unchanged(file, before):
            event(
                logger,
                "output_kept",
                level=logging.WARNING,
                file=file,
                why="it was written to meanwhile",
            )

    return empty


def _emptying_folder(place: str) -> Callable[[], None]:
    """The same for a folder of parts: those that are there now go."""
    folder = open_folder(place)
    before = folder.names()

    def empty() -> None:
        for name in before:
            folder.remove(name)

    return empty


def _run_workers(plan: RunPlan, spider: Spider, changes: dict[str, str]) -> int:
    settings = settings_of(spider, Start(changes))
    configure_log(settings)
    workers = Workers(_worker_command(plan, changes), plan.workers)
    live = _is_live(plan)
    run = None if isinstance(spider, BatchSpider) else settings["RUN_ID"]
    code = workers.run(Fleet(settings, spider.redis_key, run).look if live else None)
    summary = {**workers.summary(), "exit_code": code}
    tell_end(summary, live=live, wanted=settings["RUN_SUMMARY_ENABLE"])
    return code


def _is_live(plan: RunPlan) -> bool:
    return on_terminal() if plan.progress is None else plan.progress


def _worker_command(plan: RunPlan, changes: dict[str, str]) -> list[str]:
    """The command line of one worker: this one, with everything decided."""
    command = [sys.executable, "-m", "orbweb", "run", plan.target, "--no-progress"]
    for argument in plan.arguments:
        command += ["-a", argument]
    for name, value in changes.items():
        command += ["-s", f"{name}={value}"]
    if plan.append is not None:
        command += ["-o", plan.append]
    if plan.overwrite is not None:
        command += ["-O", plan.overwrite]
    if plan.stop_after:
        command += ["--stop-after", str(plan.stop_after)]
    command += ["--monitor"] * plan.monitor + ["--once"] * plan.once
    return command


def _changes(plan: RunPlan) -> dict[str, str]:
    """What the command line says of settings, `-s` and the options that stand for settings."""
    found = overrides(plan.changes, plan.store)
    options: tuple[tuple[str, str, Any], ...] = (
        ("-j", "CONCURRENT_REQUESTS", plan.concurrency),
        ("-L", "LOG_LEVEL", plan.log_level),
        ("--logfile", "LOG_FILE", plan.log_file),
        ("--run-id", "RUN_ID", plan.run_id),
        ("--gate", "GATES", json.dumps(plan.gates) if plan.gates else None),
    )
    for option, name, value in options:
        if value is None:
            continue
        if name in found:
            raise ConfigError(f"{option} and -s {name} mean the same: keep one")
        found[name] = str(value)
    return found


def _refuse_contradictions(plan: RunPlan) -> None:
    file = plan.append or plan.overwrite
    if plan.append and plan.overwrite:
        raise ConfigError("-o appends and -O overwrites: keep one")
    if file is not None:
        _ = parts_for(file) or pipeline_for(Path(file))
    if plan.once and not plan.monitor:
        raise ConfigError("--once goes with --monitor: the batch that is open or due, and no more")
    if (plan.run_id is not None) + plan.fresh + plan.resume > 1:
        raise ConfigError("--run-id, --fresh and --resume exclude each other")


def _refuse_runs(plan: RunPlan) -> None:
    for given, option in (
        (plan.resume, "--resume"),
        (plan.fresh, "--fresh"),
        (plan.run_id is not None, "--run-id"),
    ):
        if given:
            raise ConfigError(
                f"{option} is not for a BatchSpider: the batch is the run, and goes on by itself"
            )


def _refuse_sharing(plan: RunPlan) -> None:
    for given, option in (
        (plan.workers > 1, "-w"),
        (plan.resume, "--resume"),
        (plan.run_id is not None, "--run-id"),
    ):
        if given:
            raise ConfigError(
                f"{option} needs a spider that inherits Spider: an AirSpider keeps all in the "
                "memory of one process"
            )
