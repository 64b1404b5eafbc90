"""Pages, outputs and differences in words; passwords are masked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from orbweb.explain.checks import Check
from orbweb.log import mask_secrets, masked
from orbweb.model.reasons import Reason
from orbweb.model.response import Response
from orbweb.model.url import beside
from orbweb.replay.bench import Visit
from orbweb.replay.subject import Subject
from orbweb.replay.trial import Page, Parsed, items_of
from orbweb.replay.verdicts import LinkVerdict
from orbweb.spiders.wording import counted, number

MARKS = {True: "✔", False: "✘", None: "·"}
SHOWN = 20
"""Lines of a kind that are shown to a person."""
DIFF_CONTEXT = 2


def subject_lines(subject: Subject) -> Iterator[str]:
    """What is known of a request before anything is fetched."""
    request, letter = subject.request, subject.letter
    yield f"request   {request.method} {mask_secrets(request.url)}"
    if letter is not None and subject.info is not None:
        node = f" · node {letter.node[:8]}" if letter.node else ""
        yield f"failed    {letter.reason} after {counted(letter.tries, 'attempt')}{node}"
        yield f"error     {mask_secrets(letter.error)}"
        callback = request.callback_name or "parse"
        yield f"job       {subject.info.job} · callback {callback} · id {letter.id}"
    if subject.answer is not None:
        answer = subject.answer
        cut = "" if answer.is_whole else f", {number(len(answer.response.content))} of them kept"
        status = answer.response.status_code
        yield f"response  {status} · {number(answer.whole_bytes)} bytes{cut} (stored)"
    for note in subject.notes:
        yield f"note      {mask_secrets(note)}"


def page_line(page: Page) -> str:
    """What came of a fetch, in one line."""
    parts = []
    if page.response is not None:
        response = page.response
        parts = [str(response.status_code), f"{number(len(response.content))} bytes"]
        if response.elapsed is not None:
            parts.append(f"{response.elapsed:.2f} s")
        if response.history:
            parts.append(f"redirected from {response.history[0]}")
    if not page.ok:
        parts.append(f"{page.reason}: {beside(page.request.url, page.error)}")
    elif page.response is None:
        parts.append("not fetched (auto_request=False)")
    return mask_secrets(f"{page.request.method} {page.request.url}  {' · '.join(parts)}")


def parsed_lines(
    parsed: Parsed, verdicts: Sequence[LinkVerdict], most: int = SHOWN
) -> Iterator[str]:
    """Items and requests of a page, for a person."""
    whose = f" from {parsed.callback}" if parsed.callback else ""
    yield f"{counted(len(parsed.items), 'item')}{whose}"
    for item in items_of(parsed.items)[:most]:
        yield f"  {mask_secrets(json.dumps(item, ensure_ascii=False, default=str))}"
    yield from _more(len(parsed.items), most)
    queued = sum(each.queued for each in verdicts)
    yield f"{counted(len(verdicts), 'request')}, {number(queued)} would be queued"
    for each in list(verdicts)[:most]:
        callback = each.request.callback_name or "parse"
        mark, said = MARKS[each.queued], "queued" if each.queued else f"dropped: {each.reason}"
        method = "" if each.request.method == "GET" else f"{each.request.method} "
        why = "" if each.text == "new" else f" ({beside(each.request.url, each.text)})"
        yield mask_secrets(f"  {mark} {method}{each.request.url}  → {callback}  {said}{why}")
    yield from _more(len(verdicts), most)
    for text in parsed.lost:
        yield f"  ✘ not taken: {mask_secrets(text)}"
    if parsed.error:
        yield f"✘ {parsed.reason}: {mask_secrets(parsed.error)}"


def callback_note(parsed: Parsed, named: bool, known: Sequence[str]) -> str:
    """What is to be said of the callback that was called; empty for nothing.

    `named`: somebody said which; `known`: the methods that may be.
    """
    others = ", ".join(name for name in known if name != parsed.callback)
    if not parsed.callback or not others:
        return ""
    if parsed.reason is Reason.UNKNOWN_CALLBACK:
        return f"methods that take a response: {others}"
    if named:
        return ""
    return (
        f"nobody named a callback, so {parsed.callback} was called; -c NAME calls another: {others}"
    )


def _more(there: int, most: int) -> Iterator[str]:
    if there > most:
        yield f"  … and {number(there - most)} more"


def diff_lines(before: Response, after: Response) -> tuple[str, list[str]]:
    """A summary and the changed lines from one body to the other (unified diff)."""
    if b"\0" in before.content[:1000] or b"\0" in after.content[:1000]:
        same = "equal" if before.content == after.content else "different"
        sizes = f"{number(len(before.content))} and {number(len(after.content))} bytes"
        return f"binary, {same}: {sizes}", []
    old, new = before.text.splitlines(), after.text.splitlines()
    lines = list(
        difflib.unified_diff(
            old,
            new,
            f"before  {before.status_code} {before.url}",
            f"after   {after.status_code} {after.url}",
            lineterm="",
            n=DIFF_CONTEXT,
        )
    )
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    statuses = f"status {before.status_code} → {after.status_code}"
    summary = f"{statuses}: +{number(added)} −{number(removed)} lines"
    return summary, [mask_secrets(line) for line in lines]


def page_record(page: Page) -> dict[str, Any]:
    """A fetch as JSON, its body left out."""
    response = page.response
    return {
        "url": mask_secrets(page.request.url),
        "method": page.request.method,
        "id": page.request.id,
        "reason": page.reason,
        "error": mask_secrets(page.error) or None,
        "status": response.status_code if response is not None else None,
        "bytes": len(response.content) if response is not None else None,
        "headers": masked(response.headers) if response is not None else None,
        "elapsed": response.elapsed if response is not None else None,
        "history": [mask_secrets(url) for url in response.history] if response is not None else [],
    }


def visit_record(visit: Visit) -> dict[str, Any]:
    """A page, its items and its requests with their verdicts, as JSON."""
    parsed = visit.parsed
    return {
        **page_record(visit.page),
        "depth": visit.depth,
        "callback": parsed.callback or None,
        "items": items_of(parsed.items),
        "requests": [_link_record(each) for each in visit.verdicts],
        "lost": [mask_secrets(text) for text in parsed.lost],
        "reason": parsed.reason if parsed.error else visit.page.reason,
        "error": mask_secrets(parsed.error or visit.page.error) or None,
    }


def _link_record(each: LinkVerdict) -> dict[str, Any]:
    request = each.request
    return {
        "url": mask_secrets(request.url),
        "method": request.method,
        "callback": request.callback_name or "parse",
        "depth": request.depth,
        "priority": request.priority,
        "id": each.id,
        "verdict": "queued" if each.queued else "dropped",
        "reason": each.reason,
        "text": mask_secrets(each.text),
        "chain": [_check_record(check) for check in each.checks],
    }


def _check_record(check: Check) -> dict[str, Any]:
    return {"check": check.name, "passed": check.passed, "text": mask_secrets(check.text)}


def failed(visits: Sequence[Visit]) -> bool:
    """Something of these pages would have become a dead letter."""
    wrong = [visit for visit in visits if visit.parsed.error or visit.parsed.lost]
    return any(visit.parsed.reason is not Reason.DONE or visit.parsed.lost for visit in wrong)
