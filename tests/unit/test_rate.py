"""Rates and time spans as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbweb.model.rate import DAY_MS, parse_rate, parse_span, rate_text, span_text


@pytest.mark.parametrize(
    ("text", "gap_ms"),
    [
        ("2/s", 500),
        ("30/m", 2000),
        ("100/h", 36_000),
        ("0.5/s", 2000),
        ("0.5", 2000),
        ("2", 500),
        ("1/10s", 10_000),
        ("1/1.5s", 1500),
        (" 4/S ", 250),
        ("1000/s", 1),
        ("1/d", DAY_MS),
    ],
)
def test_a_rate_is_a_least_gap(text: str, gap_ms: int) -> None:
    assert parse_rate(text) == gap_ms


def test_a_gap_is_rounded_up_so_that_the_rate_is_never_exceeded() -> None:
    assert parse_rate("3/s") == 334
    assert parse_rate("7/m") == 8572


@pytest.mark.parametrize("text", ["", "fast", "/s", "2/", "2/w", "-1/s", "1e3/s", "2 per s", "nan"])
def test_what_is_no_rate_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no rate; right would be 2/s"):
        parse_rate(text)


def test_a_rate_of_zero_is_a_pause() -> None:
    with pytest.raises(ValueError, match="orbweb pause"):
        parse_rate("0/s")


@pytest.mark.parametrize("text", ["1001/s", "1/367d"])
def test_rates_that_nobody_means_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="out of range"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("gap_ms", "text"),
    [
        (500, "2/s"),
        (2000, "30/m"),
        (334, "3/s"),
        (60_000, "1/m"),
        (10_500, "1/10.5s"),
        (0, "no limit"),
    ],
)
def test_a_gap_is_told_as_a_rate(gap_ms: int, text: str) -> None:
    assert rate_text(gap_ms) == text


@given(st.integers(1, 366 * DAY_MS))
def test_a_rate_that_is_told_can_be_typed(gap_ms: int) -> None:
    assert parse_rate(rate_text(gap_ms)) == gap_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 90_000), ("30m", 1_800_000), ("2h", 7_200_000), ("1d", DAY_MS), ("1h30m", 5_400_000)],
)
def test_a_time_span_has_units(text: str, ms: int) -> None:
    assert parse_span(text) == ms


@pytest.mark.parametrize("text", ["", "30", "m", "30 minutes", "1w", "-5m"])
def test_what_is_no_time_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time span"):
        parse_span(text)


def test_a_span_below_a_second_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="between 1s and"):
        parse_span("0s")


@given(st.integers(1, 36_600 * 86_400))
def test_a_span_that_is_told_can_be_typed(seconds: int) -> None:
    assert parse_span(span_text(seconds * 1000)) == seconds * 1000
