"""What `failed list|show|retry|drop` do with requests that were given up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orbweb.cli import show
from orbweb.cli.store import ask
from orbweb.cli.watch import run_name
from orbweb.errors import ConfigError, OrbwebError
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.base import TASKS_HOST, DeadLetter
from orbweb.log import mask_secrets
from orbweb.model.codec import decode
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.settings import Settings

LONGEST_ERROR = 100
"""Characters of an error that a list shows; `failed show` shows all."""
SHOWN_MATCHES = 5


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant: all that fit every part that is given."""

    ids: tuple[str, ...] = ()
    """Beginnings of ids; each must fit at least one."""
    reason: str | None = None
    host: str | None = None

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in {str(reason) for reason in Reason}:
            raise ConfigError(f"--reason {self.reason} is none; see `orbweb failed list JOB`")

    @property
    def empty(self) -> bool:
        return not (self.ids or self.reason or self.host)

    def fits(self, letter: DeadLetter) -> bool:
        return (
            (not self.ids or letter.id.startswith(self.ids))
            and self.reason in (None, letter.reason)
            and self.host in (None, letter.host)
        )


def chosen(
    ids: Sequence[str] | None, reason: str | None, host: str | None, *, everything: bool
) -> Filter:
    """The filter of an act; `ConfigError` when it would be everything and nobody said so."""
    which = Filter(tuple(ids or ()), reason, host)
    if which.empty and not everything:
        raise ConfigError("which ones? Give ids, --reason, --host or --all")
    if not which.empty and everything:
        raise ConfigError("--all and a choice exclude each other")
    return which


@dataclass(slots=True)
class Found:
    """Dead letters of a run that fit a filter."""

    info: RunInfo
    letters: list[DeadLetter] = field(default_factory=list)
    """At most as many as were asked for, in no order."""
    reasons: Counter[str] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)


def list_letters(
    settings: Settings, job: str, run: str | None, which: Filter, limit: int, *, as_json: bool
) -> None:
    """Print dead letters grouped by reason: at most `limit` of each reason (0: all)."""
    found = ask(settings, lambda admin: find(admin, job, run, which, limit))
    letters = sorted(found.letters, key=lambda letter: (letter.reason, letter.at_ms, letter.id))
    if as_json:
        show.as_json(
            {
                "job": found.info.job,
                "run": found.info.run,
                "reasons": dict(found.reasons.most_common()),
                "letters": [record(letter) for letter in letters],
            }
        )
        return
    if not found.ids:
        print(f"no failed requests in {job} · run {run_name(found.info.run)}")
        return
    for name, count in found.reasons.most_common():
        print(f"{name}  {show.number(count)}  {_text(name)}")
        mine = [letter for letter in letters if letter.reason == name]
        for letter in mine:
            address = _address(letter)
            error = mask_secrets((letter.error.splitlines() or [""])[0])
            error = error.removesuffix(f" for {address}")[:LONGEST_ERROR]
            print(f"  {letter.id}  {show.moment(letter.at_ms)}  {address}  {error}".rstrip())
        if count > len(mine):
            print(f"  … and {show.number(count - len(mine))} more (--limit 0 shows all)")
    show.note(f"next: orbweb failed show {job} ID · orbweb failed retry {job} --reason REASON")


def show_letter(settings: Settings, job: str, run: str | None, id: str, *, as_json: bool) -> None:
    """Print all that is known of one dead letter; `id` may be its beginning."""
    found = ask(settings, lambda admin: find(admin, job, run, Filter(ids=(id,)), 0))
    letter = _only(found, id)
    if as_json:
        show.as_json(record(letter))
        return
    fields = record(letter)
    fields["at"] = show.moment(fields.pop("at_ms"))
    request = fields.pop("request")
    for name, value in {**fields, **(request or {})}.items():
        if value not in (None, "", {}, []):
            print(f"{name:<10} {value}")
    print(f"{'meaning':<10} {_text(letter.reason)}")
    print(f"{'advice':<10} {_advice(letter.reason)}")
    show.note(f"next: orbweb failed retry {job} {letter.id[:8]}")


