"""The dead-man's switch: an outside service hears that all is watched, or misses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from orbweb.alarms.channels.base import TIMEOUT_SECONDS
from orbweb.log import get_logger

log = get_logger("orbweb.alarms")


class Heartbeat:
    """Fetches an address from time to time. It stops when nobody judges or no alarm can be told."""

    def __init__(self, url: str, interval_seconds: float, clock: Callable[[], float]) -> None:
        self._url = url
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._next = 0.0
        self._failed = False

    def due(self) -> bool:
        """Whether it is time again; if so, `beat` must follow."""
        if self._clock() < self._next:
            return False
        self._next = self._clock() + self._interval_seconds
        return True

    async def beat(self) -> None:
        """Fetch it once. A failure is said in the log, without the address."""
        limit = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as client,
                client.get(self._url) as answer,
            ):
                failed = answer.status >= 400
                said = f"HTTP {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            failed, said = True, type(error).__name__
        if failed and not self._failed:
            log.error("the outside heartbeat (ALERTS_HEARTBEAT_URL) is not taken: %s", said)
        self._failed = failed
