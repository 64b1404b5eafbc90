"""What `failed list|show` print of requests that were given up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orbweb.cli import show
from orbweb.cli.failed_find import Filter, Found, find, groups_of, only
from orbweb.cli.store import ask
from orbweb.cli.watch import meant_run, run_name
from orbweb.errors import OrbwebError
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.base import TASKS_HOST, DeadLetter
from orbweb.log import MASK, is_secret_name, mask_secrets, masked
from orbweb.model.codec import decode
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.monitor.causes import Group
from orbweb.settings import Settings

if TYPE_CHECKING:
    from orbweb.model.answer import Answer

LONGEST_ERROR = 100
"""Characters of an error that a list shows; `failed show` shows all."""
LONGEST_HARMLESS = 3
"""Characters of a word that is no secret, wherever it stands."""
SHOWN_GROUPS = 20
"""Causes of one reason that a list shows, those with the most first."""
SHOWN_TEXT = 400
"""Characters of a kept body that `failed show` shows; `orbweb shell failed:ID` has all."""


def list_letters(
    settings: Settings, job: str, run: str | None, which: Filter, limit: int, *, as_json: bool
) -> None:
    """Print dead letters grouped by cause: at most `limit` of each reason (0: all)."""
    found = ask(settings, lambda admin: find(admin, job, run, which, limit))
    letters = sorted(found.letters, key=lambda letter: (letter.reason, letter.at_ms, letter.id))
    if as_json:
        show.as_json(
            {
                "job": found.info.job,
                "run": found.info.run,
                "total": found.total,
                "reasons": dict(found.reasons.most_common()),
                "groups": [_group_record(found, group) for group in groups_of(found)],
                "letters": [record(letter) for letter in letters],
            }
        )
        return
    if not found.total:
        print(f"no failed requests in {job} · run {run_name(found.info.run)}")
        return
    for name, count in found.reasons.most_common():
        print(f"{name}  {show.number(count)}  {_text(name)}".rstrip())
        groups = groups_of(found, name)
        for group in groups[:SHOWN_GROUPS]:
            _print_group(found, group, letters)
        if len(groups) > SHOWN_GROUPS:
            left = show.number(len(groups) - SHOWN_GROUPS)
            print(f"  … and {left} more groups (--host, --since narrow it; --json has all)")
        shown = sum(letter.reason == name for letter in letters)
        if count > shown:
            print(f"  … and {show.number(count - shown)} more (--limit 0 shows all)")
    show.note(
        f"next: orbweb failed show {job} ID · orbweb shell failed:ID --spider FILE · "
        f"orbweb failed retry {job} --group GROUP"
    )


def _print_group(found: Found, group: Group, letters: Sequence[DeadLetter]) -> None:
    cause = group.cause
    words = [f"{show.number(group.count)} × {mask_secrets(cause.error)[:LONGEST_ERROR]}"]
    words += [part for part in (cause.place, cause.host) if part]
    print(f"  {cause.id}  {' · '.join(words)}")
    print(f"    first {show.moment(group.first_ms)}, last {show.moment(group.last_ms)}")
    mine = [letter for letter in letters if found.group_of(letter) == cause]
    for letter in mine or [found.samples[cause]]:
        print(f"    {letter.id}  {show.moment(letter.at_ms)}  {address(letter)}")


def _group_record(found: Found, group: Group) -> dict[str, Any]:
    cause = group.cause
    return {
        "group": cause.id,
        "count": group.count,
        "reason": cause.reason,
        "error": mask_secrets(cause.error),
        "place": cause.place or None,
        "host": cause.host,
        "first_ms": group.first_ms,
        "last_ms": group.last_ms,
        "sample": record(found.samples[cause]),
    }


def show_letter(settings: Settings, job: str, run: str | None, id: str, *, as_json: bool) -> None:
    """Print all that is known of one dead letter; `id` may be its beginning."""

    async def look(admin: Admin) -> tuple[DeadLetter, Answer | None]:
        info = await meant_run(admin, job, run)
        letter = await only(admin, info, id)
        return letter, await answer_of(admin, info, letter)

    letter, answer = ask(settings, look)
    if as_json:
        show.as_json({**record(letter), "response": answer and answer_record(answer)})
        return
    fields = record(letter)
    fields["at"] = show.moment(fields.pop("at_ms"))
    request = fields.pop("request")
    for name, value in {**fields, **(request or {})}.items():
        if value not in (None, "", {}, []):
            print(f"{name:<10} {value}")
    if answer is not None:
        _print_answer(answer, request_of(letter))
    print(f"{'meaning':<10} {_text(letter.reason)}")
    print(f"{'advice':<10} {_advice(letter.reason)}")
    show.note(
        f"next: orbweb shell failed:{letter.id[:8]} --job {job} --spider FILE · "
        f"orbweb failed retry {job} {letter.id[:8]}"
    )


def _print_answer(answer: Answer, request: Request | None) -> None:
    response = answer.response
    cut = "" if answer.is_whole else f", the first {show.size(len(response.content))} are kept"
    print(f"{'response':<10} {response.status_code} · {show.size(answer.whole_bytes)}{cut}")
    for name, value in masked(response.headers).items():
        print(f"{'':<10} {name}: {value}")
    body = response.text[:SHOWN_TEXT]
    for secret in _secrets_of(request) if request is not None else ():
        body = body.replace(secret, MASK)
    for line in mask_secrets(body).splitlines():
        print(f"{'':<10} | {line}")


def _secrets_of(request: Request) -> list[str]:
    """Values that the request carries under a secret's name: some sites repeat them."""
    headers = dict(request.requests_kwargs.get("headers") or {})
    texts = [str(value) for name, value in headers.items() if is_secret_name(str(name))]
    texts += map(str, dict(request.cookies or {}).values())
    words = {word for text in texts for word in re.split(r"[\s;=,]+", text)}
    return [word for word in words if len(word) > LONGEST_HARMLESS]


