"""Scrapy requests as bytes for the store, in the frame that Orbweb's own requests have.

So `orbweb failed`, `orbweb explain` and the rest can read what a Scrapy job has in the store.
Reading executes nothing and imports nothing, unless the project allows pickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import msgspec
from scrapy import Request, Spider

from orbweb.adapters.scrapy.queue import request_class
from orbweb.errors import OrbwebError, SpiderError, UnserialisableError
from orbweb.model.codec import VERSION, UndecodableError
from orbweb.model.values import pack, pack_dict, unpack_tagged

_PREFIX = bytes((VERSION,))
_REST = ("headers", "body", "cookies", "encoding", "flags")
_BASE = frozenset(Request.attributes)
_UNREADABLE = (
    msgspec.MsgspecError,
    OrbwebError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


class _Wire(msgspec.Struct, omit_defaults=True, frozen=True, gc=False):
    """What travels; the names are those of `orbweb.model.codec`."""

    u: str
    """url"""
    m: str = "GET"
    """method"""
    c: str = ""
    """callback"""
    p: int = 0
    """priority as the frontier counts it: smaller first"""
    f: bool = True
    """not dont_filter"""
    d: int = 0
    """depth"""
    k: Any = {}
    """cb_kwargs"""
    e: Any = {}
    """meta"""
    x: Any = {}
    """all else, under the one name `scrapy`"""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Wire, ext_hook=unpack_tagged).decode
_EMPTY: dict[str, Any] = {}


class RequestCodec:
    """Writes and reads the requests of one spider."""

    def __init__(self, spider: Spider | None, *, allow_pickle: bool = False) -> None:
        """`allow_pickle`: what cannot travel as plain data is pickled; who can write to the store
        can then run code here."""
        self._spider = spider
        self._allow_pickle = allow_pickle
        self._names: dict[Any, str] = {}
        self._classes: dict[str, type[Request]] = {}

    def encode(self, request: Request) -> bytes:
        """Return the request as bytes.

        Raises `UnserialisableError` that names the field for a value that is no plain data and for
        a callback that is no method of the spider.
        """
        record: dict[str, Any] = {
            "callback": self._name(request.callback, "callback"),
            "errback": self._name(request.errback, "errback"),
        }
        if type(request) is not Request:
            kind = type(request)
            record["_class"] = f"{kind.__module__}.{kind.__name__}"
            more = [name for name in kind.attributes if name not in _BASE]
            record.update({name: getattr(request, name) for name in more})
        for name in ("url", "method", "priority", "dont_filter", "cb_kwargs", "meta", *_REST):
            record[name] = getattr(request, name)
        return self.encode_record(record)

    def encode_record(self, record: dict[str, Any]) -> bytes:
        """Return what `Request.to_dict` has made as bytes. Raises `UnserialisableError`."""
        try:
            return _PREFIX + self._packed(record)
        except UnserialisableError:
            if not self._allow_pickle:
                raise
            return _PREFIX + self._pickled(record)

    def decode(self, payload: bytes) -> Request:
        """Return the request that `encode` wrote, with methods of the spider as callbacks.

        Raises `SpiderError` for a callback that the spider does not have, and `UndecodableError`
        for bytes that are not such a request.
        """
        if payload[:1] != _PREFIX:
            raise UndecodableError(f"request of version {payload[:1].hex() or 'none'}")
        try:
            wire = _decode(memoryview(payload)[1:])
            rest = wire.x.get("scrapy", _EMPTY)
            whole = rest.get("pickle")
            record = _record(wire, rest) if whole is None else self._unpickled(whole)
            kind = self._class(record.pop("_class", ""))
            for name in ("callback", "errback"):
                record[name] = self._method(record.get(name))
            return kind(**{name: record[name] for name in kind.attributes if name in record})
        except SpiderError:
            raise
        except _UNREADABLE as error:
            raise UndecodableError(f"not a request of a Scrapy spider: {error}") from error

    def _packed(self, record: dict[str, Any]) -> bytes:
        rest: dict[str, Any] = {}
        if headers := record.get("headers"):
            rest["headers"] = [[name, values] for name, values in dict(headers).items()]
        for name in ("errback", "body", "flags", "_class"):
            if value := record.get(name):
                rest[name] = value
        if record.get("encoding", "utf-8") != "utf-8":
            rest["encoding"] = record["encoding"]
        if cookies := record.get("cookies"):
            rest["cookies"] = pack(cookies, "cookies")
        for name, value in record.items():
            if name not in _BASE and name != "_class":
                rest[name] = pack(value, name)
        meta, kwargs = record.get("meta"), record.get("cb_kwargs")
        priority = record.get("priority", 0)
        try:
            return _encode(
                _Wire(
                    record["url"],
                    record.get("method", "GET"),
                    record.get("callback") or "",
                    -priority,
                    not record.get("dont_filter"),
                    meta.get("depth", 0) if meta else 0,
                    pack_dict(kwargs, "cb_kwargs") if kwargs else _EMPTY,
                    pack_dict(meta, "meta") if meta else _EMPTY,
                    {"scrapy": rest} if rest else _EMPTY,
                )
            )
        except UnicodeEncodeError as error:
            raise UnserialisableError(
                f"{record['url']}: text with half a surrogate pair: {error.object[:80]!r}"
            ) from error
        except (OverflowError, TypeError) as error:
            raise UnserialisableError(f"{record['url']}: {error}") from error

    def _pickled(self, record: dict[str, Any]) -> bytes:
        try:
            whole = pickle.dumps(record)
        except Exception as error:
            raise UnserialisableError(f"{record['url']}: {error}") from error
        return _encode(_Wire(record["url"], record["method"], x={"scrapy": {"pickle": whole}}))

    def _unpickled(self, whole: bytes) -> dict[str, Any]:
        if not self._allow_pickle:
            raise UndecodableError("it is pickled, and ORBWEB_ALLOW_PICKLE is not set")
        record: dict[str, Any] = pickle.loads(whole)
        return record

    def _name(self, function: Any, field: str) -> str | None:
        if function is None or isinstance(function, str):
            return function
        plain = getattr(function, "__func__", None)
        known = self._names.get(plain)
        if known is None:
            known = self._find_name(function, plain, field)
            self._names[plain] = known
        elif getattr(function, "__self__", None) is not self._spider:
            raise UnserialisableError(_no_method(function, field))
        return known

    def _find_name(self, function: Any, plain: Any, field: str) -> str:
        spider = self._spider
        if plain is not None and getattr(function, "__self__", None) is spider:
            name: str = plain.__name__
            if getattr(getattr(spider, name, None), "__func__", None) is plain:
                return name
            for each in dir(type(spider)):  # `__private` methods are known under another name
                if getattr(getattr(spider, each, None), "__func__", None) is plain:
                    return each
        raise UnserialisableError(_no_method(function, field))

    def _method(self, name: str | None) -> Callable[..., Any] | None:
        if not name:
            return None
        method = getattr(self._spider, name, None)
        if not callable(method):
            raise SpiderError(
                f"spider {getattr(self._spider, 'name', '')!r} has no method {name!r}"
            )
        found: Callable[..., Any] = method
        return found

    def _class(self, path: str) -> type[Request]:
        if not path:
            return Request
        if path not in self._classes:
            self._classes[path] = request_class(path)
        return self._classes[path]


def _record(wire: _Wire, rest: dict[str, Any]) -> dict[str, Any]:
    return {
        **rest,
        "url": wire.u,
        "method": wire.m,
        "callback": wire.c,
        "priority": -wire.p,
        "dont_filter": not wire.f,
        "cb_kwargs": wire.k,
        "meta": wire.e,
    }


def _no_method(function: Any, field: str) -> str:
    return (
        f"{field}: {function!r} cannot be found by another process; name a method of the spider, "
        "such as self.parse"
    )
