"""How people name a run of a job: `books@last`, `books@yesterday`, `books@20261130-0210`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orbweb.errors import ConfigError

DAY_SECONDS = 86_400


class RunRef(NamedTuple):
    """A run as it was typed: of which job, and which one."""

    job: str
    which: str

    @property
    def text(self) -> str:
        return f"{self.job}@{self.which}"


@dataclass(frozen=True, slots=True)
class Known:
    """A run that the store knows of, living or kept."""

    job: str
    run: str
    epoch: str
    started_at_ms: int


def read_refs(before: str, after: str | None) -> tuple[RunRef, RunRef]:
    """The two runs that are meant; of a job alone, its last two. Raises `ConfigError`."""
    if after is None:
        if "@" in before:
            raise ConfigError(f"compare {before} with which run? Such as {_job(before)}@last")
        return RunRef(before, "previous"), RunRef(before, "last")
    refs = [RunRef(*_split(text)) for text in (before, after)]
    return refs[0], refs[1]


def _split(text: str) -> tuple[str, str]:
    job, at, which = text.rpartition("@")
    return (job, which) if at else (text, "last")


def _job(text: str) -> str:
    return _split(text)[0]


def find_run(ref: RunRef, known: Sequence[Known], *, now: Callable[[], float] = time.time) -> Known:
    """The run that is meant, of those of its job, the latest started first.

    Raises `ConfigError` that lists what there is.
    """
    if not known:
        raise ConfigError(f"{ref.text}: the store knows no run of a job {ref.job!r}")
    found = _named(ref.which, known, now())
    if found is not None:
        return found
    names = ", ".join(dict.fromkeys(one.run or one.epoch for one in known[:10]))
    raise ConfigError(
        f"{ref.text}: no such run; there are last, previous, today, yesterday and {names}"
    )


def _named(which: str, known: Sequence[Known], now: float) -> Known | None:
    places = {"last": 0, "previous": 1}
    days = {"today": 0, "yesterday": 1}
    if which in places:
        place = places[which]
        return known[place] if place < len(known) else None
    if which in days:
        day = time.localtime(now - days[which] * DAY_SECONDS)[:3]
        fits = (one for one in known if time.localtime(one.started_at_ms / 1000)[:3] == day)
        return next(fits, None)
    exact = [one for one in known if which in (one.run, one.epoch)]
    if exact:
        return exact[0]
    begin = [one for one in known if which and one.epoch.startswith(which)]
    return begin[0] if len(begin) == 1 else None
