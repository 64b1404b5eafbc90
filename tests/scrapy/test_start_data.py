"""What becomes of each format of start entries (the table of formats in the documentation)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scrapy import Request

from orbweb.adapters.scrapy.spiders import RedisSpider
from orbweb.adapters.scrapy.start_data import StartEntryError, read_entry, request_from_entry

URL = "http://e.com/a?x=1"


class Shop(RedisSpider):
    name = "shop"

    def parse_item(self, response: Any) -> None: ...


def made(entry: Any, other_fields: str = "auto") -> Request:
    data = entry if isinstance(entry, bytes) else json.dumps(entry).encode()
    record = read_entry(data, "utf-8")
    return request_from_entry(record, Shop(), other_fields=other_fields)


@pytest.mark.parametrize("entry", [URL.encode(), f" {URL}\n".encode(), json.dumps(URL).encode()])
def test_a_plain_url_is_fetched_and_not_filtered(entry: bytes) -> None:
    request = made(entry)
    assert (request.url, request.method, request.dont_filter) == (URL, "GET", True)


def test_every_field_of_a_request_can_be_given_by_its_name() -> None:
    request = made(
        {
            "url": URL,
            "method": "put",
            "headers": {"X-A": "1"},
            "body": "raw",
            "cookies": {"sid": "9"},
            "meta": {"job": 7},
            "cb_kwargs": {"page": 3},
            "priority": 5,
            "dont_filter": False,
            "callback": "parse_item",
            "errback": "parse_item",
            "encoding": "latin-1",
            "flags": ["seed"],
        }
    )
    assert (request.method, request.body, request.url) == ("PUT", b"raw", URL)
    assert request.headers["X-A"] == b"1"
    assert (request.cookies, request.meta) == ({"sid": "9"}, {"job": 7})
    assert (request.cb_kwargs, request.priority) == ({"page": 3}, 5)
    assert request.dont_filter is False
    assert request.callback.__name__ == request.errback.__name__ == "parse_item"  # type: ignore[union-attr]
    assert (request.encoding, request.flags) == ("latin-1", ["seed"])


def test_json_becomes_the_body_of_a_post() -> None:
    request = made({"url": URL, "json": {"q": ["ä"]}})
    assert (request.method, json.loads(request.body)) == ("POST", {"q": ["ä"]})
    assert request.headers["Content-Type"] == b"application/json"


def test_formdata_becomes_form_fields_of_a_post() -> None:
    request = made({"url": URL, "formdata": {"a": "1", "n": 2, "b": [True, "x"]}})
    assert (request.method, request.body) == ("POST", b"a=1&n=2&b=true&b=x")


def test_other_keys_of_a_post_are_form_fields_as_in_scrapy_redis() -> None:
    request = made({"url": URL, "method": "post", "a": "1", "b": ["2", "3"]})
    assert (request.method, request.body) == ("POST", b"a=1&b=2&b=3")


def test_other_keys_of_a_get_become_meta_and_leave_the_query_alone() -> None:
    request = made({"url": URL, "url_cookie_key": "fertxsas", "page": 3, "meta": {"page": 4}})
    assert (request.url, request.meta) == (URL, {"url_cookie_key": "fertxsas", "page": 4})


def test_other_keys_take_the_place_of_the_query_when_that_is_wanted() -> None:
    request = made({"url": URL, "url_cookie_key": "fertxsas"}, "form")
    assert request.url == "http://e.com/a?url_cookie_key=fertxsas"


def test_other_keys_are_refused_when_that_is_wanted() -> None:
    with pytest.raises(StartEntryError, match="unknown keys page; known: body, "):
        made({"url": URL, "page": 3}, "reject")


@pytest.mark.parametrize("name", ["meta", "method", "headers", "callback", "priority"])
def test_null_means_that_a_field_is_not_given(name: str) -> None:
    assert made({"url": URL, name: None}).method == "GET"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (b"not-a-url", "Missing scheme"),
        (b"", 'no "url"'),
        (b"\xff\xfe", "no utf-8 text"),
        (b"123", "a URL or a JSON object is wanted, not 123"),
        (b"null", "a URL or a JSON object is wanted"),
        (b'["http://e.com"]', "a URL or a JSON object is wanted"),
        ({"meta": {}}, 'no "url"'),
        ({"url": 7}, 'no "url"'),
        ({"url": URL, "priority": "5"}, '"priority" must be of type int'),
        ({"url": URL, "priority": True}, '"priority" must be of type int'),
        ({"url": URL, "dont_filter": "no"}, '"dont_filter" must be of type bool'),
        ({"url": URL, "meta": ["x"]}, '"meta" must be of type dict'),
        ({"url": URL, "callback": "parse_nothing"}, "has no method 'parse_nothing'"),
        ({"url": URL, "callback": "__class__"}, "has no method '__class__'"),
        ({"url": URL, "body": "a", "json": {}}, "only one body is possible"),
        ({"url": URL, "method": "POST", "body": "a", "b": "1"}, "only one body is possible"),
        ({"url": URL, "encoding": "klingon", "formdata": {"a": "ä"}}, "unknown encoding"),
    ],
)
def test_a_bad_entry_is_refused_with_its_reason(entry: Any, reason: str) -> None:
    with pytest.raises(StartEntryError, match=reason):
        made(entry)
