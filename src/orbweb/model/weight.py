"""How much memory the values of an item take, roughly."""

from __future__ import annotations

from typing import Any

SMALL_BYTES = 8
"""What a number, a date or None counts for."""


def weight(value: Any) -> int:
    """About how many bytes of text and data are in a value; quick rather than exact."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, dict):
        return sum(weight(name) + weight(each) for name, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(map(weight, value))
    return SMALL_BYTES
