"""A request takes what NetSpy's and Scrapy's take, and what is set on it takes effect."""

from __future__ import annotations

from typing import Any

import pytest

from orbweb.errors import RequestError
from orbweb.model.reasons import Reason
from orbweb.model.request import HTTP_OPTIONS, Request

URL = "http://ex.com/a"


def test_the_defaults_are_those_of_netspy() -> None:
    request = Request(URL)
    assert (request.method, request.priority, request.retry_times) == ("GET", 300, 0)
    assert request.filter_repeat is True
    assert request.auto_request is True
    assert request.dont_filter is False
    assert request.callback is None
    assert request.callback_name == ""
    assert (request.id, request.parent_id, request.depth, request.lease_token) == ("", "", 0, "")
    assert (request.cb_kwargs, request.meta, request.custom) == ({}, {}, {})
    assert request.problem is None


@pytest.mark.parametrize("name", sorted(HTTP_OPTIONS))
def test_every_http_option_can_be_given_or_set_and_takes_effect(name: str) -> None:
    value = {"x": "1"}
    options: dict[str, Any] = {name: value}
    given = Request(URL, **options)
    later = Request(URL)
    assert not getattr(later, name)
    setattr(later, name, value)
    for request in (given, later):
        assert getattr(request, name) == value
        assert request.requests_kwargs == {name: value}
    setattr(later, name, None)
    assert name not in later.requests_kwargs


def test_headers_can_be_filled_without_being_set() -> None:
    request = Request(URL)
    request.headers["X-Token"] = "t"
    assert request.requests_kwargs == {"headers": {"X-Token": "t"}}


def test_unknown_arguments_and_attributes_are_the_spiders_own() -> None:
    request = Request(URL, category="books")
    request.page = 2
    assert request.custom == {"category": "books", "page": 2}
    assert (request.category, request.page) == ("books", 2)
    with pytest.raises(AttributeError, match="unset"):
        _ = request.unset


def test_an_argument_that_would_hide_a_method_is_refused() -> None:
    with pytest.raises(TypeError, match="'copy'"):
        Request(URL, copy=1)


def test_dont_filter_is_the_opposite_of_filter_repeat() -> None:
    request = Request(URL, dont_filter=True)
    assert request.filter_repeat is False
    request.dont_filter = False
    assert request.filter_repeat is True


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"url": None}, TypeError, "None"),
        ({"url": b"http://ex.com/"}, TypeError, "bytes"),
        ({"url": URL, "callback": 3}, TypeError, "callback"),
        ({"url": URL, "priority": "high"}, TypeError, "priority"),
        ({"url": URL, "method": "GET /"}, RequestError, "method"),
        ({"url": URL, "method": None}, TypeError, "method"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        Request(**arguments)


@pytest.mark.parametrize(
    ("url", "problem"),
    [("ex.com/a", "bad_url"), ("mailto:a@b", "scheme"), ("http://[::bad/", "bad_url")],
)
def test_a_url_that_cannot_be_fetched_ends_no_generator(url: str, problem: str) -> None:
    request = Request(url)
    assert (request.url, request.problem) == (url, problem)


def test_white_space_around_and_line_breaks_in_a_url_are_dropped() -> None:
    assert Request("  http://ex.com/a\n b ").url == "http://ex.com/a b"


def test_the_full_url_has_the_params() -> None:
    request = Request(f"{URL}?a=1#x", params={"q": "é b", "n": None, "t": True})
    assert request.full_url == f"{URL}?a=1&q=%C3%A9+b&n=&t=true#x"
    assert Request(URL).full_url == URL


class Spider:
    def parse_page(self) -> None: ...


def test_the_callback_name_is_that_of_the_method() -> None:
    assert Request(URL, callback=Spider().parse_page).callback_name == "parse_page"
    assert Request(URL, callback="parse_page").callback_name == "parse_page"


def test_a_copy_shares_no_container_and_is_not_queued() -> None:
    request = Request(URL, meta={"a": 1}, headers={"x": "1"}, own=[1], callback="parse")
    request.id, request.lease_token, request.depth = "0" * 16, "n:1", 3
    copied = request.copy()
    assert (copied.id, copied.lease_token, copied.depth) == ("", "", 3)
    copied.meta["a"] = 2
    copied.timeout = 5
    copied.other = 1
    assert request.meta == {"a": 1}
    assert request.timeout is None
    assert request.custom == {"own": [1]}
    assert copied.custom == {"own": [1], "other": 1}
    assert copied.callback == "parse"


def test_replace_changes_and_checks() -> None:
    request = Request(URL, priority=1)
    changed = request.replace(url="http://b.com/", method="post", headers={"a": "b"}, own=1)
    assert (changed.url, changed.method, changed.headers) == ("http://b.com/", "POST", {"a": "b"})
    assert (changed.priority, changed.own, request.url) == (1, 1, URL)
    with pytest.raises(RequestError, match="nowhere"):
        request.replace(url="nowhere")


def test_replacing_the_url_ends_its_problem() -> None:
    request = Request(URL)
    request.problem = Reason.SCHEME
    assert request.replace(url="http://b.com/").problem is None


def test_a_dict_and_back() -> None:
    request = Request(
        URL, "POST", callback=Spider().parse_page, data={"a": 1}, meta={"m": 1}, own=2, render=True
    )
    request.id, request.depth = "0123456789abcdef", 2
    record = request.to_dict()
    assert record["callback"] == "parse_page"
    again = Request.from_dict(record)
    assert again.to_dict() == record
    assert (again.own, again.data, again.id, again.depth) == (2, {"a": 1}, request.id, 2)


def test_the_smaller_priority_goes_first() -> None:
    late, early = Request(URL, priority=2), Request(URL, priority=1)
    assert sorted([late, early]) == [early, late]
