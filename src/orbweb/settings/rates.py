"""Rates as people write them: `2/s`, `30/m`, `100/h`, or plain requests a second."""

from __future__ import annotations

import math
import re

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_RATE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(?:/\s*([smhd])\s*)?", re.IGNORECASE)


def requests_per_second(text: str) -> float:
    """The rate as a number. Raises `ValueError` whose text says what would be right."""
    match = _RATE.fullmatch(text)
    count = float(match[1]) if match else 0.0
    if match is None or count <= 0:
        raise ValueError("a rate above 0 is wanted, such as 2/s, 30/m, 100/h or 0.5 (a second)")
    return count / SECONDS[(match[2] or "s").lower()]


def gap_ms(rate: float) -> int:
    """Least milliseconds between two requests at so many a second."""
    return math.ceil(round(1000 / rate, 6))
