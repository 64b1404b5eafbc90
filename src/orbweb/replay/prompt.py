"""What a person has at the prompt: a request, its response, and what can be done with them."""

from __future__ import annotations

import contextlib
import tempfile
import webbrowser
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from orbweb.errors import OrbwebError
from orbweb.frontier.base import RunState
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.replay.bench import Bench
from orbweb.replay.subject import Subject, plain_request
from orbweb.replay.trial import Page, Parsed
from orbweb.replay.words import diff_lines, page_line, parsed_lines, subject_lines

T = TypeVar("T")

Call = Callable[[Awaitable[T]], T]

SHOWN_DIFF = 60
"""Changed lines that `diff` shows unless it is asked for more."""

HELP = """\
request, response, spider   what is at hand; response is None before a fetch
fetch(URL or Request)       fetch it as the spider would; 'curl …' is understood too
view()                      open the response in a browser
refetch()                   fetch the request once more
diff(lines=60)              what changed between the response before and the one now
run(callback=None)          call the callback on the response: items, requests with verdicts
requeue()                   put a failed request back into its queue
shelp()                     this text"""


class Prompt:
    """The names at the prompt, and what they do. Called on the prompt's thread."""

    def __init__(
        self, bench: Bench, subject: Subject, call: Callable[[Awaitable[Any]], Any], how: str
    ) -> None:
        """`call` awaits something on the loop of the bench. `how`: options to name the store."""
        self._bench = bench
        self._subject = subject
        self._call = call
        self._how = how
        self._before: Response | None = None
        self.got_page = True
        """The callback would get the page that was to be fetched last; true when none was."""
        self.names: dict[str, Any] = {
            "request": subject.request,
            "response": subject.answer.response if subject.answer is not None else None,
            "spider": bench.spider,
            "Request": Request,
            **{
                action.__name__: action
                for action in (
                    self.fetch,
                    self.view,
                    self.refetch,
                    self.diff,
                    self.run,
                    self.requeue,
                    self.shelp,
                )
            },
        }

    @property
    def request(self) -> Request:
        found: Request = self.names["request"]
        return found

    @property
    def response(self) -> Response | None:
        found: Response | None = self.names["response"]
        return found

    def banner(self) -> str:
        """What is at hand, and what can be done with it."""
        spider = self._bench.spider
        named = "none named: --spider shop.py" if self._bench.is_bare else spider.name
        return "\n".join([*subject_lines(self._subject), f"spider    {named}", "", HELP, ""])

    def fetch(self, what: str | Request) -> Response | None:
        """Fetch a page by the spider's full download path; it becomes `request` and `response`."""
        request = plain_request(what) if isinstance(what, str) else what
        for note in self._bench.name(request) if not request.id else ():
            print(f"note: {note}")
        self.names["request"] = request
        self._before = None
        return self._fetch(request)

    def refetch(self) -> Response | None:
        """Fetch `request` once more, as it is now; `diff()` compares."""
        if self.response is not None:
            self._before = self.response
        return self._fetch(self.request)

    def begin(self, say: Callable[[str], None]) -> None:
        """Fetch a page that is nobody's yet; what a run has is left as it is stored."""
        if self._subject.letter is None and self._subject.info is None:
            self._fetch(self.request, say)

    def _fetch(self, request: Request, say: Callable[[str], None] = print) -> Response | None:
        self.got_page = False
        page: Page = self._call(self._bench.trial.fetch(request))
        self.got_page = page.ok
        say(page_line(page))
        self.names["response"] = page.response
        return page.response

    def diff(self, lines: int = SHOWN_DIFF) -> None:
        """Print what differs between the response before `refetch()` and the one now."""
        if self._before is None:
            print("nothing to compare: refetch() first")
        elif self.response is None:
            print("the last fetch gave no response")
        else:
            summary, changed = diff_lines(self._before, self.response)
            for line in changed[:lines]:
                print(line)
            if len(changed) > lines:
                print(f"… and {len(changed) - lines} more lines: diff({len(changed)})")
            print(summary)

    def run(self, callback: str | None = None) -> Parsed:
        """Call the callback of `request` (or another method) on `response`. Nothing is stored."""
        parsed, verdicts = self._call(self._bench.parse(self.request, self.response, callback))
        for line in parsed_lines(parsed, verdicts):
            print(line)
        found: Parsed = parsed
        return found

    def view(self) -> Path | None:
        """Open the response in a browser. Returns the file."""
        if self.response is None:
            print("there is no response: fetch() or refetch() first")
            return None
        return view(self.response)

    def requeue(self) -> bool:
        """Put the failed request back into its queue, with all retries anew."""
        admin, letter, info = self._bench.admin, self._subject.letter, self._subject.info
        if admin is None or letter is None or info is None:
            print("nothing to put back: this request was not given up")
            return False
        done = self._call(admin.retry(info, [letter.id]))
        if not done:
            print(f"{letter.id} is not among the failed requests any more: nothing was done")
            return False
        named = f" --run-id {info.run}" if info.run else ""
        print(f"{letter.id} is back in the queue of {info.job}, as it was stored")
        if info.status.state is RunState.DONE:
            print("next: start the spider again, unless it runs")
        print(f"undo: orbweb pause {info.job} --job{named}{self._how}   holds it, and all others")
        print(f"      orbweb resume {info.job} --job{named}{self._how}  goes on")
        return True

    def shelp(self) -> None:
        """Print what there is."""
        print(HELP)


def view(response: Response) -> Path:
    """Write the body into a file of its own and open that in a browser, if there is one."""
    file = written(response)
    opened = False
    with contextlib.suppress(webbrowser.Error, OSError):
        opened = webbrowser.open(file.as_uri())
    print(f"{'opened' if opened else 'no browser here; written to'} {file}")
    return file


def written(response: Response) -> Path:
    """A file with the body. A page gets a `<base>`, so that its pictures are found."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    body, suffix = response.content, _SUFFIXES.get(kind, ".html" if not kind else ".txt")
    if suffix == ".html" and b"<base" not in body[:16_384].lower():
        try:
            base = f'<base href="{response.url}">'.encode(response.encoding)
        except (UnicodeEncodeError, LookupError, OrbwebError):
            base = b""
        at = body.lower().find(b"<head>") + len(b"<head>")
        at = at if at >= len(b"<head>") else 0
        body = body[:at] + base + body[at:]
    with tempfile.NamedTemporaryFile(prefix="orbweb-", suffix=suffix, delete=False) as file:
        file.write(body)
    return Path(file.name)


_SUFFIXES = {
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "application/json": ".json",
    "application/xml": ".xml",
    "text/xml": ".xml",
    "text/plain": ".txt",
    "text/css": ".css",
    "text/csv": ".csv",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "application/pdf": ".pdf",
}
