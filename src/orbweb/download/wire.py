"""How a `Request` is spelt for aiohttp: headers, body, timeouts, TLS; and its own proxy."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import aiohttp

from orbweb.download.base import DownloadError
from orbweb.model.fingerprint import encode_form
from orbweb.model.proxy import SOCKS_HINT, BadProxyError, Proxy, has_socks
from orbweb.model.reasons import Reason
from orbweb.model.request import Request

_BODIES = ("content", "json", "data", "files")
_FORM = "application/x-www-form-urlencoded"


def wire_arguments(request: Request, default: aiohttp.ClientTimeout) -> dict[str, Any]:
    """The keyword arguments of `ClientSession.request` for what this request asks for itself.

    Raises `DownloadError` (never retried) for what cannot be sent as asked.
    """
    given = request.requests_kwargs
    arguments: dict[str, Any] = {}
    headers = _headers(given)
    body, content_type = _body(given)
    if body is not None:
        arguments["data"] = body
        if content_type:
            headers.setdefault("Content-Type", content_type)
        elif not isinstance(body, aiohttp.FormData):
            arguments["skip_auto_headers"] = ("Content-Type",)
    if headers:
        arguments["headers"] = headers
    if (timeout := given.get("timeout")) is not None:
        arguments["timeout"] = _timeout(timeout, default)
    tls = _tls(given.get("verify"), given.get("cert"))
    if tls is not None:
        arguments["ssl"] = tls
    return arguments


def own_proxy(request: Request) -> Proxy | None:
    """The proxy that the request itself names: `proxy`, `proxies` or `meta["proxy"]`.

    Raises `DownloadError` (never retried) for one that cannot be used.
    """
    given = request.requests_kwargs
    address = given.get("proxy")
    if address is None and (proxies := given.get("proxies")):
        scheme = request.url.partition(":")[0].lower()
        address = proxies if isinstance(proxies, str) else _choose_proxy(scheme, proxies)
    if address is None and (address := request.meta.get("proxy")) is None:
        return None
    try:
        proxy = Proxy.parse(str(address))
    except BadProxyError as error:
        raise unsendable(f"{request.url}: {error}", Reason.PROXY) from None
    if proxy.is_socks and not has_socks():
        raise unsendable(f"{request.url}: {SOCKS_HINT}", Reason.PROXY)
    return proxy


def unsendable(text: str, reason: Reason = Reason.HTTP_ERROR) -> DownloadError:
    """The error for a request that this version cannot send as asked: a retry would not help."""
    return DownloadError(reason, text, retry=False)


class _Headers(dict[str, str]):
    """Headers by the spelling that was given; `setdefault` looks at the name in any case."""

    def setdefault(self, name: str, value: str = "") -> str:
        lower = name.lower()
        for known, held in self.items():
            if known.lower() == lower:
                return held
        self[name] = value
        return value


def _headers(given: Mapping[str, Any]) -> _Headers:
    headers = _Headers(
        (str(name), value.decode("latin-1") if isinstance(value, bytes) else str(value))
        for name, value in dict(given.get("headers") or {}).items()
        if value is not None
    )
    if auth := given.get("auth"):
        headers.setdefault("Authorization", _basic(auth))
    if cookies := given.get("cookies"):
        line = "; ".join(f"{name}={value}" for name, value in dict(cookies).items())
        known = headers.setdefault("Cookie", line)
        if known != line:
            name = next(name for name in headers if name.lower() == "cookie")
            headers[name] = f"{known}; {line}"
    return headers


def _basic(auth: Any) -> str:
    try:
        user, password = auth
        return aiohttp.encode_basic_auth(str(user), str(password))
    except (TypeError, ValueError) as error:
        raise unsendable(f"auth must be a pair (user, password): {error}") from error


def _body(given: Mapping[str, Any]) -> tuple[Any, str]:
    """The body and its content type; no type for raw bodies and for multipart."""
    kinds = [kind for kind in _BODIES if given.get(kind) is not None]
    if not kinds:
        return None, ""
    if kinds == ["data", "files"] or kinds == ["files"]:
        return _multipart(given), ""
    if len(kinds) > 1:
        raise unsendable(f"a request has one body, but {' and '.join(kinds)} were given")
    value = given[kinds[0]]
    if kinds == ["json"]:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), (
            "application/json"
        )
    if isinstance(value, str):
        return value.encode(), ""
    if isinstance(value, bytes | bytearray):
        return bytes(value), ""
    if kinds == ["content"]:
        raise unsendable(f"content must be str or bytes, not {type(value).__name__}")
    return encode_form(value, "data").encode(), _FORM


def _multipart(given: Mapping[str, Any]) -> aiohttp.FormData:
    """A form of fields and files; a file is its content, or (file name, content[, type])."""
    form = aiohttp.FormData()
    for name, value in dict(given.get("data") or {}).items():
        for single in value if isinstance(value, list | tuple) else (value,):
            form.add_field(name, single if isinstance(single, str | bytes) else str(single))
    for name, part in dict(given["files"]).items():
        filename, content, *kind = part if isinstance(part, tuple | list) else (name, part)
        form.add_field(
            name,
            content,
            filename=filename,
            content_type=kind[0] if kind else "application/octet-stream",
        )
    return form


def _timeout(value: Any, default: aiohttp.ClientTimeout) -> aiohttp.ClientTimeout:
    """One number bounds the whole exchange; a pair is (connect, read) as in requests. Seconds."""
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(isinstance(part, int | float) and part > 0 for part in pair):
        raise unsendable(f"timeout must be seconds above 0 or a pair of them, not {value!r}")
    connect, read = float(pair[0]), float(pair[1])
    if isinstance(value, tuple | list):
        return _client_timeout(max(default.total or 0.0, connect + read), connect, read)
    return _client_timeout(connect, connect, read)


@lru_cache(maxsize=64)
def _client_timeout(total: float, connect: float, read: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total, connect=connect, sock_read=read)


def _tls(verify: Any, cert: Any) -> ssl.SSLContext | bool | None:
    """None when the session's default holds; False turns verification off."""
    if cert is None and not isinstance(verify, str):
        return False if verify is False else None
    return _tls_context(verify, tuple(cert) if isinstance(cert, list) else cert)


@lru_cache(maxsize=32)
def _tls_context(verify: bool | str | None, cert: str | tuple[str, ...] | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
        if verify is False:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if cert is not None:
            context.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
    except OSError as error:
        raise unsendable(f"verify={verify!r}, cert={cert!r}: {error}", Reason.TLS) from error
    return context


def _choose_proxy(scheme: str, proxies: Mapping[str, Any]) -> Any:
    for key in (scheme, f"{scheme}://", "all", "all://"):
        if proxies.get(key):
            return proxies[key]
    return None
