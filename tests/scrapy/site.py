"""A web site for crawls of a test: it answers as the test says and remembers every request."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self


class Hit(NamedTuple):
    """One request that the site received."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]
    at: float
    """Seconds of the monotonic clock."""


class Page(NamedTuple):
    """An answer, given after `delay` seconds."""

    body: str = "<title>page</title>"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0


Answer = Callable[[Hit], Page]


def links(*paths: str) -> Page:
    """A page with links."""
    return Page("".join(f'<a href="{path}">x</a>' for path in paths))


class Site:
    """Answers from threads, one a connection."""

    def __init__(self, answer: Answer = lambda hit: Page()) -> None:
        self.hits: list[Hit] = []
        self.open_now = self.most_open = 0
        self._lock = threading.Lock()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fields = {name.lower(): value for name, value in self.headers.items()}
                hit = Hit(self.command, self.path, body, fields, time.monotonic())
                with site._lock:
                    site.hits.append(hit)
                    site.open_now += 1
                    site.most_open = max(site.most_open, site.open_now)
                page = answer(hit)
                time.sleep(page.delay)
                with site._lock:
                    site.open_now -= 1
                data = page.body.encode()
                self.send_response(page.status)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                for name, value in page.headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                """The site's own list is the log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def counts(self) -> Counter[str]:
        """How often each path was asked for."""
        return Counter(hit.path for hit in self.hits)

    def paths(self) -> list[str]:
        """The paths in the order in which they were asked for."""
        return [hit.path for hit in self.hits]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
