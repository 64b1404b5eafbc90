"""`fetch`, `view` and `parse`: one page, as a spider would fetch and parse it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from orbweb.cli import show
from orbweb.cli.bench import Wish, on_bench
from orbweb.errors import ConfigError
from orbweb.log import mask_secrets, masked
from orbweb.replay import prompt, words
from orbweb.replay.bench import Bench, Visit
from orbweb.replay.trial import Page

FAILED = 1
"""Exit code when the page would have been given up, tried again or dropped."""


@dataclass(frozen=True, slots=True)
class ParseWish:
    """What `parse` is asked for."""

    target: str
    callback: str | None = None
    depth: int = 1
    most_pages: int = 20
    as_json: bool = False


def fetch(wish: Wish, target: str, *, headers: bool, as_json: bool) -> int:
    """Print a page's body to stdout, or its headers. Returns the exit code."""
    page = _page(wish, target)
    response = page.response
    if as_json:
        text = response.text if response is not None else None
        show.as_json({**words.page_record(page), "body": text})
    elif headers:
        _print_headers(page)
    elif response is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(response.content)
        sys.stdout.buffer.flush()
    if not page.ok:
        show.note(words.page_line(page))
    return 0 if page.ok else FAILED


def view(wish: Wish, target: str) -> int:
    """Open a page in a browser, as the spider got it. Returns the exit code."""
    page = _page(wish, target)
    show.note(words.page_line(page))
    if page.response is None:
        return FAILED
    prompt.view(page.response)
    return 0 if page.ok else FAILED


def _page(wish: Wish, target: str) -> Page:
    async def work(bench: Bench) -> Page:
        subject = await bench.subject(target)
        for note in subject.notes:
            show.note(f"note: {mask_secrets(note)}")
        return await bench.trial.fetch(subject.request)

    return on_bench(wish, work)


def _print_headers(page: Page) -> None:
    """What the request says itself (`>`), and what was answered (`<`); secrets masked."""
    sent: Mapping[str, str] = page.request.requests_kwargs.get("headers") or {}
    print(f"> {page.request.method} {mask_secrets(page.request.url)}")
    for name, value in masked(sent).items():
        print(f"> {name}: {value}")
    if page.response is None:
        return
    print(f"< {page.response.status_code}")
    for name, value in masked(page.response.headers).items():
        print(f"< {name}: {value}")


def parse(wish: Wish, asked: ParseWish) -> int:
    """Print the items of a page and its requests, each with its verdict. Returns the exit code."""

    async def work(bench: Bench) -> tuple[list[Visit], str]:
        if bench.is_bare:
            raise ConfigError("whose callback? Name the spider: --spider shop.py")
        subject = await bench.subject(asked.target)
        for note in subject.notes:
            show.note(f"note: {mask_secrets(note)}")
        visits = await bench.crawl(subject.request, asked.callback, asked.depth, asked.most_pages)
        named = bool(asked.callback or subject.request.callback)
        return visits, words.callback_note(visits[0].parsed, named, bench.trial.callbacks())

    visits, note = on_bench(wish, work)
    if asked.as_json:
        show.as_json([words.visit_record(visit) for visit in visits])
    else:
        for visit in visits:
            print(words.page_line(visit.page))
            if visit.page.ok:
                for line in words.parsed_lines(visit.parsed, visit.verdicts):
                    print(line)
        if len(visits) >= asked.most_pages > 1:
            show.note(f"stopped after {show.counted(len(visits), 'page')} (--pages)")
    if note:
        show.note(f"note: {note}")
    return FAILED if words.failed(visits) else 0
