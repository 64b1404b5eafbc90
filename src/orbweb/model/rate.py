"""Rates and time spans as people write them: `2/s`, `30/m`, `1/10s`; `90s`, `30m`, `1d12h`."""

from __future__ import annotations

import math
import re

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
UNITS_MS = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
MOST_TIMES = {"s": 1000, "m": 100, "h": 100, "d": 100}
"""Up to how many times in each unit a rate is told so: 8229/d says less than 1/10.5s."""

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_RATE = re.compile(rf"({_NUMBER})(?:/({_NUMBER})?([smhd]))?").fullmatch
_SPAN = re.compile(rf"(?:{_NUMBER}[smhd])+").fullmatch
_SPAN_PART = re.compile(rf"({_NUMBER})([smhd])").findall


def parse_rate(text: str) -> int:
    """The least gap in ms between two fetches at a rate; rounded up, so it is never exceeded.

    `2/s`, `30/m`, `100/h`, `1/10s`; a number alone is per second. Raises `ValueError` with a text
    that says what would be right.
    """
    match = _RATE(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is no rate; right would be 2/s, 30/m, 100/h, 0.5/s or 1/10s")
    times, units, unit = float(match[1]), float(match[2] or 1), UNITS_MS[match[3] or "s"]
    if times == 0 or units == 0:
        raise ValueError(f"{text!r} is no rate above zero; `orbweb pause` stops a host")
    exact = units * unit / times
    if not 1 <= exact <= 366 * DAY_MS:
        raise ValueError(f"{text!r} is out of range: rates lie between 1/366d and 1000/s")
    return math.ceil(round(exact, 6))


def rate_text(gap_ms: float) -> str:
    """A gap as the shortest rate that `parse_rate` reads as that gap; `no limit` for 0."""
    gap = math.ceil(gap_ms)
    if gap <= 0:
        return "no limit"
    for unit, length in UNITS_MS.items():
        times = math.ceil(length / gap)
        if times <= MOST_TIMES[unit] and math.ceil(length / times) == gap:
            return f"{times}/{unit}"
    return f"1/{gap / SECOND_MS:.3f}".rstrip("0").rstrip(".") + "s"


def parse_span(text: str) -> int:
    """A time span in ms: `90s`, `30m`, `2h`, `1d`, `1h30m`. Raises `ValueError` as `parse_rate`."""
    word = text.strip().lower()
    if _SPAN(word) is None:
        raise ValueError(f"{text!r} is no time span; right would be 90s, 30m, 2h, 1d or 1h30m")
    span = sum(float(number) * UNITS_MS[unit] for number, unit in _SPAN_PART(word))
    if not SECOND_MS <= span <= 36_600 * DAY_MS:
        raise ValueError(f"{text!r} is out of range: time spans lie between 1s and 36600d")
    return round(span)


def span_text(ms: float) -> str:
    """A time span, rounded up to seconds, as `parse_span` reads it."""
    left = max(1, math.ceil(ms / SECOND_MS)) * SECOND_MS
    parts = []
    for unit, length in reversed(UNITS_MS.items()):
        whole, left = divmod(left, length)
        if whole:
            parts.append(f"{whole}{unit}")
    return "".join(parts)
