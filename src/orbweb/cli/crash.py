"""What is shown when the spider's file cannot be loaded: its own lines, not ours."""

from __future__ import annotations

import sys
import traceback

from orbweb.cli import target


def show_crash(error: Exception) -> None:
    """Print an error to stderr. One that came from the spider's file begins there."""
    trace, came_from_file = error.__traceback__, False
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        came_from_file = came_from_file or name == target.__file__
        if came_from_file and name != target.__file__ and not _is_of_imports(name):
            break
        trace = trace.tb_next
    if not came_from_file:
        trace = error.__traceback__
    traceback.print_exception(type(error), error, trace, file=sys.stderr)


def _is_of_imports(name: str) -> bool:
    return name.startswith("<frozen importlib") or name.endswith("/importlib/__init__.py")
