"""Errors of the spider's own code in the log: its own lines only, and each error once in full."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from orbweb.errors import OrbwebError

PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"
LIBRARIES = tuple(
    sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
MOST = 1000
"""Errors that are remembered; when there are more, they are written in full again."""

Trace = tuple[type[BaseException], BaseException, TracebackType | None]


def own_trace(error: BaseException) -> Trace:
    """What `exc_info` of a log line takes: the traceback from the first line that is not ours.

    An error that never left this package keeps its whole traceback.
    """
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return type(error), error, trace or error.__traceback__


def is_mistake(error: BaseException) -> bool:
    """Whether the spider's code has a line to correct, which a traceback shows.

    So are all errors but those of Orbweb's classes which the spider raised itself, as word to the
    engine, and those which come of what it yielded, not of a line.
    """
    if not isinstance(error, OrbwebError):
        return True
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return not all(_is_ours(file) for file in files) and _is_ours(files[-1])


def place_of(error: BaseException) -> str:
    """Where in the spider's own code an error came up, as ` (shop.py:31 in parse)`; else empty.

    It is the innermost line that belongs neither to this package nor to a library.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not _is_ours(frame.filename) and not frame.filename.startswith(LIBRARIES):
            return f" ({Path(frame.filename).name}:{frame.lineno} in {frame.name})"
    return ""


class KnownErrors:
    """Which errors have been written in full.

    An error is its type and the place it comes from: the innermost line that is not ours.
    """

    def __init__(self) -> None:
        self._known: set[tuple[type[BaseException], str, int]] = set()

    def is_new(self, error: BaseException) -> bool:
        """True the first time."""
        whole = traceback.extract_tb(error.__traceback__)
        frames = [frame for frame in whole if not _is_ours(frame.filename)] or whole
        place = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
        if (key := (type(error), *place)) in self._known:
            return False
        if len(self._known) >= MOST:
            self._known.clear()
        self._known.add(key)
        return True


def _is_ours(file: str) -> bool:
    return file.startswith(PACKAGE)
