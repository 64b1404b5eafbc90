"""What is unusual about a run's items: against fixed limits, and against the job's earlier runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev

from orbweb.monitor.quality import Tally

SIGMAS = 3.0
POINTS = 0.05
"""A rate is unusual when it is more than three deviations and five points above earlier runs."""

LEAST_RUNS = 3
"""Fewer earlier runs than this say nothing about what is usual."""

LEAST_ITEMS = 20
"""A table with fewer items than this says nothing about rates."""

FEWER = 0.5
"""A run with less than this part of the usual number of items is unusual."""


def judge(tally: Tally, earlier: Sequence[Tally], most_duplicates: float) -> list[str]:
    """What is wrong, each in a sentence with its numbers; empty when nothing is."""
    found = list(_duplicates(tally, most_duplicates))
    if len(earlier) >= LEAST_RUNS:
        found += _items(tally, earlier)
        for table in sorted({name for each in earlier for name in each.tables}):
            found += _fields(tally, earlier, table)
    return found


def _duplicates(tally: Tally, most: float) -> Iterator[str]:
    if 0 < most < tally.duplicate_rate:
        yield (
            f"duplicates: {tally.duplicate_rate:.1%} of the items were there already "
            f"(limit {most:.1%})"
        )


def _items(tally: Tally, earlier: Sequence[Tally]) -> Iterator[str]:
    usual = sorted(each.items for each in earlier)[len(earlier) // 2]
    if tally.items < usual * FEWER:
        yield f"items: {tally.items}, where {usual} are usual"


def _fields(tally: Tally, earlier: Sequence[Tally], table: str) -> Iterator[str]:
    known = [each for each in earlier if _counts(each, table)]
    if len(known) < LEAST_RUNS or not _counts(tally, table):
        return
    for field in sorted({name for each in known for name in each.tables[table].fields}):
        yield from _missing(tally, known, table, field)
        yield from _drift(tally, known, table, field)


def _counts(tally: Tally, table: str) -> bool:
    return table in tally.tables and tally.tables[table].items >= LEAST_ITEMS


def _missing(tally: Tally, known: Sequence[Tally], table: str, field: str) -> Iterator[str]:
    before = [each.missing_rate(table, field) for each in known]
    rate, usual = tally.missing_rate(table, field), fmean(before)
    if rate > usual + max(SIGMAS * pstdev(before), POINTS):
        yield f"missing({table}.{field}): {rate:.1%}, where {usual:.1%} is usual"


def _drift(tally: Tally, known: Sequence[Tally], table: str, field: str) -> Iterator[str]:
    kinds = Counter(kind for each in known if (kind := each.kind(table, field)))
    if not kinds:
        return
    kind = kinds.most_common(1)[0][0]
    before = [each.drift_rate(table, field, kind) for each in known]
    rate, usual = tally.drift_rate(table, field, kind), fmean(before)
    if rate > usual + max(SIGMAS * pstdev(before), POINTS):
        yield (
            f"drift({table}.{field}): {rate:.1%} of the values are no {kind}, "
            f"where {usual:.1%} is usual (now {tally.kind(table, field)})"
        )
