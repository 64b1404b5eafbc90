"""Pickles of plain values only: what scrapy-redis wrote can be read, and nothing is executed.

A pickle may name any function of the machine and have it called while it is read. Here only the
types below may be named, so a planted one is refused. `SCHEDULER_SERIALIZER = "pickle"` is the
project's own word for reading anything.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import io
import pickle
import uuid
from typing import Any

from orbweb.errors import UnserialisableError

_VALUES = (
    bytearray,
    complex,
    frozenset,
    set,
    collections.OrderedDict,
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    datetime.timezone,
    decimal.Decimal,
    uuid.UUID,
)
PLAIN = {(kind.__module__, kind.__qualname__): kind for kind in _VALUES}
"""Types that hold a value and do nothing else, and are no part of the pickle language itself."""


class RefusedPickleError(UnserialisableError):
    """A pickle names something else than a plain type. It was not looked up."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PLAIN:
            raise RefusedPickleError(
                f"the pickle names {module}.{name}, which is no plain type: it may have been "
                "planted. To read it all the same, set SCHEDULER_SERIALIZER = 'pickle'"
            )
        return PLAIN[module, name]


class _Writer(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if obj in _VALUES if isinstance(obj, type) else type(obj) in _VALUES:
            return NotImplemented
        raise UnserialisableError(
            f"{obj!r} cannot travel through the store: give plain data (text, numbers, lists, "
            "dicts, dates) instead"
        )


def loads(s: bytes) -> Any:
    """The value. Raises `UnserialisableError`: `RefusedPickleError`, or the bytes are no pickle."""
    try:
        return _Reader(io.BytesIO(s)).load()
    except UnserialisableError:
        raise
    except Exception as error:  # a broken pickle raises nearly anything
        raise UnserialisableError(f"this is no pickle: {error!r}") from error


def dumps(obj: Any) -> bytes:
    """The value as bytes. Raises `UnserialisableError` for what `loads` would refuse."""
    file = io.BytesIO()
    _Writer(file, pickle.HIGHEST_PROTOCOL).dump(obj)
    return file.getvalue()
