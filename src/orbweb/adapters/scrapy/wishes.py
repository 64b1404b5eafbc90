"""What a project may ask for a single request in its `meta`, of Orbweb's scheduler alone."""

from __future__ import annotations

import math

from scrapy import Request

from orbweb.model.codec import UndecodableError

EXACT = "orbweb_exact"
"""True: no error of a filter may drop it, as it is looked up in an exact set beside the filter."""

HERE = "orbweb_here"
"""True: the worker that finds it does it itself, as a session lives there. Until then the page on
which it was found is not finished, so if the worker dies another begins with that page."""

DELAY = "orbweb_delay"
"""Seconds that it waits in the store before it is fetched."""


def delay_ms(request: Request) -> int:
    """How long a request is to wait. Raises `UndecodableError` for what is no time."""
    wanted = request.meta.get(DELAY, 0)
    if (
        isinstance(wanted, bool)
        or not isinstance(wanted, int | float)
        or not 0 <= wanted < math.inf
    ):
        raise UndecodableError(f"meta[{DELAY!r}] is {wanted!r}, not a number of seconds")
    return round(wanted * 1000)
