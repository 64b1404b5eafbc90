"""The kinds of value a setting can have: how each is read from text and checked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})

LARGEST_COUNT = 10**15
LARGEST_NUMBER = 1e12
"""Beyond these the store could not keep a number, or a time of so many seconds in ms, exactly."""


class NotThisKind(ValueError):
    """The value is not of the wanted kind; the text says what would be."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of value is named to people, checked, and read from text.

    `check` takes a Python value, `parse` takes text (environment, command line). Both return the
    value in its final type or raise `NotThisKind`.
    """

    name: str
    example: str
    check: Callable[[Any], Any]
    parse: Callable[[str], Any]


def _refuse(what: str) -> NotThisKind:
    return NotThisKind(what)


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise _refuse("text is wanted")
    return value


def _check_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refuse("True or False is wanted")
    return value


def _parse_flag(text: str) -> bool:
    word = text.strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise _refuse("true or false is wanted")


def _check_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refuse("a whole number is wanted")
    if abs(value) > LARGEST_COUNT:
        raise _refuse(f"a whole number up to {LARGEST_COUNT} is wanted")
    return value


def _parse_count(text: str) -> int:
    try:
        count = int(text.strip())
    except ValueError:
        raise _refuse("a whole number is wanted") from None
    return _check_count(count)


def _check_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refuse("a number is wanted")
    if abs(value) > LARGEST_NUMBER:
        raise _refuse(f"a number up to {LARGEST_NUMBER:.0e} is wanted")
    return float(value)


def _parse_number(text: str) -> float:
    try:
        number = float(text.strip())
    except ValueError:
        raise _refuse("a number is wanted") from None
    return _check_number(number)


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in SIZE_UNITS:
        raise _refuse("a number of bytes is wanted (units such as KiB, MiB, MB may follow)")
    return _check_count(int(match[1]) * SIZE_UNITS[match[2].lower()])


def _check_size(value: Any) -> int:
    return _parse_size(value) if isinstance(value, str) else _check_count(value)


def _check_rate(value: Any) -> str:
    """Its text; what it means is read where the rate is used."""
    return _check_text(value) if isinstance(value, str) else f"{_check_number(value):g}/s"


def _check_interval(value: Any) -> str:
    """Its text; what it means is read where the schedule is made."""
    return _check_text(value) if isinstance(value, str) else f"{_check_number(value):g}"


def _check_optional_text(value: Any) -> str | None:
    return None if value is None else _check_text(str(value))


def _parse_optional_text(text: str) -> str | None:
    return text or None


def _check_texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise _refuse("a list of texts is wanted")
    if not all(isinstance(part, str) for part in value):
        raise _refuse("every entry of the list must be text")
    return tuple(sorted(value) if isinstance(value, set | frozenset) else value)


def _parse_texts(text: str) -> tuple[str, ...]:
    if text.lstrip().startswith("["):
        return _check_texts(_parse_json(text))
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)


def _check_fields(value: Any) -> dict[str, Any]:
    """A mapping of names to plain values."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _refuse("a mapping of names to values is wanted")
    return {name: list(part) if isinstance(part, tuple) else part for name, part in value.items()}


def _parse_fields(text: str) -> dict[str, Any]:
    return _check_fields(_parse_json(text)) if text.strip() else {}


def _check_paths(value: Any) -> tuple[str, ...]:
    """A list of dotted paths, or Scrapy's `{path: order}` in which None switches a path off."""
    if not isinstance(value, Mapping):
        return _check_texts(value)
    kept = {path: order for path, order in value.items() if order is not None}
    if not all(isinstance(path, str) for path in kept):
        raise _refuse("the keys must be dotted paths")
    return tuple(sorted(kept, key=lambda path: _check_number(kept[path])))


def _parse_paths(text: str) -> tuple[str, ...]:
    if text.lstrip().startswith("{"):
        return _check_paths(_parse_json(text))
    return _parse_texts(text)


def _check_codes(value: Any) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset | range):
        raise _refuse("a list of status codes is wanted")
    codes = tuple(_check_count(code) for code in value)
    if not all(100 <= code <= 999 for code in codes):
        raise _refuse("status codes lie between 100 and 999")
    return codes


def _parse_codes(text: str) -> tuple[int, ...]:
    if text.lstrip().startswith("["):
        return _check_codes(_parse_json(text))
    return _check_codes([_parse_count(part) for part in text.split(",") if part.strip()])


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise _refuse("this is not valid JSON") from None


TEXT = Kind("text", "abc", _check_text, str)
OPTIONAL_TEXT = Kind("text or nothing", "abc", _check_optional_text, _parse_optional_text)
FLAG = Kind("true or false", "true", _check_flag, _parse_flag)
COUNT = Kind("whole number", "16", _check_count, _parse_count)
NUMBER = Kind("number", "2.5", _check_number, _parse_number)
SIZE = Kind("bytes", "32MiB", _check_size, _parse_size)
RATE = Kind("rate", "30/m", _check_rate, str.strip)
INTERVAL = Kind("number or cron line", "30 3 * * *", _check_interval, str.strip)
TEXTS = Kind("list of texts", "a,b", _check_texts, _parse_texts)
FIELDS = Kind("names and values", '{"host": "smtp.example"}', _check_fields, _parse_fields)
PATHS = Kind("list of dotted paths", "my.module.Class", _check_paths, _parse_paths)
CODES = Kind("list of status codes", "429,503", _check_codes, _parse_codes)
