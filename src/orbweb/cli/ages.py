"""How far back in time a command looks."""

from __future__ import annotations

import re

AGE_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def read_age(text: str) -> int | None:
    """`30d`, `12h`, `90m`, `45s`, `2w` in seconds; None for what is no age."""
    found = re.fullmatch(r"(\d+)([smhdw])", text)
    return int(found[1]) * AGE_UNITS[found[2]] if found else None
