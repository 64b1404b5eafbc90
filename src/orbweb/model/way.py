"""The way of a request: the redirects of other hosts that led to it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_NO_COOKIES: Mapping[str, Mapping[str, str]] = MappingProxyType({})


class Way(NamedTuple):
    """What has to be known of redirects when their target is a request of its own."""

    history: tuple[str, ...] = ()
    """The URLs that redirected, the first one first."""
    asked: tuple[tuple[str, str], ...] = ()
    """Method and URL of what was asked since a cookie was set last: to ask again is a loop."""
    cookies: Mapping[str, Mapping[str, str]] = _NO_COOKIES
    """Cookies by host, given and set on the way."""
    taken: bool = False
    """The page is this way's own already, so it is no duplicate: it was taken when the redirect
    was admitted, or redirected on this way and now gets the cookie that it wanted."""


NO_WAY = Way()
"""Of a request to which no redirect has led."""
