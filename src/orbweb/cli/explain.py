"""What `explain` prints: the verdict on a URL, how it came to that, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orbweb.cli import show
from orbweb.cli.store import ask, has_data
from orbweb.cli.watch import run_name
from orbweb.errors import ConfigError
from orbweb.explain.facts import Facts, Inquiry
from orbweb.explain.verdict import Standing, Verdict, verdict_of
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.log import mask_secrets
from orbweb.monitor.log_reader import LogReader
from orbweb.settings import Settings
from orbweb.spiders.log_place import log_folder
from orbweb.spiders.rules import job_rules

MARKS = {True: "✔", False: "✘", None: "·"}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for on the command line."""

    url: str
    job: str | None = None
    run: str | None = None
    repeated: tuple[str, ...] = ()
    """Options that the commands to follow need too."""


def explain(settings: Settings, question: Question, *, as_json: bool) -> None:
    """Print the verdict of each job that knows the URL; of all jobs when none does."""
    found = [(facts, verdict_of(facts)) for facts in _facts(settings, question)]
    if question.job is None and len(found) > 1:
        known = [each for each in found if each[1].standing is not Standing.UNKNOWN]
        found = known or found
    if as_json:
        show.as_json([record(facts, verdict) for facts, verdict in found])
        return
    more = shlex.join(question.repeated)
    for facts, verdict in found:
        for line in _lines(facts, verdict, f" {more}" if more else ""):
            print(mask_secrets(line))


def _facts(settings: Settings, question: Question) -> list[Facts]:
    folder = log_folder(settings, Path.cwd())
    reader = LogReader(folder) if folder.path.is_dir() else None
    if not settings["REDIS_URL"] and not has_data(Path.cwd()):
        return _from_log(settings, question, reader, folder.path)

    async def look(admin: Admin) -> list[Facts]:
        return [
            await _inquiry(settings, info.job, reader, folder.path).ask(admin, info, question.url)
            for info in await _runs(admin, question)
        ]

    return ask(settings, look)


async def _runs(admin: Admin, question: Question) -> list[RunInfo]:
    """The run that is asked for, or the latest one of each job."""
    if question.job is not None:
        return [await admin.find(question.job, question.run)]
    latest: dict[str, RunInfo] = {}
    for info in await admin.runs():
        if question.run in (None, info.run):
            latest.setdefault(info.job, info)
    if not latest:
        raise ConfigError("there is no run in the store: nothing was crawled with it yet")
    return list(latest.values())


def _from_log(
    settings: Settings, question: Question, reader: LogReader | None, path: Path
) -> list[Facts]:
    """Without a store (`AirSpider`) the crawl log is all that there is."""
    jobs = sorted({segment.job for segment in log_folder(settings, Path.cwd()).segments()})
    wanted = [job for job in jobs if question.job in (None, job)]
    if reader is None or not wanted:
        there = ", ".join(jobs) or "none"
        raise ConfigError(
            f"there is neither a store here nor a crawl log of {question.job or 'any job'} in "
            f"{path} (jobs there: {there}). Go to the directory where the spider ran, or name the "
            "store with --store URL"
        )
    return [_inquiry(settings, job, reader, path).ask_log(question.url) for job in wanted]


def _inquiry(settings: Settings, job: str, reader: LogReader | None, path: Path) -> Inquiry:
    return Inquiry(
        job,
        reader,
        default_rules=job_rules(settings),
        log_place=str(path),
    )


def _lines(facts: Facts, verdict: Verdict, more: str) -> Iterator[str]:
    run = f" · run {run_name(facts.info.run)}" if facts.info is not None else ""
    yield f"{verdict.standing.upper()} · {verdict.reason}   ({facts.job}{run})"
    yield f"  {'asked':<9}{facts.asked}"
    if facts.canonical and facts.canonical != facts.asked:
        yield f"  {'became':<9}{facts.canonical}"
    yield f"  {'id':<9}{facts.id}"
    yield f"  {'verdict':<9}{verdict.text}"
    if verdict.that is not None:
        that = verdict.that
        yield f"  {'that one':<9}{that.standing.upper()} · {that.reason}: {that.text}"
    for detail in (*verdict.details, *(verdict.that.details if verdict.that else ())):
        yield f"  {'':<9}{detail}"
    yield f"  {'found':<9}{_origin(facts)}"
    for number, check in enumerate(verdict.checks):
        label = "chain" if not number else ""
        yield f"  {label:<9}{MARKS[check.passed]} {check.name:<7} {check.text}"
    for number, advice in enumerate(verdict.advice):
        label = "to do" if not number else ""
        yield f"  {label:<9}{advice.text}"
        if advice.command:
            yield f"  {'':<9}  {advice.command}{more}"


def _origin(facts: Facts) -> str:
    parent = facts.parent_id
    if parent is None:
        return "nobody here knows where"
    if not parent:
        return "as a seed (start_requests)"
    depth = f" (depth {facts.depth})" if facts.depth else ""
    return f"first on {facts.parent_url or f'the page of request {parent}'}{depth}"


def record(facts: Facts, verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON; times are wall clock in ms, passwords are masked."""
    return {
        "url": mask_secrets(facts.asked),
        "canonical": mask_secrets(facts.canonical),
        "id": facts.id,
        "job": facts.job,
        "run": facts.info.run if facts.info is not None else None,
        **_verdict_record(verdict),
        "that": _verdict_record(verdict.that) if verdict.that is not None else None,
        "found_on": mask_secrets(facts.parent_url) or None,
        "parent": facts.parent_id,
        "depth": facts.depth,
        "chain": [
            {"check": name, "passed": passed, "text": mask_secrets(text)}
            for name, passed, text in verdict.checks
        ],
        "place": _place_record(facts),
        "lines": len(facts.lines),
        "near": [mask_secrets(url) for url in facts.near],
    }


def _verdict_record(verdict: Verdict) -> dict[str, Any]:
    return {
        "standing": verdict.standing,
        "reason": verdict.reason,
        "text": mask_secrets(verdict.text),
        "details": _masked(verdict.details),
        "advice": [
            {"text": advice.text, "command": mask_secrets(advice.command) or None}
            for advice in verdict.advice
        ],
    }


def _place_record(facts: Facts) -> dict[str, Any] | None:
    state = facts.state
    if state is None:
        return None
    return {
        "place": state.place or None,
        "priority": state.request.priority if state.request else None,
        "retries": state.request.retries if state.request else None,
        "before": state.before,
        "node": state.node or None,
        "since_ms": state.since_ms or None,
        "until_ms": state.until_ms or None,
        "dead": state.dead is not None,
        "seen": state.seen.seen,
        "seen_kind": state.seen.kind,
        "generation": state.seen.part or None,
    }


def _masked(texts: Sequence[str]) -> list[str]:
    return [mask_secrets(text) for text in texts]
