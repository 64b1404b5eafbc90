"""How counts and time spans are written for people."""

from __future__ import annotations


def number(value: int) -> str:
    """12345 as `12 345`."""
    return f"{value:,}".replace(",", " ")


def counted(value: int, noun: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{number(value)} {noun}{'' if value == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time span as people say it: `0.4 s`, `12 s`, `3 m 20 s`, `5 h 12 m`, `2 d 3 h`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = int(seconds)
    for size, unit, smaller, name in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {name}"
    return f"{whole} s"
