"""Requests as bytes for the store: a version byte, then msgpack. Reading executes nothing."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from orbweb.errors import OrbwebError, UnserialisableError
from orbweb.model.request import DEFAULT_PRIORITY, Callback, Request, name_of
from orbweb.model.values import pack, pack_dict, unpack_tagged
from orbweb.model.way import NO_WAY, Way

VERSION = 1


class UndecodableError(OrbwebError):
    """The bytes are not a request that this version can read: keep them as a dead letter."""


class _Wire(msgspec.Struct, omit_defaults=True, frozen=True, gc=False):
    """What travels. Field names are short because millions of them are stored."""

    u: str
    """url"""
    m: str = "GET"
    """method"""
    c: str = ""
    """callback"""
    p: int = DEFAULT_PRIORITY
    """priority"""
    t: int = 0
    """retry_times"""
    f: bool = True
    """filter_repeat"""
    d: int = 0
    """depth"""
    i: str = ""
    """parent_id"""
    k: Any = {}
    """cb_kwargs"""
    e: Any = {}
    """meta"""
    h: Any = {}
    """requests_kwargs"""
    x: Any = {}
    """custom"""
    o: Any = {}
    """the rare arguments, by name, where they differ from their defaults"""
    r: tuple[list[str], list[tuple[str, str]], dict[str, dict[str, str]], bool] | None = None
    """way: its fields, if a redirect has led to the request"""


_RARE: dict[str, Any] = {
    "auto_request": True,
    "dedup": None,
    "use_session": None,
    "random_user_agent": None,
    "impersonate": None,
    "render": False,
    "render_time": None,
    "wait_for": None,
    "render_script": None,
    "parser_name": None,
    "download_midware": None,
}
_rare_values = attrgetter(*_RARE)
_RARE_DEFAULTS = tuple(_RARE.values())

_SCALARS = {
    "url": str,
    "method": str,
    "priority": int,
    "retry_times": int,
    "filter_repeat": bool,
    "depth": int,
    "parent_id": str,
}
_scalar_values = attrgetter(*_SCALARS)
_SCALAR_TYPES = list(_SCALARS.values())

_RESERVED = frozenset(dir(Request))
_EMPTY: dict[str, Any] = {}
_PREFIX = bytes((VERSION,))
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Wire, ext_hook=unpack_tagged).decode


def encode(request: Request) -> bytes:
    """Return the request as bytes. Left out are `id` and `lease_token`, which belong to the lease.

    Exact for every type that `orbweb.model.values.pack` lists. Raises `UnserialisableError` that
    names the field for any other, and for a callback that is not a method of the spider.
    """
    callback = request.callback
    if callback is None:
        callback = ""
    elif type(callback) is not str:
        callback = _method_name(callback, "callback")
    options = request.requests_kwargs
    custom = request.custom
    try:
        if list(map(type, _scalar_values(request))) != _SCALAR_TYPES:
            _refuse_scalars(request)
        return _PREFIX + _encode(
            _Wire(
                request.url,
                request.method,
                callback,
                request.priority,
                request.retry_times,
                request.filter_repeat,
                request.depth,
                request.parent_id,
                pack_dict(request.cb_kwargs, "cb_kwargs") if request.cb_kwargs else _EMPTY,
                pack_dict(request.meta, "meta") if request.meta else _EMPTY,
                _pack_options(options) if options else _EMPTY,
                _pack_custom(custom) if custom else _EMPTY,
                _EMPTY if _rare_values(request) == _RARE_DEFAULTS else _pack_rare(request),
                None if request.way is NO_WAY else _pack_way(request.way),
            )
        )
    except UnicodeEncodeError as error:
        raise UnserialisableError(
            f"{request!r} carries text with half a surrogate pair: {error.object[:80]!r}"
        ) from error
    except OverflowError as error:
        raise UnserialisableError(
            f"{request!r} has a priority of more than 64 bits: {request.priority}"
        ) from error
    except UnserialisableError as error:
        raise UnserialisableError(f"{error} (in {request!r})") from error


def decode(payload: bytes) -> Request:
    """Return the request that `encode` wrote; its callback is a name.

    Raises `UndecodableError` for an unknown version and for anything that `encode` did not write.
    """
    if payload[:1] != _PREFIX:
        known = f"this version of Orbweb reads {VERSION}"
        raise UndecodableError(f"request of version {payload[:1].hex() or 'none'}; {known}")
    try:
        wire = _decode(memoryview(payload)[1:])
        request = Request(
            wire.u,
            wire.m,
            callback=wire.c or None,
            priority=wire.p,
            retry_times=wire.t,
            filter_repeat=wire.f,
            cb_kwargs=wire.k,
            meta=wire.e,
            **_checked_rare(wire.o),
        )
        request.requests_kwargs.update(wire.h)
        if wire.x:
            request.custom.update(_checked_custom(wire.x))
    except Exception as error:  # types of all kinds are made of whatever the bytes say
        raise UndecodableError(f"not a request of version {VERSION}: {error}") from error
    if request.problem is not None:
        raise UndecodableError(f"not a request of version {VERSION}: it names {request.url!r}")
    if wire.r is not None:
        history, asked, cookies, taken = wire.r
        request.way = Way(tuple(history), tuple(asked), cookies, taken)
    request.depth = wire.d
    request.parent_id = wire.i
    return request


def _pack_options(options: dict[str, Any]) -> Any:
    filled = {name: value for name, value in options.items() if name != "headers" or value}
    return {name: pack(value, name) for name, value in filled.items()}


def _pack_custom(custom: dict[str, Any]) -> Any:
    return pack_dict(_checked_custom(custom), "custom")


def _checked_custom(custom: dict[str, Any]) -> dict[str, Any]:
    if not _RESERVED.isdisjoint(custom):
        taken = ", ".join(sorted(_RESERVED.intersection(custom)))
        raise UnserialisableError(f"custom: the name {taken} belongs to Request itself")
    return custom


def _checked_rare(rare: dict[str, Any]) -> dict[str, Any]:
    if not _RARE.keys() >= rare.keys():
        raise ValueError(f"unknown arguments {sorted(rare)}")
    return rare


def _refuse_scalars(request: Request) -> None:
    for name, kind in _SCALARS.items():
        value = getattr(request, name)
        if type(value) is not kind:
            raise UnserialisableError(f"{name} must be {kind.__name__}, not {value!r}")


def _pack_rare(request: Request) -> dict[str, Any]:
    rare = {}
    for name, default in _RARE.items():
        value = getattr(request, name)
        if name == "download_midware" and value is not None:
            rare[name] = _method_name(value, name)
        elif value is not default:
            rare[name] = pack(value, name)
    return rare


def _pack_way(way: Way) -> Any:
    cookies = {host: dict(held) for host, held in way.cookies.items()}
    return list(way.history), list(way.asked), cookies, way.taken


def _method_name(callback: Callback, field: str) -> str:
    """Return the name by which another process finds the method on its own spider."""
    name = name_of(callback)
    if isinstance(callback, str):
        return name
    owner = getattr(callback, "__self__", None)
    if owner is not None and name and getattr(owner, name, None) == callback:
        return name
    local_name = getattr(callback, "__qualname__", "<locals>.").rpartition("<locals>.")
    if not name.isidentifier() or (local_name[1] and "." not in local_name[2]):
        raise UnserialisableError(
            f"{field}: {callback!r} cannot be found by another process; "
            f"name a method of the spider, such as self.parse or 'parse'"
        )
    return name