async def answer_of(admin: Admin, info: RunInfo, letter: DeadLetter) -> Answer | None:
    """What was answered last; None when nothing readable is kept of it."""
    packed = await admin.response(info, letter)
    if packed is None:
        return None
    from orbweb.model.answer import unpack_answer  # it loads a parser

    try:
        return unpack_answer(packed)
    except OrbwebError as error:
        show.note(f"the kept response of {letter.id} cannot be read: {error}")
        return None


def record(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON, with its request when that can be read; secrets masked."""
    request = request_of(letter)
    return {
        "id": letter.id,
        "reason": letter.reason,
        "error": mask_secrets(letter.error),
        "tries": letter.tries,
        "at_ms": letter.at_ms,
        "node": letter.node,
        "host": letter.host,
        "priority": letter.priority,
        "task": _task(letter) if letter.host == TASKS_HOST else None,
        "request": request and _request_record(request),
    }


def answer_record(answer: Answer) -> dict[str, Any]:
    """A kept response as JSON, without its body; secrets masked."""
    response = answer.response
    return {
        "status": response.status_code,
        "url": mask_secrets(response.url),
        "bytes": answer.whole_bytes,
        "kept_bytes": len(response.content),
        "headers": masked(response.headers),
        "elapsed": response.elapsed,
        "history": [mask_secrets(url) for url in response.history],
    }


def _request_record(request: Request) -> dict[str, Any]:
    return {
        "url": mask_secrets(request.url),
        "method": request.method,
        "callback": request.callback_name,
        "depth": request.depth,
        "parent": request.parent_id,
        "cb_kwargs": masked(request.cb_kwargs),
        "meta": masked(request.meta),
        "options": masked({name: _plain(v) for name, v in request.requests_kwargs.items() if v}),
    }


def _plain(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _task(letter: DeadLetter) -> str:
    """The task's JSON; before it stands, of a hook, how the task had ended."""
    return mask_secrets(letter.payload.rpartition(b"\n")[2].decode(errors="replace"))


def request_of(letter: DeadLetter) -> Request | None:
    """The request; None when this version cannot read it, and for tasks."""
    try:
        return decode(letter.payload)
    except OrbwebError:
        return None


def address(letter: DeadLetter) -> str:
    """What was to be fetched, for a line of a list."""
    if letter.host == TASKS_HOST:
        return f"{'hook of ' if letter.id.endswith('@end') else ''}task {_task(letter)}"
    request = request_of(letter)
    if request is None:
        return f"(unreadable, host {letter.host})"
    return mask_secrets(
        request.url if request.method == "GET" else f"{request.method} {request.url}"
    )


def _text(name: str) -> str:
    return Reason(name).text() if name in set(Reason) else ""


def _advice(name: str) -> str:
    return Reason(name).advice() if name in set(Reason) else ""
