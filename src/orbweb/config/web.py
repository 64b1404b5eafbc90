"""How sources ask servers over HTTP, and what their errors mean to who follows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from orbweb.errors import ConfigError, SourceUnavailable
from orbweb.log import mask_secrets

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 5.0
LONGEST_ANSWER = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered. `text` is the body."""

    status: int
    text: str
    headers: Mapping[str, str]

    def json(self, name: str) -> Any:
        """Raises `SourceUnavailable` when the body is no JSON: that is some other server."""
        try:
            return json.loads(self.text)
        except ValueError as error:
            raise SourceUnavailable(f"{name} does not answer as it should: {error}") from error


class Web:
    """One server of one source. All calls raise `SourceUnavailable` when it does not answer."""

    def __init__(self, base: str, name: str) -> None:
        self._base = base
        self._name = name
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, method: str, path: str, seconds: float = 0.0, **kwargs: Any) -> Answer:
        """One exchange; `seconds` is how much longer than usual the answer may take."""
        async with self.open(method, path, seconds, **kwargs) as reply:
            body = await reply.content.read(LONGEST_ANSWER)
            if not reply.content.at_eof():
                raise SourceUnavailable(
                    f"{self._name} answers with more than {LONGEST_ANSWER} bytes"
                )
            return Answer(reply.status, body.decode(errors="replace"), reply.headers)

    @asynccontextmanager
    async def open(
        self, method: str, path: str, seconds: float = 0.0, **kwargs: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer while it comes."""
        if self._session is None:
            self._session = aiohttp.ClientSession(headers={"User-Agent": "orbweb"})
        wait = seconds + ANSWER_SECONDS
        timeout = aiohttp.ClientTimeout(
            total=wait + CONNECT_SECONDS, connect=CONNECT_SECONDS, sock_read=wait
        )
        try:
            async with self._session.request(
                method, self._base + path, timeout=timeout, allow_redirects=False, **kwargs
            ) as reply:
                yield reply
        except (aiohttp.ClientError, OSError) as error:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise SourceUnavailable(
                f"{self._name} does not answer: {mask_secrets(text)}"
            ) from error

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def refused(name: str, answer: Answer) -> ConfigError | SourceUnavailable:
    """The error for an answer that is none: credentials that no waiting mends, or all else."""
    text = f"{name} answers {answer.status}: {answer.text.strip()[:200] or 'nothing'}"
    if answer.status in (401, 403):
        return ConfigError(f"{text}. Correct user, password or token in CONFIG_SOURCE")
    return SourceUnavailable(text)
