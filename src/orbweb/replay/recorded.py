"""A page kept with what a spider made of it: how it lies in a file, and what differs now."""

from __future__ import annotations

import base64
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from orbweb.engine.outputs import Refused
from orbweb.errors import ConfigError
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.replay.trial import Link, Parsed, items_of

FORMAT = 1
LONGEST_SLUG = 40
LONGEST_LINE = 400


@dataclass(frozen=True, slots=True)
class Yielded:
    """What a callback made of a page, as JSON holds it."""

    items: tuple[dict[str, Any], ...] = ()
    requests: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedPage:
    """A request, its response, and what is expected of the callback. Without secrets."""

    spider: str
    """FILE:Class as seen from the project, or module:Class."""
    request: dict[str, Any]
    response: dict[str, Any]
    arguments: dict[str, str] = field(default_factory=dict)
    """Arguments of the spider."""
    ignore: tuple[str, ...] = ()
    """Fields of items that differ each time, such as the time of the crawl."""
    expected: Yielded | None = None
    """None while nobody has seen the callback succeed."""
    file: Path = Path()

    @property
    def name(self) -> str:
        """Of its file, without ending."""
        return self.file.stem

    @property
    def callback(self) -> str:
        return self.request["callback"] or "parse"

    def page(self) -> tuple[Request, Response]:
        """The request and the response, as the callback got them."""
        asked = self.request
        request = Request(
            asked["url"],
            asked["method"],
            callback=asked["callback"] or None,
            cb_kwargs=asked["cb_kwargs"],
            meta=asked["meta"],
            **asked["custom"],
        )
        request.depth = asked["depth"]
        request.id = request.fingerprint
        answer = self.response
        response = Response(
            answer["url"],
            answer["status"],
            _content(answer),
            answer["headers"],
            request=request,
            encoding=answer["encoding"],
            history=answer["history"],
        )
        return request, response

    def with_expected(self, expected: Yielded) -> RecordedPage:
        """The page with what its callback makes of it now."""
        return replace(self, expected=expected)


def record_page(
    spider: str,
    request: Request,
    response: Response,
    *,
    arguments: Mapping[str, str],
    ignore: Sequence[str] = (),
) -> RecordedPage:
    """A page as it was fetched. Raises `ConfigError` for values that JSON cannot hold."""
    answer: dict[str, Any] = {
        "url": response.url,
        "status": response.status_code,
        "headers": dict(response.headers),
        "encoding": response.encoding,
        "history": list(response.history),
    }
    try:
        answer["text"] = response.content.decode("utf-8")
    except UnicodeDecodeError:
        answer["base64"] = base64.b64encode(response.content).decode()
    asked = {
        "url": request.url,
        "method": request.method,
        "callback": request.callback_name,
        "depth": request.depth,
        "cb_kwargs": request.cb_kwargs,
        "meta": request.meta,
        "custom": request.custom,
    }
    try:
        asked = json.loads(json.dumps(asked))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the request of {request.url} cannot be recorded: cb_kwargs, meta and attributes must "
            f"be what JSON can hold ({error})"
        ) from error
    return RecordedPage(spider, asked, answer, dict(arguments), tuple(ignore))


def file_name(page: RecordedPage) -> str:
    """A name that tells the page from others of the spider."""
    request, _ = page.page()
    path = re.sub(r"^\w+://[^/]*", "", request.url)
    slug = re.sub(r"[^A-Za-z0-9]+", "-", path).strip("-")[:LONGEST_SLUG].strip("-") or "home"
    spider = page.spider.rpartition(":")[2]
    return f"{spider}-{page.callback}-{slug}-{request.fingerprint[:6]}.json"


def write_page(page: RecordedPage) -> None:
    """Write the page to its file. Raises `ConfigError` when that cannot be written."""
    expected = page.expected
    record = {
        "format": FORMAT,
        "spider": page.spider,
        "arguments": page.arguments,
        "ignore": page.ignore,
        "request": page.request,
        "response": page.response,
        "items": None if expected is None else expected.items,
        "requests": None if expected is None else expected.requests,
    }
    try:
        page.file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False)
        page.file.write_text(f"{text}\n", encoding="utf-8", errors="surrogatepass")
    except OSError as error:
        raise ConfigError(f"{page.file} cannot be written: {error.strerror}") from error


def read_page(file: Path) -> RecordedPage:
    """Raises `ConfigError` for what is no recorded page."""
    try:
        found = json.loads(file.read_text(encoding="utf-8", errors="surrogatepass"))
        if found["format"] != FORMAT:
            raise ConfigError(
                f"{file} has format {found['format']}; this version reads {FORMAT}: record it again"
            )
        known = found["items"] is not None
        expected = Yielded(tuple(found["items"]), tuple(found["requests"])) if known else None
        return RecordedPage(
            found["spider"],
            found["request"],
            found["response"],
            found["arguments"],
            tuple(found["ignore"]),
            expected,
            file,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} is no page of orbweb record: {error!r}") from error


def yielded(parsed: Parsed) -> Yielded:
    """What the callback has yielded, in the form in which it is compared."""
    return Yielded(
        tuple(_plain(item) for item in items_of(parsed.items)),
        tuple(_plain(_link(link)) for link in parsed.links),
    )


def differences(page: RecordedPage, found: Yielded) -> list[str]:
    """What differs from what is expected, a line each; empty when nothing does."""
    expected = page.expected
    if expected is None:
        return ["nothing is expected of it yet: orbweb check --update"]
    skip = frozenset(page.ignore)
    return [
        *_differences("item", expected.items, found.items, skip),
        *_differences("request", expected.requests, found.requests, frozenset()),
    ]


def _differences(
    noun: str,
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    skip: frozenset[str],
) -> Iterator[str]:
    old, new = ([_without(row, skip) for row in rows] for rows in (before, after))
    if len(old) == len(new):
        for number, (was, now) in enumerate(zip(old, new, strict=True), 1):
            for name in [*was, *(name for name in now if name not in was)]:
                if was.get(name) != now.get(name):
                    change = f"{_short(was.get(name))} → {_short(now.get(name))}"
                    yield f"{noun} {number}: {name}: {change}"
        return
    yield f"{len(old)} {noun}s were expected, {len(new)} came"
    for line in difflib.ndiff([_short(row) for row in old], [_short(row) for row in new]):
        if line[0] in "+-":
            yield f"{noun} {'gone' if line[0] == '-' else 'new'}: {line[2:]}"


def _without(row: Mapping[str, Any], skip: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in skip}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…"


def _link(link: Link) -> dict[str, Any]:
    request, admitted = link
    record: dict[str, Any] = {
        "url": request.full_url,
        "method": request.method,
        "callback": request.callback_name or "parse",
    }
    for name in ("cb_kwargs", "meta"):
        if value := getattr(request, name):
            record[name] = value
    if isinstance(admitted, Refused):
        record["dropped"] = str(admitted.reason)
    return record


def _plain(value: Any) -> Any:
    """As JSON gives it back; what JSON does not know becomes text."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))


def _content(answer: Mapping[str, Any]) -> bytes:
    if "base64" in answer:
        return base64.b64decode(answer["base64"])
    return str(answer["text"]).encode("utf-8", errors="surrogatepass")
