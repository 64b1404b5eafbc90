"""Values as columns of SQL databases take them: never bent, cut or moved without a word."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from orbweb.errors import ItemError


def fit(value: Any, column: sa.Column[Any], dialect: str) -> Any:
    """The value as a column takes it; what it has no way for is left to the database.

    Raises `ItemError` that names the column where a database or its driver would store something
    else in silence: a number that is rounded, bytes that are not these.
    """
    kind = column.type
    if value is None or isinstance(value, bool):
        return value
    if isinstance(kind, sa.types._Binary):
        return _fit_bytes(value, column)
    if isinstance(value, int | str):
        return value
    if isinstance(value, float | Decimal):
        return _fit_number(value, column, dialect)
    if isinstance(value, list | tuple | dict | set | frozenset):
        plain = _plain(value)
        return plain if isinstance(kind, sa.JSON) else json.dumps(plain, ensure_ascii=False)
    if isinstance(value, UUID):
        return value if isinstance(kind, sa.Uuid) and kind.as_uuid else str(value)
    if isinstance(kind, sa.String):
        return _fit_text(value, column)
    if isinstance(value, datetime):
        return _fit_moment(value, kind, dialect)
    if isinstance(value, timedelta) and not isinstance(kind, sa.Interval):
        return value.total_seconds()
    return value


def _fit_bytes(value: Any, column: sa.Column[Any]) -> Any:
    """Drivers make five zeros of the number 5."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ItemError(f"column {column.name!r} takes bytes, not {_shown(value)}")
    return value


def _fit_number(value: float | Decimal, column: sa.Column[Any], dialect: str) -> Any:
    kind = column.type
    if isinstance(kind, sa.String):
        return str(value)
    if isinstance(kind, sa.Integer):
        if not math.isfinite(value) or _is_huge(value) or value != int(value):
            raise ItemError(f"column {column.name!r} takes whole numbers, not {_shown(value)}")
        return int(value)
    if isinstance(value, float) or not value.is_finite() or isinstance(kind, sa.Float):
        return value
    if dialect == "sqlite" and Decimal(repr(float(value))) != value:
        raise ItemError(
            f"column {column.name!r} keeps 15 digits in SQLite, not {_shown(value)}; "
            "a column of type TEXT keeps all"
        )
    scale = getattr(kind, "scale", None)
    if scale is not None and _digits_after_point(value) > scale:
        raise ItemError(
            f"column {column.name!r} keeps {scale} digits after the point, not {_shown(value)}"
        )
    return value


def _is_huge(value: float | Decimal) -> bool:
    """Of 1E+999999999 Python would make a number with as many digits."""
    return isinstance(value, Decimal) and value.adjusted() > 40


def _digits_after_point(value: Decimal) -> int:
    """Without the zeros at the end, whatever the context's precision is."""
    _, digits, exponent = value.as_tuple()
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return max(0, -int(exponent) - zeros)


def _fit_text(value: Any, column: sa.Column[Any]) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ItemError(f"column {column.name!r} takes text, not bytes: {error}") from error


def _fit_moment(value: datetime, kind: sa.types.TypeEngine[Any], dialect: str) -> datetime:
    """A moment with a zone, in UTC where the column keeps none."""
    keeps_zone = dialect == "postgresql" and getattr(kind, "timezone", False)
    if value.tzinfo is None or keeps_zone or not isinstance(kind, sa.DateTime):
        return value
    return value.astimezone(UTC).replace(tzinfo=None)


def _plain(value: Any) -> Any:
    """The value in terms of JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(part) for part in value), key=str)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        raise ItemError(f"JSON cannot hold {value}")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Decimal | UUID | timedelta):
        return str(value)
    raise ItemError(f"JSON cannot hold a value of type {type(value).__name__}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
