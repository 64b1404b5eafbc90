"""What several workers come to together."""

from __future__ import annotations

import pytest

from orbweb.cli.summaries import add_summaries, worst
from orbweb.cli.worker import how_ended


@pytest.mark.parametrize(
    ("codes", "whole"),
    [
        ([0, 0], 0),
        ([3, 3], 3),
        ([0, 3], 0),
        ([0, 75], 0),
        ([75, 3], 75),
        ([75, 75], 75),
        ([0, 1], 1),
        ([2, 75], 2),
        ([143, 0], 143),
    ],
)
def test_the_exit_code_is_that_of_the_worker_that_fared_worst(codes: list[int], whole: int) -> None:
    assert worst(codes) == whole


def test_how_a_process_ended_is_named() -> None:
    assert how_ended(1) == "exit code 1"
    assert how_ended(-9) == "killed by SIGKILL"


def test_summaries_are_added_and_the_run_is_taken_from_the_last() -> None:
    first = {
        "schema": 1,
        "elapsed": 9.0,
        "request_ok": 3,
        "items": 5,
        "rate": 1.5,
        "spider": "Shop",
        "reasons": {"done": 6, "offsite": 1},
        "run": {"pages": 6, "reasons": {"done": 6}},
        "node": {"pages": 3, "items": 5, "reasons": {"done": 3, "offsite": 1}},
        "outputs": ["/x/items.jsonl"],
    }
    last = {
        **first,
        "elapsed": 8.0,
        "request_ok": 4,
        "reasons": {"done": 7},
        "run": {"pages": 7, "reasons": {"done": 7}},
        "node": {"pages": 4, "items": 5, "reasons": {"done": 4, "offsite": 1}},
    }
    total = add_summaries([first, last], workers=2)
    assert total["request_ok"] == 7
    assert total["items"] == 10
    assert total["rate"] == 3.0
    assert total["reasons"] == {"done": 7, "offsite": 2}
    assert total["run"]["pages"] == 7
    assert total["node"] == {"pages": 7, "items": 10, "reasons": {"done": 7, "offsite": 2}}
    assert total["outputs"] == ["/x/items.jsonl"]
    assert total["schema"] == 1
    assert total["workers"] == 2


def test_workers_that_all_died_have_no_summary() -> None:
    assert add_summaries([], workers=2) == {}
