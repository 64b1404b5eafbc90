"""Where a redirect leads and what of the request may go there (RFC 9110, 15.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from orbweb.download.base import DownloadError
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import BadUrlError
from orbweb.model.way import Way

REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})

_BODY_KEYS = frozenset({"data", "json", "content", "files"})
_BODY_HEADERS = frozenset({"content-type", "content-length", "content-encoding"})
_ORIGIN_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "host"})
_DEFAULT_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int | None]


@dataclass(frozen=True, slots=True)
class RedirectRules:
    """How far redirects are followed."""

    most: int = 10
    """Redirects in a row; 0 = none are followed, the redirect itself is the page."""
    total_seconds: float = 30.0
    """Bound on all hops together; a longer `timeout` of the request wins. 0 = no bound."""

    def applies(self, request: Request, response: Response) -> bool:
        """Whether this answer is a redirect that is to be followed."""
        return (
            response.status_code in REDIRECT_STATUSES
            and self.most > 0
            and bool(response.headers.get("location"))
            and follows_redirects(request)
        )

    def seconds(self, request: Request) -> float | None:
        """The time that all hops of this request have together."""
        asked = request.requests_kwargs.get("timeout")
        own = sum(asked) if isinstance(asked, tuple | list) else asked or 0.0
        return max(self.total_seconds, own) if self.total_seconds > 0 else None


class Trail:
    """The way of one request through its redirects, those of other hosts before it included."""

    def __init__(self, request: Request, most: int) -> None:
        self._most = most
        way = request.way
        self._asked = list(way.asked)
        self._cookies = {host: dict(held) for host, held in way.cookies.items()}
        self.history = list(way.history)
        given = request.requests_kwargs.get("cookies")
        if given:
            self._cookies[_host(request.full_url)] = dict(given)

    def next_hop(self, request: Request, response: Response) -> Request:
        """The request that the redirect `response` asks for.

        Raises `DownloadError`: `redirect_loop` for a URL that was asked for already or for more
        than `most` redirects, `scheme` or `bad_url` for a target that cannot be fetched.
        """
        here = request.full_url
        self._asked.append((request.method, here))
        self._note_cookies(here, response)
        self.history.append(response.url)
        target = redirect_target(response)
        hop = _redirected(request, response.status_code, here, target)
        if (hop.method, target) in self._asked:
            raise self._loop(f"{target} was asked for already")
        if len(self.history) > self._most:
            raise self._loop(f"more than {self._most} redirects (MAX_REDIRECTS)")
        if cookies := self._cookies.get(_host(target)):
            hop.requests_kwargs["cookies"] = cookies
        return hop

    def carried(self, hop: Request, *, taken: bool = False) -> Request:
        """The hop as a request of its own, which knows the way so far. See `Way.taken`."""
        taken = taken or hop.url in self.history
        hop.way = Way(tuple(self.history), tuple(self._asked), self._cookies, taken)
        return hop

    def _note_cookies(self, here: str, response: Response) -> None:
        """Cookies set on the way go back to their host; a page may ask again after setting one."""
        if not response.cookies:
            return
        held = self._cookies.setdefault(_host(here), {})
        if any(held.get(name) != value for name, value in response.cookies.items()):
            self._cookies[_host(here)] = {**held, **response.cookies}
            self._asked.clear()

    def _loop(self, text: str) -> DownloadError:
        return DownloadError(
            Reason.REDIRECT_LOOP, f"{self.history[0]}: redirects without end, {text}", retry=False
        )


def follows_redirects(request: Request) -> bool:
    """`follow_redirects` (httpx's name) or `allow_redirects` (requests' name); on by default."""
    given = request.requests_kwargs
    for name in ("follow_redirects", "allow_redirects"):
        if given.get(name) is not None:
            return bool(given[name])
    return True


def redirect_target(response: Response) -> str:
    """The absolute URL of the Location header, without its fragment.

    Raises `DownloadError`: `scheme` for anything but http and https, `bad_url` for nonsense.
    """
    location = response.headers["location"].strip()
    raw = location.encode("utf-8", "surrogateescape")
    try:
        target = urljoin(response.url, quote(raw, safe="%/:=&?~#+!$,;'@()*[]|"))
        target = _with_plain_host(target)
        parts = urlsplit(target)
        bad = not parts.netloc or parts.hostname is None or parts.port == 0
    except ValueError as error:
        raise _bad_target(response, location, Reason.BAD_URL) from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise _bad_target(response, location, Reason.SCHEME)
    if bad:
        raise _bad_target(response, location, Reason.BAD_URL)
    return target.partition("#")[0]


def _with_plain_host(target: str) -> str:
    """Location was quoted as a whole; a host name in letters of its own is no `%E6…`."""
    parts = urlsplit(target)
    user, at, host = parts.netloc.rpartition("@")
    plain = unquote(host)
    if plain.isascii() or set(plain) & set("/?#@\\ "):
        return target
    return urlunsplit(parts._replace(netloc=f"{user}{at}{plain}"))


def _bad_target(response: Response, location: str, reason: Reason) -> DownloadError:
    return DownloadError(reason, f"{response.url} redirects to {location[:500]!r}", retry=False)


def _redirected(request: Request, status: int, here: str, target: str) -> Request:
    method = _method(request.method, status)
    kwargs = {name: value for name, value in request.requests_kwargs.items() if name != "params"}
    kwargs.pop("cookies", None)
    dropped: set[str] = set()
    if method != request.method:
        dropped |= _BODY_HEADERS
        kwargs = {name: value for name, value in kwargs.items() if name not in _BODY_KEYS}
    if not _same_origin(here, target):
        dropped |= _ORIGIN_HEADERS
        kwargs.pop("auth", None)
    if dropped and kwargs.get("headers"):
        kwargs["headers"] = {
            name: value
            for name, value in dict(kwargs["headers"]).items()
            if str(name).lower() not in dropped
        }
    return _with_target(request, method, target, kwargs)


def _with_target(request: Request, method: str, target: str, kwargs: dict[str, Any]) -> Request:
    try:
        return request.replace(url=target, method=method, requests_kwargs=kwargs)
    except BadUrlError as error:
        raise DownloadError(
            error.reason, f"{request.url} redirects: {error}", retry=False
        ) from error


def _method(method: str, status: int) -> str:
    """303 asks for the result by GET; 301 and 302 after POST too, as every browser does."""
    if status == 303 and method != "HEAD":
        return "GET"
    if status in (301, 302) and method == "POST":
        return "GET"
    return method


def _same_origin(here: str, target: str) -> bool:
    """Equal origins, or the same host moving from http to https on the usual ports."""
    first, second = _origin(here), _origin(target)
    if first == second:
        return True
    return first == ("http", second[1], 80) and second[0] == "https" and second[2] == 443


def _origin(url: str) -> Origin:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""
