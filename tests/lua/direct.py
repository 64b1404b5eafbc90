"""A blocking connection that the production frontier can run on, without an event loop."""

from __future__ import annotations

import socket
from collections.abc import Coroutine, Generator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import hiredis
from redis.exceptions import NoScriptError, ResponseError

T = TypeVar("T")


def run_together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T | Exception]:
    """What coroutines return or raise. All send their calls before any waits for its answer."""
    outcomes: dict[int, T | Exception] = {}
    while len(outcomes) < len(calls):
        for n, call in enumerate(calls):
            if n in outcomes:
                continue
            try:
                call.send(None)
            except StopIteration as end:
                outcomes[n] = end.value
            except Exception as error:
                outcomes[n] = error
    return [outcomes[n] for n in range(len(calls))]


def run_now(call: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns."""
    (outcome,) = run_together([call])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class _Sent:
    """Waits until somebody asks for the answer."""

    def __await__(self) -> Generator[None, None, None]:
        yield


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
        self._info: dict[str, str] = {}

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
        self.send(*words)
        await _Sent()
        return self.answer()

    async def hlen(self, key: str) -> Any:
        return await self.execute_command("HLEN", key)

    async def hkeys(self, key: str) -> Any:
        return await self.execute_command("HKEYS", key)

    async def hgetall(self, key: str) -> dict[bytes, bytes]:
        words = await self.execute_command("HGETALL", key)
        return dict(zip(words[::2], words[1::2], strict=True))

    async def info(self, section: str) -> dict[str, str]:
        """Asked once a connection: a server that restarts ends it."""
        if not self._info:
            lines = self.call("INFO", section).decode().splitlines()
            self._info = dict(line.split(":", 1) for line in lines if ":" in line)
        return self._info

    def close(self) -> None:
        self._socket.close()
