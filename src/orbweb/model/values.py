"""Python values as msgpack and back, exactly: what cannot return as it was is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from orbweb.errors import UnserialisableError

MAX_DEPTH = 64
"""Containers may be nested this deep; deeper ones (and those that hold themselves) are refused."""

_TUPLE, _SET, _FROZENSET, _PAIRS, _INT, _DECIMAL, _DATETIME, _DATE, _TIME, _DELTA, _UUID = range(
    1, 12
)
_SELF_EVIDENT = frozenset({str, float, bool, NoneType, bytes})
_INT_RANGE = range(-(2**63), 2**64)

_encode = msgspec.msgpack.Encoder().encode


def pack(value: Any, field: str, depth: int = 0) -> Any:
    """Return `value` in terms of what msgpack holds natively and tagged extension types.

    Exact for None, bool, int, float, str, bytes, list, tuple, dict (any key listed here), set,
    frozenset, Decimal, UUID, datetime, date, time, timedelta (naive, fixed offset or ZoneInfo).
    A subclass of str that is no Enum travels as its text. Raises `UnserialisableError` with
    `field` and the path inside it for everything else, other subclasses included.
    """
    kind = type(value)
    if kind in _SELF_EVIDENT:
        return value
    if kind is int:
        return value if value in _INT_RANGE else _tag(_INT, _digits(value, field))
    if depth > MAX_DEPTH:
        raise UnserialisableError(f"{field}: nested deeper than {MAX_DEPTH}, or holds itself")
    packer = _PACKERS.get(kind)
    if packer is not None:
        try:
            return packer(value, field, depth + 1)
        except UnicodeEncodeError as error:  # of text in what is tagged, which is encoded at once
            raise UnserialisableError(f"{field}: text with half a surrogate pair") from error
    if isinstance(value, str) and not isinstance(value, Enum):
        return str.__str__(value)
    raise UnserialisableError(
        f"{field}: a value of type {kind.__module__}.{kind.__qualname__} cannot travel through "
        f"the store; give plain data (text, numbers, lists, dicts, dates) instead"
    )


def pack_dict(values: dict[str, Any], field: str) -> Any:
    """`pack` for the common case: a dict whose keys are text and whose values are plain."""
    if type(values) is not dict:
        raise UnserialisableError(f"{field} must be a dict, not {values!r}")
    for key, value in values.items():
        if type(key) is not str or not _is_plain(value):
            return pack(values, field)
    return values


def to_bytes(packed: Any, field: str) -> bytes:
    """Return packed values as msgpack bytes; raises `UnserialisableError` for broken text."""
    try:
        return _encode(packed)
    except UnicodeEncodeError as error:
        raise UnserialisableError(f"{field}: text with half a surrogate pair") from error


def unpack_tagged(code: int, body: memoryview) -> Any:
    """Extension hook of the decoder. Raises ValueError or a kin for what `pack` did not write."""
    unpacker = _UNPACKERS.get(code)
    if unpacker is None:
        raise ValueError(f"unknown extension type {code}")
    return unpacker(_decode_any(body))


_decode_any = msgspec.msgpack.Decoder(ext_hook=unpack_tagged).decode


def _tag(code: int, packed: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encode(packed))


def _digits(value: int, field: str) -> str:
    try:
        return str(value)
    except ValueError as error:  # Python refuses to write, and to read, very long ones
        raise UnserialisableError(f"{field}: a whole number with too many digits") from error


def _is_plain(value: Any) -> bool:
    kind = type(value)
    return kind in _SELF_EVIDENT or (kind is int and value in _INT_RANGE)


def _pack_items(values: Any, field: str, depth: int) -> list[Any]:
    return [
        value if _is_plain(value) else pack(value, f"{field}[{place}]", depth)
        for place, value in enumerate(values)
    ]


def _pack_dict(values: dict[Any, Any], field: str, depth: int) -> Any:
    packed = {
        key: value if _is_plain(value) else pack(value, f"{field}[{key!r}]", depth)
        for key, value in values.items()
        if type(key) is str
    }
    if len(packed) == len(values):
        return packed
    pairs = [
        (pack(key, f"key {key!r} of {field}", depth), pack(value, f"{field}[{key!r}]", depth))
        for key, value in values.items()
    ]
    return _tag(_PAIRS, pairs)


def _pack_set(code: int, values: Any, field: str, depth: int) -> msgspec.msgpack.Ext:
    members = [pack(value, f"a member of {field}", depth) for value in values]
    return _tag(code, sorted(members, key=_encode))


def _zone(zone: tzinfo | None, field: str) -> Any:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        return [_delta(offset), *name]
    if type(zone) is ZoneInfo and zone.key:
        return zone.key
    raise UnserialisableError(f"{field}: time zone {zone!r} cannot travel; use zoneinfo.ZoneInfo")


def _unzone(packed: Any) -> tzinfo | None:
    if packed is None:
        return None
    if isinstance(packed, str):
        return ZoneInfo(packed)
    offset, *name = packed
    return timezone(timedelta(*offset), *name)


def _delta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _pack_moment(code: int, value: Any, field: str) -> msgspec.msgpack.Ext:
    naive = value.replace(tzinfo=None).isoformat()
    return _tag(code, [naive, value.fold, _zone(value.tzinfo, field)])


def _unpack_datetime(packed: Any) -> datetime:
    naive, fold, zone = packed
    return datetime.fromisoformat(naive).replace(tzinfo=_unzone(zone), fold=fold)


def _unpack_time(packed: Any) -> time:
    naive, fold, zone = packed
    return time.fromisoformat(naive).replace(tzinfo=_unzone(zone), fold=fold)


_PACKERS: dict[type, Callable[[Any, str, int], Any]] = {
    list: _pack_items,
    dict: _pack_dict,
    tuple: lambda value, field, depth: _tag(_TUPLE, _pack_items(value, field, depth)),
    set: lambda value, field, depth: _pack_set(_SET, value, field, depth),
    frozenset: lambda value, field, depth: _pack_set(_FROZENSET, value, field, depth),
    Decimal: lambda value, field, depth: _tag(_DECIMAL, str(value)),
    UUID: lambda value, field, depth: _tag(_UUID, value.bytes),
    datetime: lambda value, field, depth: _pack_moment(_DATETIME, value, field),
    date: lambda value, field, depth: _tag(_DATE, value.isoformat()),
    time: lambda value, field, depth: _pack_moment(_TIME, value, field),
    timedelta: lambda value, field, depth: _tag(_DELTA, _delta(value)),
}

_UNPACKERS: dict[int, Callable[[Any], Any]] = {
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _PAIRS: dict,
    _INT: int,
    _DECIMAL: Decimal,
    _DATETIME: _unpack_datetime,
    _DATE: date.fromisoformat,
    _TIME: _unpack_time,
    _DELTA: lambda packed: timedelta(*packed),
    _UUID: lambda packed: UUID(bytes=packed),
}
