"""Which pages only one of two runs has, by the crawl log of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from orbweb.monitor.crawl_line import LineKind, time_text
from orbweb.monitor.log_reader import LineFilter, LogReader
from orbweb.monitor.run_diff import Kind, Row, Side

MOST_PAGES = 500_000
"""Of a run: all of them are held in memory."""

GROUP = "urls"
EXAMPLES = 3


class Page(NamedTuple):
    """What a run has had of a page."""

    url: str
    items: int


@dataclass(frozen=True, slots=True)
class PageDiff:
    """The rows, and some URLs for each."""

    rows: list[Row]
    examples: dict[str, list[str]]


def diff_pages(reader: LogReader, job: str, before: Side, after: Side) -> PageDiff:
    """Compare the pages of two runs."""
    old, new = (_pages(reader, job, side) for side in (before, after))
    gaps = [found for found in (old, new) if isinstance(found, str)]
    if isinstance(old, str) or isinstance(new, str):
        name = "new, gone, without items"
        return PageDiff([Row(GROUP, name, Kind.COUNT, None, None, "; ".join(gaps))], {})
    found = {
        "new pages": [new[id].url for id in new if id not in old],
        "gone pages": [old[id].url for id in old if id not in new],
        "pages without items now": [
            new[id].url for id in new if id in old and old[id].items and not new[id].items
        ],
    }
    rows = [
        Row(GROUP, name, Kind.COUNT, 0, len(urls), marked=bool(urls) and name[:3] != "new")
        for name, urls in found.items()
    ]
    return PageDiff(rows, {name: urls[:EXAMPLES] for name, urls in found.items() if urls})


def _pages(reader: LogReader, job: str, side: Side) -> dict[str, Page] | str:
    """The good pages of a run by their ids; or why they are not known."""
    if side.figures is None:
        return side.gap("figures", "its times")
    wanted = LineFilter(
        job=job,
        run=side.run,
        reasons=frozenset({LineKind.DONE}),
        since=time_text(side.figures.started_at_ms) if side.figures.started_at_ms else "",
        until=time_text(side.figures.ended_at_ms + 1000) if side.figures.ended_at_ms else "",
    )
    lines = islice(reader.backwards(wanted), MOST_PAGES + 1)
    pages = {line.id: Page(line.url, line.items) for line in lines}
    if len(pages) > MOST_PAGES:
        return f"{side.label} has more than {MOST_PAGES} pages in the log: too many to compare"
    if len(pages) < side.figures.pages:
        return f"the crawl log here has {len(pages)} of {side.figures.pages} pages of {side.label}"
    return pages
