"""A web hook that people could stand behind: it keeps the letters it gets, and answers as told."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """A local HTTP server. `status` and `body` are what it answers; GETs are heartbeats."""

    def __init__(self) -> None:
        self.letters: list[dict[str, Any]] = []
        self.arrived: list[float] = []
        self.heartbeats = 0
        self.status = 200
        self.body = '{"errcode": 0, "code": 0}'
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def told(self, rule: str, state: str = "firing") -> list[dict[str, Any]]:
        """The alarms of a rule in all letters that were taken."""
        with self._changed:
            letters = list(self.letters)
        return [
            alarm
            for letter in letters
            if letter.get("state") == state
            for alarm in letter["alarms"]
            if alarm["rule"] == rule
        ]

    def rules(self, state: str = "firing") -> list[str]:
        """The rules of all alarms that were told, in their order."""
        with self._changed:
            letters = [letter for letter in self.letters if letter.get("state") == state]
        return [alarm["rule"] for letter in letters for alarm in letter["alarms"]]

    def wait(self, rule: str, state: str = "firing", seconds: float = 15.0) -> dict[str, Any]:
        """The first alarm of a rule; waits for it."""
        deadline = time.monotonic() + seconds
        while not (found := self.told(rule, state)):
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"no {state} {rule} within {seconds} s; told: {self.letters}")
            with self._changed:
                self._changed.wait(min(left, 0.2))
        return found[0]

    def _took(self, letter: dict[str, Any]) -> None:
        with self._changed:
            if self.status == 200:
                self.letters.append(letter)
                self.arrived.append(time.monotonic())
            self._changed.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                letter = json.loads(self.rfile.read(length))
                key = self.headers.get("Idempotency-Key", "")
                receiver._took({**letter, "path": self.path, "key": key})
                self._answer()

            def do_GET(self) -> None:
                receiver.heartbeats += 1
                self._answer()

            def _answer(self) -> None:
                body = receiver.body.encode()
                self.send_response(receiver.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing on stderr."""

        return Handler
