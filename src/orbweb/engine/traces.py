"""Errors of the spider's own code in the log: its own lines only, and each error once in full."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"
MOST = 1000
"""Errors that are remembered; when there are more, they are written in full again."""

Trace = tuple[type[BaseException], BaseException, TracebackType | None]


def own_trace(error: BaseException) -> Trace:
    """What `exc_info` of a log line takes: the traceback from the first line that is not ours.

    An error that never left this package keeps its whole traceback.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
        trace = trace.tb_next
    return type(error), error, trace or error.__traceback__


class KnownErrors:
    """Which errors have been written in full. An error is its type and the place it comes from."""

    def __init__(self) -> None:
        self._known: set[tuple[type[BaseException], str, int]] = set()

    def is_new(self, error: BaseException) -> bool:
        """True the first time."""
        frames = traceback.extract_tb(error.__traceback__)
        place = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
        if (key := (type(error), *place)) in self._known:
            return False
        if len(self._known) >= MOST:
            self._known.clear()
        self._known.add(key)
        return True
