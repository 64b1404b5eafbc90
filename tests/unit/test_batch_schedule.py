"""When batches are due: intervals that do not drift, cron lines over summer time, missed times."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from orbweb.batch.schedule import Every, parse_schedule
from orbweb.errors import ConfigError
from orbweb.settings import load_settings

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3_600_000


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp() * 1000)


def said(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, BERLIN).strftime("%m-%d %H:%M")


def test_an_interval_is_counted_from_when_the_last_batch_was_due() -> None:
    every = parse_schedule("1", "hour")
    assert every.first(now_ms=77) == 77
    assert every.following(1000, now_ms=50_000) == (1000 + HOUR, 0)
    assert every.following(1000, now_ms=1000 + HOUR + 999) == (1000 + HOUR, 0)


def test_times_that_passed_without_a_batch_are_counted_and_not_made_up_for() -> None:
    assert Every(10).following(0, now_ms=35) == (30, 2)
    cron = parse_schedule("0 * * * *", "day", "Europe/Berlin")
    due = cron.following(at("2026-06-01 10:00"), now_ms=at("2026-06-01 13:30"))
    assert due == (at("2026-06-01 13:00"), 2)


def test_a_cron_line_waits_for_its_first_time() -> None:
    cron = parse_schedule("30 3 * * *", "day", "Europe/Berlin")
    assert said(cron.first(at("2026-06-01 12:00"))) == "06-02 03:30"


def test_a_cron_line_in_the_hour_that_summer_time_leaves_out_comes_when_that_is_over() -> None:
    cron = parse_schedule("30 2 * * *", "day", "Europe/Berlin")
    assert said(cron.following(at("2026-03-28 02:30"), 0).at_ms) == "03-29 03:00"


def test_the_hour_that_summer_time_repeats_is_no_step_back() -> None:
    cron = parse_schedule("*/30 * * * *", "day", "Europe/Berlin")
    due, seen = at("2026-10-25 01:00"), []
    for _ in range(6):
        due = cron.following(due, 0).at_ms
        seen.append(due)
    assert [later - sooner for sooner, later in pairwise(seen)] == [HOUR / 2] * 5


def test_a_daily_line_comes_once_in_the_repeated_hour() -> None:
    cron = parse_schedule("30 2 * * *", "day", "Europe/Berlin")
    first = cron.following(at("2026-10-24 02:30"), 0).at_ms
    assert said(first) == "10-25 02:30"
    assert said(cron.following(first, 0).at_ms) == "10-26 02:30"


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ("7", "every 7 days"),
        ("1", "every day"),
        ("0.5", "every 12 hours"),
        ("1e-5", "every 0.864 s"),
    ],
)
def test_a_schedule_says_what_it_is(interval: str, words: str) -> None:
    assert str(parse_schedule(interval, "day")) == words


@pytest.mark.parametrize(
    "wrong", ["", "0", "-1", "nan", "inf", "daily", "61 * * * *", "* * * *", "0 0 31 2 *"]
)
def test_what_is_no_schedule_is_refused_with_what_would_be_right(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"right would be"):
        parse_schedule(wrong, "day")


def test_a_wrong_time_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="Europe/Atlantis"):
        parse_schedule("0 0 * * *", "day", "Europe/Atlantis")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (1, "every day"),
        (0.5, "every 12 hours"),
        ("2", "every 2 days"),
        ("0 4 * * *", "cron 0 4 * * *"),
    ],
)
def test_settings_take_a_number_or_a_line(tmp_path: Path, given: object, words: str) -> None:
    settings = load_settings(
        spider_settings={"BATCH_INTERVAL": given}, directory=tmp_path, environ={}
    )
    assert str(parse_schedule(settings["BATCH_INTERVAL"], settings["BATCH_INTERVAL_UNIT"])) == words


def test_a_schedule_that_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="BATCH_INTERVAL = \\[1\\]"):
        load_settings(spider_settings={"BATCH_INTERVAL": [1]}, directory=tmp_path, environ={})
