"""The judgement on a finished run: its gates, its limits, and what earlier runs were like."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from orbweb.engine.report import RunReport
from orbweb.engine.shutdown import ExitCode
from orbweb.errors import OrbwebError, StoreUnavailable
from orbweb.frontier.items import RunCounts
from orbweb.log import get_logger
from orbweb.monitor import baseline
from orbweb.monitor.gates import Facts, Gate, judge_gates, parse_gate
from orbweb.monitor.quality import Tally, decode, encode, total
from orbweb.settings import Settings

LONGEST_WAIT_SECONDS = 5.0
"""For the last counts of other nodes."""

PAUSE_SECONDS = 0.1

log = get_logger("orbweb.quality")


@dataclass(frozen=True, slots=True)
class QualityRules:
    """What a finished run is judged by."""

    gates: tuple[Gate, ...]
    most_duplicates: float
    baseline_runs: int
    enabled: bool


def quality_rules(settings: Settings) -> QualityRules:
    """Raises `ConfigError` for a gate that cannot be read."""
    return QualityRules(
        gates=tuple(parse_gate(text) for text in settings["GATES"]),
        most_duplicates=settings["QUALITY_MAX_DUPLICATES"],
        baseline_runs=settings["QUALITY_BASELINE_RUNS"],
        enabled=settings["QUALITY_ENABLE"],
    )


async def judged(report: RunReport, counts: RunCounts, rules: QualityRules) -> RunReport:
    """The report with what its items are like; a run that fails a gate has exit code 4.

    Only a run that has come to its end is judged. When the store cannot be asked, gates fail.
    """
    if report.state != "done" or not (rules.enabled or rules.gates):
        return report
    try:
        tally = await _whole(counts, report.run.items if report.run else 0)
        earlier = await _earlier(counts, rules.baseline_runs)
        ended_at_ms = report.run.finished_at_ms if report.run else 0
        await counts.enter_history(ended_at_ms, encode(tally))
    except (StoreUnavailable, OrbwebError) as error:
        log.warning("the items were not judged: %s", error)
        failures = [f"gate {gate.text}: the store cannot be asked" for gate in rules.gates]
        return _failed(report, failures)
    unusual = baseline.judge(tally, earlier, rules.most_duplicates)
    for text in unusual:
        log.warning("unusual items: %s", text)
    facts = Facts(
        items=report.run.items if report.run else 0,
        pages=report.pages,
        failed=report.run.dead if report.run else 0,
        tally=tally,
        unusual=unusual,
    )
    failures = judge_gates(rules.gates, facts)
    return _failed(replace(report, quality=_shown(tally, unusual, failures)), failures)


async def _whole(counts: RunCounts, items: int) -> Tally:
    """The counts of all nodes; those that end at this moment have a few seconds to tell theirs."""
    until = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        tally = total((await counts.told()).values())
        if tally.items >= items or time.monotonic() > until:
            return tally
        await asyncio.sleep(PAUSE_SECONDS)


async def _earlier(counts: RunCounts, runs: int) -> list[Tally]:
    """The latest earlier runs of the job."""
    if not runs:
        return []
    return [decode(each) for each in (await counts.history())[-runs:]]


def _failed(report: RunReport, failures: Sequence[str]) -> RunReport:
    if not failures:
        return report
    for text in failures:
        log.error("%s", text)
    return replace(report, exit_code=int(ExitCode.GATE_FAILED), why="; ".join(failures))


def _shown(tally: Tally, unusual: Sequence[str], failures: Sequence[str]) -> dict[str, Any]:
    """The counts as the summary has them."""
    fields = {
        f"{table}.{field}": {
            "missing": round(tally.missing_rate(table, field), 6),
            "types": dict(count.fields[field].kinds),
        }
        for table, count in tally.tables.items()
        for field in count.fields
    }
    return {
        "items": tally.items,
        "duplicates": round(tally.duplicate_rate, 6),
        "fields": fields,
        "unusual": list(unusual),
        "failed_gates": list(failures),
    }
