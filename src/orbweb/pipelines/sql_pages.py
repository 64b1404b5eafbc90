"""Which pages a database holds: the ledger that makes the effect of a page happen once."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import sqlalchemy as sa

from orbweb.pipelines.base import Page
from orbweb.sql.databases import TEXT_TYPE, ascii_text, first_wins, make_tables

TRIM_ROWS = 2000
"""Pages that are forgotten in one transaction."""

_metadata = sa.MetaData()

PAGES = sa.Table(
    "orbweb_pages",
    _metadata,
    sa.Column("run", ascii_text(64), primary_key=True),
    sa.Column("request_id", ascii_text(64), primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("claim", sa.BigInteger, nullable=False),
    sa.Column("stored", TEXT_TYPE),
    sa.Column("stored_on", sa.Date, nullable=False, index=True),
)
"""`claim` tells which transaction wrote the row. `stored`: null for a whole page; for one that
failed half-way, or of which items were refused, the keys of the items that are in (JSON)."""

Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Rest:
    """What of a page is not stored yet, and the keys of what was stored before."""

    page: Page
    known: frozenset[str]


class PageLedger:
    """The table of pages. Every method but `prepare` runs in the caller's transaction."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def prepare(self) -> None:
        """Make the table if it is missing."""
        make_tables(_metadata, self._engine)

    def claim(self, connection: sa.Connection, pages: Sequence[Page]) -> list[Rest]:
        """Enter the pages; returns those of which something is still to be stored.

        The first transaction that enters a page wins it as a whole: later attempts store nothing
        of it. A page that is not whole in the database is completed. A transaction that has
        entered the same page and is still open is waited for.
        """
        claim, today = secrets.randbits(63), datetime.now(UTC).date()
        by_place = {_place(page): page for page in reversed(pages)}  # of two attempts the first
        connection.execute(
            first_wins(self._engine, PAGES),
            [
                _row(place, claim, today, _keys_if_partial(by_place[place]))
                for place in sorted(by_place)  # in one order everywhere, so that nobody deadlocks
            ],
        )
        found = connection.execute(
            sa.select(PAGES).where(
                sa.tuple_(PAGES.c.run, PAGES.c.request_id, PAGES.c.part).in_(list(by_place))
            )
        )
        rests = []
        for row in found:
            page = by_place[(row.run, row.request_id, row.part)]
            if row.claim == claim:
                rests.append(Rest(page, frozenset()))
            elif row.stored is not None:
                known = frozenset(json.loads(row.stored))
                self._take_over(connection, page, known, row.claim, claim)
                rests.append(Rest(page, known))
        return rests

    def keep_partial(self, connection: sa.Connection, rest: Rest, refused: Iterable[str]) -> None:
        """Note that items of the page were refused, so that a later attempt may bring them."""
        keys = rest.known | {record.key for record in rest.page.records}
        self._set_stored(connection, rest.page, sorted(keys - set(refused)))

    def trim(self, connection: sa.Connection, older_than: timedelta, run: str) -> int:
        """Forget some pages that were stored long ago, but none of `run`; returns how many."""
        before = datetime.now(UTC).date() - older_than
        old = (
            sa.select(PAGES.c.run, PAGES.c.request_id, PAGES.c.part)
            .where(PAGES.c.stored_on < before, PAGES.c.run != run)
            .limit(TRIM_ROWS)
        )
        places = [tuple(row) for row in connection.execute(old)]
        if places:
            where = sa.tuple_(PAGES.c.run, PAGES.c.request_id, PAGES.c.part).in_(places)
            connection.execute(sa.delete(PAGES).where(where))
        return len(places)

    def _take_over(
        self,
        connection: sa.Connection,
        page: Page,
        known: frozenset[str],
        old_claim: int,
        claim: int,
    ) -> None:
        """Make the page ours; fails, to be tried again, when another attempt was faster."""
        moved = connection.execute(
            sa.update(PAGES).where(_is(page), PAGES.c.claim == old_claim).values(claim=claim)
        )
        if moved.rowcount != 1:
            raise PageTaken(f"page {page.origin.request_id} is being stored by another attempt")
        whole = page.origin.complete
        keys = known | {record.key for record in page.records}
        self._set_stored(connection, page, None if whole else sorted(keys))

    def _set_stored(
        self, connection: sa.Connection, page: Page, keys: Sequence[str] | None
    ) -> None:
        stored = None if keys is None else json.dumps(keys)
        connection.execute(sa.update(PAGES).where(_is(page)).values(stored=stored))


class PageTaken(Exception):
    """Two attempts complete one page at the same time: the later one tries again."""


def _place(page: Page) -> Place:
    return (page.origin.run, page.origin.request_id, page.origin.part)


def _is(page: Page) -> sa.ColumnElement[bool]:
    run, request_id, part = _place(page)
    return sa.and_(PAGES.c.run == run, PAGES.c.request_id == request_id, PAGES.c.part == part)


def _keys_if_partial(page: Page) -> str | None:
    if page.origin.complete:
        return None
    return json.dumps(sorted(record.key for record in page.records))


def _row(place: Place, claim: int, today: date, stored: str | None) -> dict[str, object]:
    run, request_id, part = place
    return {
        "run": run,
        "request_id": request_id,
        "part": part,
        "claim": claim,
        "stored": stored,
        "stored_on": today,
    }
