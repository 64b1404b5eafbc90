"""A blocking connection that the production frontier can run on: its calls then never suspend."""

from __future__ import annotations

import socket
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import hiredis
from redis.exceptions import NoScriptError, ResponseError

T = TypeVar("T")


def run_now(call: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the call suspended")


def _error(text: str) -> ResponseError:
    return NoScriptError(text) if text.startswith("NOSCRIPT") else ResponseError(text)


class DirectClient:
    """What the frontier asks of `redis.asyncio.Redis`, over a blocking unix socket.

    Hundreds of thousands of calls a minute: a pool, retries and an event loop would cost more than
    the server.
    """

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(20)
        self._socket.connect(str(path))
        self._reader = hiredis.Reader(replyError=_error)

    def call(self, *words: bytes | str | int) -> Any:
        self.send(*words)
        return self.answer()

    def send(self, *words: bytes | str | int) -> None:
        self._socket.sendall(hiredis.pack_command(words))

    def answer(self) -> Any:
        while True:
            answer = self._reader.gets()
            if answer is not False:
                break
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
        if isinstance(answer, ResponseError):
            raise answer
        return answer

    async def execute_command(self, *words: bytes | str | int) -> Any:
        return self.call(*words)

    async def info(self, section: str) -> dict[str, str]:
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def close(self) -> None:
        self._socket.close()


def words(values: Sequence[Any]) -> list[bytes]:
    """Values as they stand on the wire, for comparison."""
    return [value if isinstance(value, bytes) else str(value).encode() for value in values]
