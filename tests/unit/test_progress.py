"""What the progress line says."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from orbweb.frontier.base import RunState, Status
from orbweb.spiders.ending import tell_end
from orbweb.spiders.progress import Snapshot, left_out, limit_of, line, reasons_text, showing


def test_the_line_names_what_holds_the_crawl_back() -> None:
    now = Snapshot(
        elapsed_seconds=62.4,
        pages=318,
        pages_per_second=7.62,
        items=300,
        waiting=702,
        failed=2,
        skipped={"duplicate_request": 5, "robots_disallowed": 1},
        limited_by="hosts",
    )
    assert line(now) == (
        "01:02  pages 318  7.6/s  items 300  queue 702  failed 2  "
        "limited by: host limits  skipped 6 (duplicate_request 5, robots_disallowed 1)"
    )


def test_nothing_is_said_of_limits_when_there_is_none() -> None:
    assert "limited" not in line(Snapshot(0, 0, 0, 0, 0, 0, {}, "nothing"))


def test_the_line_says_that_seeding_waits() -> None:
    now = Snapshot(0, 0, 0, 0, 9, 0, {}, "hosts", seeding_waits=True)
    assert "limited by: host limits  start_requests waits: MAX_PENDING  skipped" in line(now)


def test_when_all_that_waits_are_retries_no_host_is_blamed() -> None:
    assert limit_of("hosts", Status(RunState.RUNNING, delayed=1)) == "retries"
    assert limit_of("hosts", Status(RunState.RUNNING, delayed=1, queued=1)) == "hosts"
    assert limit_of("sink", Status(RunState.RUNNING, delayed=1)) == "sink"


def test_only_what_was_left_out_on_purpose_counts_as_skipped() -> None:
    counts = {"done": 9, "timeout": 2, "offsite": 1, "content_type": 3, "scheme": 0}
    assert left_out(counts) == {"offsite": 1, "content_type": 3}


def test_the_most_frequent_reasons_come_first() -> None:
    assert reasons_text({"a": 1, "b": 3, "c": 2, "d": 1}) == "7 (b 3, c 2, a 1, …)"
    assert reasons_text({}) == "0"


async def test_log_lines_come_at_the_interval_and_end_with_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks = 0
    seen = asyncio.Event()

    async def look() -> Snapshot:
        nonlocal looks
        looks += 1
        if looks == 2:
            seen.set()
        return Snapshot(1, looks, 1, 0, 0, 0)

    logger = logging.getLogger("orbweb")
    logger.addHandler(caplog.handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        async with showing(look, live=False, interval_seconds=0.01):
            await asyncio.wait_for(seen.wait(), 10)
        lines = [record.getMessage() for record in caplog.records]
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(level)
    assert lines[0].startswith("progress pages=1 ")
    after = looks
    await asyncio.sleep(0.03)
    assert looks == after


async def test_without_an_interval_nothing_is_looked_at() -> None:
    async def look() -> Snapshot:
        raise AssertionError("nobody asked")

    async with showing(look, live=False, interval_seconds=0):
        await asyncio.sleep(0)


def test_a_person_gets_words_and_a_program_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = {
        "state": "done",
        "elapsed": 2.0,
        "request_ok": 1,
        "items": 2000,
        "reasons": {"offsite": 3},
        "outputs": ["a.jsonl"],
    }
    words = "Done in 2.0 s · 1 page · 2 000 items · 0 failed · skipped 3 (offsite 3)\n"
    words += "  items: a.jsonl\n"
    tell_end(summary, live=True, wanted=True)
    piped = capsys.readouterr()
    assert piped.out.startswith('ORBWEB_RUN_SUMMARY {"state": "done"')
    assert piped.err == words
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    tell_end(summary, live=True, wanted=True)
    assert capsys.readouterr() == ("", words)
    tell_end(summary, live=False, wanted=True)
    assert capsys.readouterr().err == ""
