"""What `orbweb ledger` does: a look at what consumers remember in a database, and its trimming."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from orbweb.cli import show
from orbweb.cli.options import project_settings
from orbweb.consume.consumer import Patience
from orbweb.consume.ledger import Ledger, LedgerBook, RunKeys
from orbweb.errors import ConfigError
from orbweb.pipelines.sql_tables import open_engine


def list_runs(to: str | None, *, as_json: bool) -> None:
    """How many keys the ledger holds of each run."""
    runs = _book(to).runs()
    if as_json:
        show.as_json([_row(each) for each in runs])
        return
    show.as_table(
        ("RUN", "KEYS", "FIRST", "LAST"),
        [(each.run or "-", each.keys, each.first_on, each.last_on) for each in runs],
    )


def trim(to: str | None, runs: tuple[str, ...], older_than_days: int | None, *, yes: bool) -> None:
    """Forget the keys of some runs, after asking."""
    if bool(runs) == (older_than_days is not None):
        raise ConfigError("say which keys: name runs, or give --older-than DAYS")
    book = _book(to)
    known = {each.run: each for each in book.runs()}
    for run in runs:
        if run not in known:
            raise ConfigError(f"the ledger has no run {run!r}: see orbweb ledger list")
    chosen = [known[run] for run in runs] or _older(known.values(), older_than_days or 0)
    keys = sum(each.keys for each in chosen)
    if not keys:
        show.note("nothing to forget")
        return
    question = (
        f"Forget {show.counted(keys, 'key')} of {show.counted(len(chosen), 'run')}? Their messages "
        "would be stored again if they were read again."
    )
    if show.agree(question, yes):
        removed = sum(book.trim(each.run) for each in chosen)
        print(f"{show.counted(removed, 'key')} forgotten")


def dead_letters(to: str | None, limit: int, *, as_json: bool) -> None:
    """The messages that could not be stored, with their errors; `limit` 0 shows all."""
    book = _book(to)
    dead = book.count_dead()
    letters = book.dead_letters(limit or dead)
    if as_json:
        show.as_json([{**each, "message": each["message"].hex()} for each in letters])
        return
    show.as_table(
        ("PLACE", "POSITION", "TABLE", "KEY", "ERROR"),
        [
            (each["place"], each["position"], each["item_table"] or "-", each["item_key"] or "-",
             each["error"])
            for each in letters
        ],
    )  # fmt: skip
    left = dead - len(letters)
    if left > 0:
        show.note(f"and {show.number(left)} more: --limit 0 shows all")
    if letters:
        show.note("try them once more: orbweb consume --retry-dead, with the same --to")


def _book(to: str | None) -> LedgerBook:
    """Raises `StoreUnavailable` when the database does not answer."""
    url = to or project_settings((), None)["SQL_URL"]
    if not url:
        raise ConfigError("say which database: --to URL, or the setting SQL_URL")
    ledger = Ledger(open_engine(url), "")
    Patience(threading.Event()).ask(ledger.prepare, within_seconds=0)
    return ledger.book()


def _older(runs: Any, days: int) -> list[RunKeys]:
    before = datetime.now(UTC).date() - timedelta(days=days)
    return [each for each in runs if each.last_on < before]


def _row(each: RunKeys) -> dict[str, Any]:
    return {
        "run": each.run,
        "keys": each.keys,
        "first_on": each.first_on.isoformat(),
        "last_on": each.last_on.isoformat(),
    }
