"""What the log shows of errors in the spider's own code."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from orbweb.engine.threads import CallbackThreads
from orbweb.engine.traces import MOST, KnownErrors, is_mistake, own_trace
from orbweb.errors import RequestError, SpiderError
from orbweb.model.response import Response


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


def test_what_the_framework_raises_at_a_line_of_the_spider_is_a_mistake() -> None:
    response = Response("http://a.test/", 200, b"<html></html>")
    assert is_mistake(caught(lambda: response.follow(None)))
    assert is_mistake(caught(broken))


def test_what_the_spider_tells_the_engine_by_an_error_is_none() -> None:
    def captcha() -> None:
        raise RequestError("a captcha")

    assert not is_mistake(caught(captcha))
    assert not is_mistake(SpiderError("of what was yielded, raised at no line"))


def test_two_lines_that_fail_in_the_same_place_of_ours_are_two_errors() -> None:
    response = Response("http://a.test/", 200, b"<html></html>")
    known = KnownErrors()
    assert known.is_new(caught(lambda: response.follow(None)))
    assert known.is_new(caught(lambda: response.follow(None)))
