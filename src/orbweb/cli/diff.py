"""What `orbweb diff` prints: two runs side by side, and what could not be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orbweb.cli import show
from orbweb.cli.diff_items import ItemDiff, diff_items, files_of
from orbweb.cli.diff_pages import PageDiff, diff_pages
from orbweb.cli.run_names import Known, RunRef, find_run, read_refs
from orbweb.cli.store import ask
from orbweb.cli.watch import state_of
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.runbook import KeptRun
from orbweb.log import mask_secrets
from orbweb.monitor.diff_limits import parse_limit
from orbweb.monitor.log_reader import LogReader
from orbweb.monitor.quality import Tally, decode, total
from orbweb.monitor.run_diff import Kind, Row, Side, compare, differing
from orbweb.monitor.run_record import RunFigures, RunMade, read_as, total_pages
from orbweb.settings import Settings
from orbweb.spiders.log_place import log_folder

SAME, LIMIT_PASSED = 0, 4
WIDEST = 40
"""Characters of a text that a column shows."""


@dataclass(frozen=True, slots=True)
class DiffQuery:
    """What is asked for on the command line."""

    before: str
    after: str | None
    files: tuple[Path, ...] = ()
    key: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    everything: bool = False
    """Also rows that are the same in both."""
    as_json: bool = False


def diff(settings: Settings, asked: DiffQuery) -> int:
    """Print the comparison; 4 when a limit is passed, else 0."""
    if len(asked.files) not in (0, 2):
        raise ConfigError("--items is given twice: the file of the run before, and of that after")
    limits = [parse_limit(text) for text in asked.limits]
    refs = read_refs(asked.before, asked.after)
    before, after = ask(settings, lambda admin: _sides(admin, refs))
    rows = compare(before, after)
    pages = _pages(settings, refs, before, after)
    items = _items(asked, before, after)
    rows += [*pages.rows, *items.rows]
    failures = [each for limit in limits if (each := limit.failure(rows))]
    for side in (before, after):
        if side.figures is not None and not side.figures.ended_at_ms:
            show.note(
                f"{side.label} has not ended ({side.figures.state}): its figures still change"
            )
    if asked.as_json:
        show.as_json(_record(before, after, rows, pages, items, failures))
    else:
        _print(before, after, rows, pages, items, everything=asked.everything)
        for failure in failures:
            show.note(failure)
    return LIMIT_PASSED if failures else SAME


async def _sides(admin: Admin, refs: Sequence[RunRef]) -> tuple[Side, Side]:
    sides = []
    for ref in refs:
        living = {info.epoch: info for info in await admin.runs(ref.job)}
        kept = {one.epoch: one for one in await admin.kept(ref.job).runs()}
        found = find_run(ref, _known(ref.job, living, kept))
        sides.append(await _side(admin, ref, found, living.get(found.epoch), kept))
    if sides[0].epoch == sides[1].epoch:
        raise ConfigError(f"{refs[0].text} and {refs[1].text} are one run: {sides[0].label}")
    return sides[0], sides[1]


def _known(job: str, living: dict[str, RunInfo], kept: dict[str, KeptRun]) -> list[Known]:
    found = [Known(job, i.run, i.epoch, i.status.started_at_ms) for i in living.values()]
    for one in kept.values():
        if one.epoch not in living:
            made = read_as(RunMade, one.made)
            found.append(Known(job, made.run if made else "", one.epoch, one.made_at_ms))
    return sorted(found, key=lambda known: -known.started_at_ms)


async def _side(
    admin: Admin, ref: RunRef, known: Known, info: RunInfo | None, kept: dict[str, KeptRun]
) -> Side:
    one = kept.get(known.epoch)
    pages = await admin.kept(known.job).pages(known.epoch)
    state = await state_of(admin, info) if info else None
    return Side(
        label=known.run or f"{ref.job} of {show.moment(known.started_at_ms)}",
        run=known.run,
        epoch=known.epoch,
        made=read_as(RunMade, one.made) if one else None,
        figures=_figures(info, one, state),
        items=await _tally(admin, known),
        pages=total_pages(pages) if pages else None,
    )


def _figures(info: RunInfo | None, kept: KeptRun | None, state: str | None) -> RunFigures | None:
    """Of the store while the run is there, which is exact; else what a node has left."""
    left = read_as(RunFigures, kept.figures) if kept and kept.figures else None
    if info is None or state is None:
        return left
    counts = info.status
    return RunFigures(
        state=state,
        started_at_ms=counts.started_at_ms,
        ended_at_ms=counts.finished_at_ms,
        pages=counts.reasons.get("done", 0),
        items=counts.items,
        failed=counts.dead,
        retried=counts.retried,
        reasons=counts.reasons,
        outputs=left.outputs if left else (),
    )


async def _tally(admin: Admin, known: Known) -> Tally | None:
    counts = admin.counts(known.job, known.run, known.epoch)
    if told := await counts.told():
        return total(told.values())
    entered = await counts.entered()
    return decode(entered) if entered else None


def _pages(settings: Settings, refs: Sequence[RunRef], before: Side, after: Side) -> PageDiff:
    if refs[0].job != refs[1].job:
        return PageDiff([], {})
    reader = LogReader(log_folder(settings, Path.cwd()))
    return diff_pages(reader, refs[0].job, before, after)


def _items(asked: DiffQuery, before: Side, after: Side) -> ItemDiff:
    if asked.files:
        return diff_items((asked.files[0], asked.files[1]), asked.key)
    outputs = [side.figures.outputs if side.figures else () for side in (before, after)]
    files, missing = files_of(outputs)
    return diff_items(files, asked.key) if files else ItemDiff(missing=missing)


def _print(
    before: Side,
    after: Side,
    rows: Sequence[Row],
    pages: PageDiff,
    items: ItemDiff,
    *,
    everything: bool,
) -> None:
    shown = rows if everything else differing(rows)
    compared = [row for row in shown if not row.missing]
    show.as_table(
        ("", before.label, after.label, "CHANGE"),
        [
            (row.name, _text(row, row.before), _text(row, row.after), _change(row))
            for row in compared
        ],
    )
    if not any(row.differs for row in rows):
        print("nothing that is stored differs")
    for name, urls in pages.examples.items():
        show.note(f"{name}: {mask_secrets(', '.join(urls))}")
    if items.fields:
        counts = ", ".join(f"{name} {count}" for name, count in items.fields.most_common(9))
        show.note(f"changed in: {counts}")
    for row in rows:
        if row.missing:
            show.note(f"not compared: {row.name}: {row.missing}")


def _text(row: Row, value: Any) -> str:
    if value is None:
        return "?"
    if row.kind is Kind.RATE:
        return f"{value:.2%}"
    if row.kind is Kind.COUNT:
        return show.number(value)
    return str(value) if len(str(value)) <= WIDEST else f"{str(value)[: WIDEST - 1]}…"


def _change(row: Row) -> str:
    mark = "  ✘" if row.marked else ""
    if row.change is None:
        return f"{'differs' if row.differs else ''}{mark}"
    if not row.change:
        return mark
    if row.kind is Kind.RATE:
        return f"{row.change * 100:+.2f} points{mark}"
    before = row.before
    part = f"  {row.change / before:+.0%}" if isinstance(before, int | float) and before else ""
    return f"{row.change:+,.0f}".replace(",", " ") + part + mark


def _record(
    before: Side,
    after: Side,
    rows: Sequence[Row],
    pages: PageDiff,
    items: ItemDiff,
    failures: Sequence[str],
) -> dict[str, Any]:
    return {
        "before": {"run": before.run, "epoch": before.epoch, "label": before.label},
        "after": {"run": after.run, "epoch": after.epoch, "label": after.label},
        "same": not any(row.differs for row in rows),
        "rows": [{**asdict(row), "change": row.change, "differs": row.differs} for row in rows],
        "pages": {
            name: [mask_secrets(url) for url in urls] for name, urls in pages.examples.items()
        },
        "items": items.record(),
        "failed_limits": list(failures),
    }
