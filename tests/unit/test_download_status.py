"""Which statuses are pages, and how long a site asks to wait."""

from __future__ import annotations

import time

import pytest

from orbweb.download.base import Meeting
from orbweb.download.status import StatusPolicy, retry_after_seconds
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Headers, Response

URL = "http://shop.example/a"
NOON = "Tue, 01 Dec 2026 12:00:00 GMT"


def answer(status: int, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(url=URL, status_code=status, headers=named)


@pytest.mark.parametrize("status", [200, 201, 204, 301, 304])
def test_two_and_three_hundreds_are_pages(status: int) -> None:
    assert StatusPolicy().refusal(Request(URL), answer(status)) is None


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 522, 524])
def test_a_status_of_the_retry_list_is_tried_again(status: int) -> None:
    failed = StatusPolicy().refusal(Request(URL), answer(status))
    assert failed is not None
    assert (failed.reason, failed.retry) == (Reason.STATUS_REJECTED, True)
    assert str(status) in str(failed.error)
    assert URL in str(failed.error)


@pytest.mark.parametrize("status", [400, 403, 404, 410, 501, 999])
def test_any_other_status_ends_the_request(status: int) -> None:
    failed = StatusPolicy().refusal(Request(URL), answer(status))
    assert failed is not None
    assert not failed.retry
    assert failed.response is not None
    assert failed.response.status_code == status


def test_an_accepted_status_wins_over_the_retry_list() -> None:
    policy = StatusPolicy(accept=frozenset({404, 503}))
    assert policy.refusal(Request(URL), answer(404)) is None
    assert policy.refusal(Request(URL), answer(503)) is None


def test_without_the_check_every_status_is_a_page() -> None:
    assert StatusPolicy(check=False).refusal(Request(URL), answer(500)) is None


@pytest.mark.parametrize("status", [429, 503])
def test_the_wait_that_a_site_asks_for_is_handed_on(status: int) -> None:
    failed = StatusPolicy().refusal(Request(URL), answer(status, retry_after="120"))
    assert failed is not None
    assert (failed.retry, failed.retry_after) == (True, 120.0)


def test_retry_after_counts_only_where_the_rfc_gives_it_a_meaning() -> None:
    failed = StatusPolicy().refusal(Request(URL), answer(500, retry_after="120"))
    assert failed is not None
    assert failed.retry_after is None


def test_a_wait_longer_than_the_limit_ends_the_request_and_says_so() -> None:
    failed = StatusPolicy(retry_after_max=60).refusal(Request(URL), answer(429, retry_after="61"))
    assert failed is not None
    assert (failed.retry, failed.retry_after) == (False, None)
    assert "RETRY_AFTER_MAX" in str(failed.error)


def test_a_limit_of_zero_ignores_the_header() -> None:
    failed = StatusPolicy(retry_after_max=0).refusal(Request(URL), answer(429, retry_after="61"))
    assert failed is not None
    assert (failed.retry, failed.retry_after) == (True, None)


def test_a_retry_after_date_is_read_against_the_clock_of_the_server() -> None:
    wait = retry_after_seconds("Tue, 01 Dec 2026 12:01:30 GMT", NOON, lambda: 0.0)
    assert wait == 90.0


def test_a_retry_after_date_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert retry_after_seconds("Tue, 01 Dec 2026 12:00:30", NOON) == 30.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_without_a_date_header_the_wall_clock_is_used() -> None:
    noon = 1_796_126_400.0
    assert retry_after_seconds("Tue, 01 Dec 2026 12:00:30 GMT", None, lambda: noon) == 30.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", 0.0),
        (" 7 ", 7.0),
        ("Tue, 01 Dec 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("٣", None),
        ("Tue, 99 Dec 2026 12:00:00 GMT", None),
    ],
)
def test_odd_values_of_retry_after(value: str, expected: float | None) -> None:
    assert retry_after_seconds(value, NOON) == expected


@pytest.mark.parametrize(
    ("status", "value", "expected"),
    [
        (200, None, Meeting("h", healthy=True)),
        (404, "5", Meeting("h", healthy=True)),
        (500, "5", Meeting("h", healthy=False)),
        (429, None, Meeting("h", healthy=False, refused=True)),
        (503, "soon", Meeting("h", healthy=False, refused=True)),
        (503, "5", Meeting("h", healthy=False, retry_after=5.0)),
        (429, "Tue, 01 Dec 2026 12:01:30 GMT", Meeting("h", healthy=False, retry_after=90.0)),
        (429, "86400", Meeting("h", healthy=False, retry_after=3600.0)),
    ],
)
def test_what_an_answer_says_of_its_host(status: int, value: str | None, expected: Meeting) -> None:
    headers = Headers({"date": NOON} | ({"retry-after": value} if value else {}))
    assert StatusPolicy().meeting("h", status, headers) == expected
