"""When two requests are the same: canonical URL, method and body as one 64-bit number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import msgspec

from orbweb.errors import UnserialisableError
from orbweb.model.url import NO_PARAMS, BadUrlError, add_params, canonical_url, host_of
from orbweb.model.values import pack, to_bytes

if TYPE_CHECKING:
    from orbweb.model.request import Request

__all__ = [
    "NO_PARAMS",
    "BadUrlError",
    "canonical_url",
    "derived_fingerprint",
    "encode_form",
    "fingerprint",
    "full_url",
    "host_of",
    "request_id",
]

_BITS = 0xFFFF_FFFF_FFFF_FFFF


def fingerprint(request: Request, drop_params: frozenset[str] = NO_PARAMS) -> int:
    """Return the signed 64-bit BLAKE2b of method, canonical URL with `params`, and body.

    The body counts whatever it is given as: `data`, `json`, `content`, `files`. Headers, cookies
    and `cb_kwargs` do not count. Raises `BadUrlError`, and `UnserialisableError` for a body that
    cannot be read twice, such as an open file.
    """
    options = request.requests_kwargs
    if not options:
        return _of_link(request.method, request.url, drop_params)
    url = canonical_url(full_url(request), drop_params)
    return _number(f"{request.method} {url}".encode() + _body(options))


@lru_cache(maxsize=16_384)
def _of_link(method: str, url: str, drop_params: frozenset[str]) -> int:
    """Remembered, because the links of a site's menu come again on every page."""
    return _number(f"{method} {canonical_url(url, drop_params)}".encode())


def _number(message: bytes) -> int:
    return int.from_bytes(blake2b(message, digest_size=8).digest(), "big", signed=True)


def derived_fingerprint(*parts: str) -> int:
    """Return a number that stands for `parts` in their order: for requests without deduplication.

    The same parts give the same number, so that a repeated step makes the same request again.
    """
    texts = [part.encode() for part in parts]
    message = b"".join(b"%d:%s" % (len(text), text) for text in texts)
    digest = blake2b(message, digest_size=8, person=b"derived").digest()
    return int.from_bytes(digest, "big", signed=True)


def request_id(fingerprint: int) -> str:
    """Return the 16 hex characters under which a request with this fingerprint is known."""
    return f"{fingerprint & _BITS:016x}"


def full_url(request: Request) -> str:
    """Return the URL that is sent: `params` come after the URL's own parameters."""
    params = request.requests_kwargs.get("params")
    return add_params(request.url, encode_form(params, "params")) if params else request.url


def encode_form(form: Any, field: str) -> str:
    """Return a mapping, pairs or text as `application/x-www-form-urlencoded`, in the given order.

    A list as value gives one pair for each member; None is blank, True `true`, False `false`.
    Raises `UnserialisableError` that names `field`.
    """
    if isinstance(form, str):
        return form.removeprefix("?")
    if isinstance(form, bytes):
        return form.decode("ascii", "surrogateescape").removeprefix("?")
    return "&".join(
        f"{quote_plus(name)}={quote_plus(value)}" for name, value in _form_pairs(form, field)
    )


def _form_pairs(form: Any, field: str) -> Iterable[tuple[str | bytes, str | bytes]]:
    pairs = form.items() if isinstance(form, Mapping) else form
    if not isinstance(pairs, Iterable) or hasattr(pairs, "read"):
        raise UnserialisableError(f"{field}: {type(form).__name__} is neither mapping nor pairs")
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UnserialisableError(f"{field}: {pair!r} is not a pair of name and value")
        name, value = pair
        for one in value if isinstance(value, list | tuple) else (value,):
            yield _form_text(name, field), _form_text(one, f"{field}[{name!r}]")


def _form_text(value: Any, field: str) -> str | bytes:
    if isinstance(value, str):
        return _utf8(value, field)
    if isinstance(value, bytes):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise UnserialisableError(f"{field}: {type(value).__name__} is not text or a number")


def _utf8(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UnserialisableError(f"{field}: text with half a surrogate pair") from error


def _body(options: dict[str, Any]) -> bytes:
    """Return bytes that differ whenever the bodies differ, and are empty without one."""
    parts: list[Any] = []
    data = options.get("data")
    raw = options.get("content") or (data if isinstance(data, str | bytes) else b"")
    if raw:
        parts.append(
            ("raw", _utf8(raw, "content") if isinstance(raw, str) else pack(raw, "content"))
        )
    if data and not isinstance(data, str | bytes):
        pairs = [(quote_plus(n), quote_plus(v)) for n, v in _form_pairs(data, "data")]
        parts.append(("form", sorted(pairs)))
    if options.get("json") is not None:
        parts.append(("json", _canonical_json(options["json"])))
    if options.get("files"):
        parts.append(("files", pack(options["files"], "files")))
    return b"\0" + to_bytes(parts, "body") if parts else b""


def _canonical_json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (TypeError, ValueError, RecursionError) as error:
        raise UnserialisableError(f"json: {error}") from error