def retry(settings: Settings, job: str, run: str | None, which: Filter, *, yes: bool) -> None:
    """Let dead letters return to their queues, after a question."""
    _redrive(settings, job, run, which, yes=yes, drop=False)


def drop(settings: Settings, job: str, run: str | None, which: Filter, *, yes: bool) -> None:
    """Forget dead letters for good, after a question."""
    _redrive(settings, job, run, which, yes=yes, drop=True)


def _redrive(
    settings: Settings, job: str, run: str | None, which: Filter, *, yes: bool, drop: bool
) -> None:
    async def act(admin: Admin) -> None:
        found = await find(admin, job, run, which, 0)
        if not found.ids:
            print("no failed request fits: nothing was done")
            return
        what = show.counted(len(found.ids), "failed request")
        where = f"{job} · run {run_name(found.info.run)} ({_counts(found.reasons)})"
        if drop:
            question = f"Forget {what} of {where} for good?"
        else:
            question = f"Put {what} of {where} back into the queue?"
        if not await asyncio.to_thread(show.agree, question, yes):
            print("nothing was done")
            return
        done = await (admin.drop if drop else admin.retry)(found.info, found.ids)
        if drop:
            print(f"{show.counted(done, 'failed request')} forgotten; this cannot be undone")
            return
        print(f"{show.counted(done, 'failed request')} back in the queue, with all retries anew")
        named = f" with --run-id {found.info.run}" if found.info.run else ""
        show.note(f"next: start the spider again{named}, unless it runs")

    ask(settings, act)


async def find(admin: Admin, job: str, run: str | None, which: Filter, limit: int) -> Found:
    """Dead letters that fit; `letters` has at most `limit` for each reason (0: all)."""
    found = Found(await admin.find(job, run))
    async for letter in admin.dead_letters(found.info):
        if not which.fits(letter):
            continue
        found.ids.append(letter.id)
        found.reasons[letter.reason] += 1
        if not limit or found.reasons[letter.reason] <= limit:
            found.letters.append(letter)
    return found


def record(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON, with its request when that can be read."""
    request = _request(letter)
    return {
        "id": letter.id,
        "reason": letter.reason,
        "error": mask_secrets(letter.error),
        "tries": letter.tries,
        "at_ms": letter.at_ms,
        "host": letter.host,
        "priority": letter.priority,
        "task": _task(letter) if letter.host == TASKS_HOST else None,
        "request": request and _request_record(request),
    }


def _request_record(request: Request) -> dict[str, Any]:
    return {
        "url": mask_secrets(request.url),
        "method": request.method,
        "callback": request.callback_name,
        "depth": request.depth,
        "parent": request.parent_id,
        "cb_kwargs": request.cb_kwargs,
        "meta": request.meta,
    }


def _task(letter: DeadLetter) -> str:
    """The task's JSON; before it stands, of a hook, how the task had ended."""
    return mask_secrets(letter.payload.rpartition(b"\n")[2].decode(errors="replace"))


def _request(letter: DeadLetter) -> Request | None:
    try:
        return decode(letter.payload)
    except OrbwebError:
        return None


def _only(found: Found, id: str) -> DeadLetter:
    if not found.letters:
        raise ConfigError(f"no failed request of {found.info.job} has an id that begins with {id}")
    if len(found.letters) > 1:
        some = ", ".join(sorted(found.ids)[:SHOWN_MATCHES])
        raise ConfigError(f"{len(found.letters)} failed requests begin with {id}: {some}")
    return found.letters[0]


def _address(letter: DeadLetter) -> str:
    if letter.host == TASKS_HOST:
        return f"{'hook of ' if letter.id.endswith('@end') else ''}task {_task(letter)}"
    request = _request(letter)
    if request is None:
        return f"(unreadable, host {letter.host})"
    return mask_secrets(
        request.url if request.method == "GET" else f"{request.method} {request.url}"
    )


def _counts(reasons: Counter[str]) -> str:
    return ", ".join(f"{name} {show.number(count)}" for name, count in reasons.most_common())


def _text(name: str) -> str:
    return Reason(name).text() if name in set(Reason) else ""


def _advice(name: str) -> str:
    return Reason(name).advice() if name in set(Reason) else ""
