"""What `failed retry|drop|export` do with requests that were given up, however many there are."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import typer

from orbweb.cli import show
from orbweb.cli.failed import answer_of, answer_record, record
from orbweb.cli.failed_find import Filter, Found, find, fitting, groups_of
from orbweb.cli.store import ask
from orbweb.cli.watch import meant_run, refuse_unclear_run, run_name
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.settings import Settings

PAGE = 500
"""Requests that are put back or dropped in one step."""
SHOWN_GROUPS = 20


@dataclass(frozen=True, slots=True)
class Consent:
    """How far an act goes."""

    yes: bool = False
    """Nobody is asked."""
    dry_run: bool = False
    """Only say what would be done."""


def retry(settings: Settings, job: str, run: str | None, which: Filter, consent: Consent) -> None:
    """Let dead letters return to their queues, after a question."""
    _redrive(settings, job, run, which, consent, drop=False)


def drop(settings: Settings, job: str, run: str | None, which: Filter, consent: Consent) -> None:
    """Forget dead letters for good, after a question."""
    _redrive(settings, job, run, which, consent, drop=True)


def export(settings: Settings, job: str, run: str | None, which: Filter, file: Path | None) -> None:
    """Write what is known of dead letters as lines of JSON, secrets masked. `file` None: stdout."""

    async def write(admin: Admin) -> int:
        info = await meant_run(admin, job, run)
        count = 0
        with _opened(file) as out:
            async for letter in fitting(admin, info, which):
                answer = await answer_of(admin, info, letter)
                line = {**record(letter), "response": answer and answer_record(answer)}
                out.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
                count += 1
        return count

    count = ask(settings, write)
    show.note(f"{show.counted(count, 'failed request')} written")


@contextmanager
def _opened(file: Path | None) -> Iterator[TextIO]:
    if file is None:
        yield sys.stdout
        return
    try:
        with file.open("x", encoding="utf-8", errors="backslashreplace") as out:
            yield out
    except FileExistsError:
        raise ConfigError(f"{file} is there already: name another file") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error}") from error


def _redrive(
    settings: Settings, job: str, run: str | None, which: Filter, consent: Consent, *, drop: bool
) -> None:
    async def act(admin: Admin) -> bool:
        if drop:
            await refuse_unclear_run(admin, job, run)
        found = await find(admin, job, run, which, 1)
        if not found.total:
            print("no failed request fits: nothing was done")
            return False
        if consent.dry_run:
            _tell(found, drop=drop)
            return True
        if not await asyncio.to_thread(show.agree, _question(found, drop=drop), consent.yes):
            print("nothing was done")
            return True
        # What is given up after the count was not agreed to; a retried one may be among it.
        done = await _move(admin, found, replace(which, until_ms=found.last_ms), drop=drop)
        if drop:
            print(f"{show.counted(done, 'failed request')} forgotten; this cannot be undone")
            return True
        print(f"{show.counted(done, 'failed request')} back in the queue, with all retries anew")
        named = f" --run-id {found.info.run}" if found.info.run else ""
        show.note(
            f"next: start the spider again{f' with{named}' if named else ''}, unless it runs\n"
            f"hold back: orbweb pause {job} --job{named} (orbweb resume goes on); what fails again "
            "is listed again"
        )
        return True

    if not ask(settings, act):
        raise typer.Exit(3)


async def _move(admin: Admin, found: Found, which: Filter, *, drop: bool) -> int:
    move = admin.drop if drop else admin.retry
    done, page = 0, list[str]()
    async for letter in fitting(admin, found.info, which):
        page.append(letter.id)
        if len(page) >= PAGE:
            done += await move(found.info, page)
            page.clear()
    return done + await move(found.info, page)


def _question(found: Found, *, drop: bool) -> str:
    what = show.counted(found.total, "failed request")
    counts = [f"{name} {show.number(count)}" for name, count in found.reasons.most_common()]
    where = f"{found.info.job} · run {run_name(found.info.run)} ({', '.join(counts)})"
    if drop:
        return f"Forget {what} of {where} for good?"
    return f"Put {what} of {where} back into the queue?"


def _tell(found: Found, *, drop: bool) -> None:
    print(f"{_question(found, drop=drop)} Nothing was done (--dry-run).")
    groups = groups_of(found)
    for group in groups[:SHOWN_GROUPS]:
        cause = group.cause
        places = " · ".join(part for part in (cause.error, cause.place, cause.host) if part)
        print(f"  {cause.id}  {show.number(group.count)} × {cause.reason} · {places}")
    if len(groups) > SHOWN_GROUPS:
        print(f"  … and {show.number(len(groups) - SHOWN_GROUPS)} more groups")
