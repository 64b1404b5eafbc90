"""What a node says when its work ends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from orbweb.engine.report import Reporter
from orbweb.engine.shutdown import ExitCode
from orbweb.engine.stats import Stats
from orbweb.errors import ConfigError
from orbweb.frontier.base import RunState, Status


def reporter(identity: Mapping[str, str]) -> Reporter:
    return Reporter(
        "Shop",
        Stats(lambda: 0.0),
        outputs=lambda: (),
        identity=identity,
        show_summary=True,
    )


def test_a_run_without_seeds_says_that_there_were_none() -> None:
    report = reporter({}).done(Status(RunState.DONE))
    assert report.exit_code == ExitCode.NOTHING_DONE
    assert report.why == (
        "the run ended without a single good page: 0 pages, 0 items; "
        "start_urls is empty and start_requests yielded nothing"
    )


def test_pages_that_failed_are_told_by_reason() -> None:
    report = reporter({}).done(Status(RunState.DONE, dead=2, reasons={"timeout": 2}))
    assert report.why.endswith("0 pages, 0 items, 2 failed now; on the way: 2 timeout")


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ({"run_id": "", "redis_key": "Shop"}, "start again to go on"),
        ({"run_id": "monday", "redis_key": "Shop"}, "start again with RUN_ID monday to go on"),
        ({}, "nothing is kept without a store, so the next start begins anew"),
    ],
)
def test_who_stops_early_says_how_to_go_on(
    identity: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    reporter(identity).stopped("SIGTERM", None)
    assert caplog.messages == [f"stopped early (SIGTERM); {said}"]


def test_a_mistake_in_the_settings_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    report = reporter({}).failed(ConfigError("DEDUP_FILTER is bloom, but the run has exact"))
    assert report.exit_code == ExitCode.USAGE
    assert report.why == "DEDUP_FILTER is bloom, but the run has exact"
    assert caplog.messages == [report.why]
    assert caplog.records[0].exc_info is None


def test_seeds_that_were_all_refused_are_not_taken_for_none() -> None:
    done = reporter({}).done(Status(RunState.DONE, reasons={"bad_url": 2, "offsite": 1}))
    assert done.why.endswith("page: 0 pages, 0 items, 2 bad_url, 1 offsite: no seed was taken")
    nothing = reporter({}).done(Status(RunState.DONE))
    assert nothing.why.endswith("start_requests yielded nothing")


@pytest.mark.parametrize(("dead", "said"), [(0, "0 failed now"), (1, "1 failed now")])
def test_what_is_failed_now_stands_apart_from_what_failed_on_the_way(
    dead: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stats = Stats(lambda: 0.0)
    stats.incr("request_ok", 3)
    made = Reporter("Shop", stats, outputs=lambda: (), identity={}, show_summary=True)
    reasons = {"done": 3, "callback_error": 1, "offsite": 2}
    made.done(Status(RunState.DONE, dead=dead, items=2, reasons=reasons))
    (text,) = caplog.messages
    assert text.endswith(f"2 items, {said}; on the way: 1 callback_error, 2 offsite")
