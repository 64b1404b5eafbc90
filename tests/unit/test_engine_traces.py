"""What the log shows of errors in the spider's own code."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from orbweb.engine.threads import CallbackThreads
from orbweb.engine.traces import MOST, KnownErrors, own_trace


def broken() -> None:
    raise ValueError("mine")


def caught(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


async def test_the_traceback_begins_with_the_first_line_that_is_not_ours() -> None:
    threads = CallbackThreads(1, "test")
    try:
        await threads.run(broken)
    except ValueError as error:
        shown = "".join(traceback.format_exception(*own_trace(error)))
        inner = error.__traceback__
    finally:
        threads.close()
    files = [frame.filename for frame in traceback.extract_tb(inner)]
    assert any(file.endswith("orbweb/engine/threads.py") for file in files)
    assert "in broken" in shown
    assert "threads.py" not in shown[shown.rindex("test_engine_traces.py") :]


def test_an_error_that_never_left_the_package_keeps_its_traceback() -> None:
    error = ValueError("made here, raised nowhere")
    assert own_trace(error) == (ValueError, error, None)


def test_the_same_error_from_the_same_line_is_known_the_second_time() -> None:
    known = KnownErrors()
    assert known.is_new(caught(broken))
    assert not known.is_new(caught(broken))
    assert known.is_new(caught(lambda: 1 / 0))
    assert known.is_new(ValueError("without a place"))


def test_too_many_different_errors_are_forgotten_and_shown_again() -> None:
    known = KnownErrors()
    kinds = [type(f"Error{number}", (Exception,), {}) for number in range(MOST + 1)]
    assert all(known.is_new(kind()) for kind in kinds)
    assert known.is_new(kinds[0]())
