"""What differs between two runs, row by row; what is not stored of one of them is said so."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from orbweb.monitor.baseline import POINTS
from orbweb.monitor.quality import Tally
from orbweb.monitor.run_record import PageTally, RunFigures, RunMade
from orbweb.settings import DECLARATIONS

FELL = 0.1
"""Pages or items that are fewer by more than this part are worth a mark."""

NOTHING_MADE = "it began with a version that kept no record of runs"
NO_FIGURES = "no node left it in order, and it is gone from the store"
NO_ITEMS = "nothing was counted of its items (QUALITY_ENABLE)"
NO_PAGES = "no node told what came of its pages"


class Kind(StrEnum):
    """What a row's two values are."""

    COUNT = "count"
    RATE = "rate"
    """Between 0 and 1."""
    TEXT = "text"


Value = int | float | str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the comparison. A value that is not known is None, and `missing` says why."""

    group: str
    name: str
    kind: Kind
    before: Value
    after: Value
    missing: str = ""
    marked: bool = False
    """It is worth a look."""

    @property
    def change(self) -> float | None:
        """After minus before; None for texts and for what is not known."""
        if isinstance(self.before, int | float) and isinstance(self.after, int | float):
            return self.after - self.before
        return None

    @property
    def differs(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Side:
    """What is known of one run."""

    label: str
    run: str
    epoch: str
    made: RunMade | None = None
    figures: RunFigures | None = None
    items: Tally | None = None
    pages: PageTally | None = None
    gaps: Mapping[str, str] = field(default_factory=dict)
    """Why something is not known, by the name of the field above."""

    def gap(self, name: str, otherwise: str) -> str:
        return f"not stored of {self.label}: {self.gaps.get(name, otherwise)}"


def compare(before: Side, after: Side) -> list[Row]:
    """All rows, in the order in which people read them."""
    return [
        *_figures(before, after),
        *_quality(before, after),
        *_pages(before, after),
        *_made(before, after),
    ]


def _figures(before: Side, after: Side) -> Iterator[Row]:
    old, new = before.figures, after.figures
    if old is None or new is None:
        missing = _missing(before, after, "figures", NO_FIGURES)
        yield Row("run", "figures", Kind.TEXT, _state(old), _state(new), missing)
        return
    yield Row("run", "state", Kind.TEXT, _state(old), _state(new))
    for name in ("pages", "items", "failed", "retried"):
        was, now = getattr(old, name), getattr(new, name)
        fewer = name in ("pages", "items") and now < was * (1 - FELL)
        yield Row("run", name, Kind.COUNT, was, now, marked=fewer)
    if old.ended_at_ms and new.ended_at_ms:
        yield Row("run", "seconds", Kind.COUNT, _seconds(old), _seconds(new))
    for reason in sorted({*old.reasons, *new.reasons} - {"done"}):
        was, now = old.reasons.get(reason, 0), new.reasons.get(reason, 0)
        yield Row("reasons", reason, Kind.COUNT, was, now)


def _quality(before: Side, after: Side) -> Iterator[Row]:
    old, new = before.items, after.items
    if old is None or new is None:
        missing = _missing(before, after, "items", NO_ITEMS)
        yield Row("items", "missing fields", Kind.RATE, None, None, missing)
        return
    was, now = round(old.duplicate_rate, 6), round(new.duplicate_rate, 6)
    yield Row("items", "duplicates", Kind.RATE, was, now, marked=now > was + POINTS)
    for table in sorted({*old.tables, *new.tables}):
        for name in sorted(_fields(old, table) | _fields(new, table)):
            was, now = (round(each.missing_rate(table, name), 6) for each in (old, new))
            shown = f"missing({table}.{name})"
            yield Row("items", shown, Kind.RATE, was, now, marked=now > was + POINTS)


def _fields(tally: Tally, table: str) -> set[str]:
    return set(tally.tables[table].fields) if table in tally.tables else set()


def _pages(before: Side, after: Side) -> Iterator[Row]:
    old, new = before.pages, after.pages
    if old is None or new is None:
        missing = _missing(before, after, "pages", NO_PAGES)
        yield Row("answers", "by status and host", Kind.COUNT, None, None, missing)
        return
    for name in sorted({*old.classes, *new.classes}):
        was, now = old.classes.get(name, 0), new.classes.get(name, 0)
        yield Row("answers", name, Kind.COUNT, was, now)
    for host in sorted({*old.hosts, *new.hosts}):
        for what in ("pages", "items", "failed"):
            was, now = (getattr(each.hosts.get(host), what, 0) for each in (old, new))
            if was or now:
                yield Row("hosts", f"{host} {what}", Kind.COUNT, was, now)


def _made(before: Side, after: Side) -> Iterator[Row]:
    old, new = before.made, after.made
    if old is None or new is None:
        missing = _missing(before, after, "made", NOTHING_MADE)
        yield Row("code", "code and settings", Kind.TEXT, None, None, missing)
        return
    for name in ("file", "digest", "commit"):
        was, now = getattr(old.code, name), getattr(new.code, name)
        yield Row("code", name, Kind.TEXT, was, now, marked=was != now)
    yield Row("code", "orbweb", Kind.TEXT, old.version, new.version)
    for name in sorted({*old.held, *new.held}):
        was, now = (each.held.get(name, _default(name)) for each in (old, new))
        yield Row("settings", name, Kind.TEXT, was, now, marked=was != now)


def _default(name: str) -> str:
    setting = DECLARATIONS.get(name)
    return json.dumps(setting.default, default=str) if setting is not None else ""


def _missing(before: Side, after: Side, name: str, otherwise: str) -> str:
    gaps = [each.gap(name, otherwise) for each in (before, after) if getattr(each, name) is None]
    return "; ".join(gaps)


def _state(figures: RunFigures | None) -> str | None:
    return figures.state if figures is not None else None


def _seconds(figures: RunFigures) -> int:
    return (figures.ended_at_ms - figures.started_at_ms) // 1000


def differing(rows: Iterable[Row]) -> Sequence[Row]:
    """The rows that say something: what differs, and what could not be compared."""
    return [row for row in rows if row.differs or row.missing]
