"""Sessions for socks5 proxies: aiohttp reaches each of them by a connector of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from orbweb.download.base import DownloadError
from orbweb.model.proxy import Proxy
from orbweb.model.reasons import Reason

MOST_SESSIONS = 128
"""Sessions that are kept with their connections; those that are in use are not closed."""

_HOST_IS_AWAY = frozenset({3, 4, 5, 6})
"""Replies by which a proxy says that it cannot reach the host (RFC 1928, 6)."""

Open = Callable[[aiohttp.BaseConnector, bool], aiohttp.ClientSession]
"""Makes a session that closes its connector; the flag: it keeps cookies."""


@dataclass(slots=True)
class _Held:
    session: aiohttp.ClientSession
    uses: int = 0


class SocksSessions:
    """One session for each proxy, with and without cookies. Names are looked up by the proxy."""

    def __init__(self, open_session: Open, keepalive_seconds: float) -> None:
        self._open = open_session
        self._keepalive_seconds = keepalive_seconds
        self._held: OrderedDict[tuple[Proxy, bool], _Held] = OrderedDict()

    @asynccontextmanager
    async def session(self, proxy: Proxy, cookies: bool) -> AsyncIterator[aiohttp.ClientSession]:
        """The session for an exchange; it stays open for as long as the block lasts.

        What the proxy does wrong in it comes out as a `DownloadError`.
        """
        from aiohttp_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError

        key = proxy, cookies
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(self._open(self._connector(proxy), cookies))
        self._held.move_to_end(key)
        held.uses += 1
        try:
            yield held.session
        except (ProxyError, ProxyConnectionError, ProxyTimeoutError) as error:
            away = getattr(error, "error_code", None) in _HOST_IS_AWAY
            reason = Reason.CONNECTION if away else Reason.PROXY
            raise DownloadError(reason, f"proxy {proxy}: {error}") from error
        finally:
            held.uses -= 1
            await self._make_room()

    def __iter__(self) -> Iterator[aiohttp.ClientSession]:
        return (held.session for held in self._held.values())

    async def close(self) -> None:
        """Close all of them."""
        held, self._held = self._held, OrderedDict()
        for each in held.values():
            await each.session.close()

    def _connector(self, proxy: Proxy) -> aiohttp.BaseConnector:
        from aiohttp_socks import ProxyConnector

        return ProxyConnector.from_url(
            proxy.address, rdns=True, limit=0, keepalive_timeout=self._keepalive_seconds
        )

    async def _make_room(self) -> None:
        idle = [key for key, held in self._held.items() if not held.uses]
        for key in idle[: max(0, len(self._held) - MOST_SESSIONS)]:
            await self._held.pop(key).session.close()
