"""What `orbweb record` does: a page, what a spider makes of it, and a test, as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orbweb.cli import show
from orbweb.cli.bench import Wish, on_bench
from orbweb.cli.new import template
from orbweb.cli.options import pairs
from orbweb.cli.scrub import Scrubber
from orbweb.errors import ConfigError
from orbweb.log import is_secret_name, mask_secrets
from orbweb.model.reasons import Reason
from orbweb.model.url import beside
from orbweb.replay.bench import Bench
from orbweb.replay.recorded import RecordedPage, file_name, record_page, write_page, yielded
from orbweb.replay.trial import Parsed
from orbweb.spiders.account import code_of
from orbweb.testing.recorded import PAGES, check_pages

TEST = Path("tests", "test_pages.py")

DONE, CALLBACK_FAILED = 0, 1

_BEFORE_CALLBACK = frozenset(
    {Reason.STATUS_REJECTED, Reason.CONTENT_TYPE, Reason.TOO_LARGE, Reason.ANTIBOT}
)
"""For these a run gives a page up before its callback has seen it."""


@dataclass(frozen=True, slots=True)
class RecordWish:
    """What is asked for on the command line."""

    target: str
    callback: str | None = None
    folder: Path = PAGES
    ignore: tuple[str, ...] = ()


def record(wish: Wish, asked: RecordWish) -> int:
    """Write the page, and the test when it is not there yet; 1 when the callback fails."""
    if wish.spider is None:
        raise ConfigError("say which spider parses the page: --spider shop.py")
    page = on_bench(wish, lambda bench: _fetch(bench, wish, asked))
    page = replace(page, file=asked.folder / file_name(page))
    (checked,) = check_pages([page], wish.changes)
    parsed = checked.parsed
    if not parsed.error:
        page = page.with_expected(yielded(parsed))
    write_page(page)
    _tell(page, parsed)
    if asked.folder == PAGES and not TEST.exists():
        TEST.write_text(template("test_pages.py.txt"), encoding="utf-8")
        show.note(f"{TEST} is written; run it with pytest, or type orbweb check")
    return CALLBACK_FAILED if parsed.error else DONE


async def _fetch(bench: Bench, wish: Wish, asked: RecordWish) -> RecordedPage:
    subject = await bench.subject(asked.target)
    request = subject.request
    if asked.callback is not None:
        request = request.replace(callback=asked.callback)
    response = subject.answer.response if subject.answer and subject.answer.is_whole else None
    if response is None:
        page = await bench.trial.fetch(request)
        if page.response is None or not page.ok:
            why = beside(page.request.url, page.error)
            raise ConfigError(
                mask_secrets(f"{request.url} cannot be recorded: {page.reason}: {why}")
            )
        request, response = page.request, page.response
    elif subject.letter is not None and subject.letter.reason in _BEFORE_CALLBACK:
        show.note(
            f"note: it failed with {subject.letter.reason}, so no run gives this page to a callback"
        )
    kind = type(bench.spider)
    spider = code_of(kind).file
    if ":" not in spider:
        spider = f"{kind.__module__}:{kind.__name__}"
    found = record_page(
        spider,
        request,
        response,
        arguments=pairs(wish.arguments, "-a"),
        ignore=asked.ignore,
    )
    return without_secrets(found)


def without_secrets(page: RecordedPage) -> RecordedPage:
    """The page without cookies, tokens and passwords, in headers, URLs and values of a request.

    The body stays as it is: it is what is parsed.
    """
    scrub = Scrubber()
    answer = dict(page.response)
    answer["headers"] = _harmless(page.response["headers"], scrub)
    answer["url"] = scrub(answer["url"])
    answer["history"] = [scrub(url) for url in answer["history"]]
    return replace(
        page,
        request=scrub.value(page.request),
        response=answer,
        arguments=scrub.value(page.arguments),
    )


def _harmless(headers: Mapping[str, str], scrub: Scrubber) -> dict[str, Any]:
    return {name: scrub(value) for name, value in headers.items() if not is_secret_name(name)}


def _tell(page: RecordedPage, parsed: Parsed) -> None:
    print(page.file)
    if parsed.error:
        show.note(f"the callback fails on it: {mask_secrets(parsed.error)}")
        show.note("correct it, then: orbweb check --update")
        return
    items, requests = len(parsed.items), len(parsed.links)
    show.note(f"{show.counted(items, 'item')} and {show.counted(requests, 'request')} are expected")
    _warn(parsed.lost)


def _warn(lost: Sequence[str]) -> None:
    for text in lost:
        show.note(f"not taken: {mask_secrets(text)}")
