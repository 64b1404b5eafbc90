"""Small functions that scrapy-redis's users import from here."""

from __future__ import annotations

import json
from typing import Any


class TextColor:
    """Escape sequences of a terminal."""

    HEADER = "\033[95m"
    OKBLUE = "\033[94m"
    OKCYAN = "\033[96m"
    OKGREEN = "\033[92m"
    WARNING = "\033[93m"
    FAIL = "\033[91m"
    ENDC = "\033[0m"
    BOLD = "\033[1m"
    UNDERLINE = "\033[4m"


def bytes_to_str(s: Any, encoding: str = "utf-8") -> Any:
    """Bytes as text; anything else as it is. Raises `UnicodeDecodeError`."""
    return s.decode(encoding) if isinstance(s, bytes) else s


def is_dict(string_content: str) -> bool:
    """Whether a text is JSON (of any type: the name is scrapy-redis's)."""
    try:
        json.loads(string_content)
    except ValueError:
        return False
    return True


def convert_bytes_to_str(data: Any, encoding: str = "utf-8") -> Any:
    """Keys and values of a dict, members of a tuple, or bytes themselves as text."""
    if isinstance(data, bytes):
        return data.decode(encoding)
    if isinstance(data, dict):
        return {
            convert_bytes_to_str(name, encoding): convert_bytes_to_str(value, encoding)
            for name, value in data.items()
        }
    if isinstance(data, tuple):
        return tuple(convert_bytes_to_str(member, encoding) for member in data)
    return data
