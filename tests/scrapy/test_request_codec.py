"""Requests travel exactly, or are refused with the name of the field; reading executes nothing."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest, XmlRpcRequest

from orbweb.adapters.scrapy.codec import RequestCodec
from orbweb.errors import SpiderError, UnserialisableError
from orbweb.model import codec as own
from orbweb.model.codec import UndecodableError


class Shop(Spider):
    name = "shop"

    def parse(self, response: Any) -> Any: ...

    def detail(self, response: Any, page: int) -> Any: ...

    def failed(self, failure: Any) -> Any: ...

    def __private(self, response: Any) -> Any: ...

    def private_request(self) -> Request:
        return Request("http://e.com/", self.__private)


class Special(Request):
    """A project's own class."""

    attributes = (*Request.attributes, "wish")

    def __init__(self, *args: Any, wish: Any = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.wish = wish


SPIDER = Shop()
CODEC = RequestCodec(SPIDER)

REQUESTS = [
    Request("http://e.com/"),
    Request("http://e.com/ä?q=ü", SPIDER.detail, errback=SPIDER.failed, priority=-7),
    Request("http://e.com/", headers={"A": ["1", "2"], "B": b"\xff"}, dont_filter=True),
    Request("http://e.com/", method="PUT", body=b"\x00\xff", encoding="latin-1", flags=["cached"]),
    Request("http://e.com/", cookies={"sid": "1"}, cb_kwargs={"page": 3, "seen": {1, 2}}),
    Request("http://e.com/", cookies=[{"name": "sid", "value": "1", "domain": "e.com"}]),
    Request("http://e.com/", meta={"depth": 4, "at": datetime(2026, 1, 2, tzinfo=UTC), "t": (1,)}),
    FormRequest("http://e.com/", formdata={"a": ["1", "2"]}),
    JsonRequest("http://e.com/", data={"a": [1, None]}, dumps_kwargs={"sort_keys": True}),
    XmlRpcRequest("http://e.com/", methodname="ask", params=(1,)),
    Special("http://e.com/", wish={"slow": True}),
    SPIDER.private_request(),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=repr)
def test_a_request_returns_as_it_was(request_: Request) -> None:
    back = CODEC.decode(CODEC.encode(request_))
    assert type(back) is type(request_)
    assert back.to_dict(spider=SPIDER) == request_.to_dict(spider=SPIDER)


def test_orbwebs_own_commands_can_read_it() -> None:
    request = Request("http://e.com/1", SPIDER.detail, cb_kwargs={"page": 3}, meta={"depth": 2})
    read = own.decode(CODEC.encode(request))
    assert (read.url, read.callback_name, read.depth) == ("http://e.com/1", "detail", 2)
    assert read.cb_kwargs == {"page": 3}


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (Request("http://e.com/", lambda response: None), "callback"),
        (Request("http://e.com/", Shop().parse), "callback"),
        (Request("http://e.com/", errback=print), "errback"),
        (Request("http://e.com/", meta={"db": object()}), "meta"),
        (Request("http://e.com/", cb_kwargs={"of": {"it": SPIDER}}), "cb_kwargs"),
        (Request("http://e.com/", meta={"half": "\ud800"}), "surrogate"),
    ],
    ids=["lambda", "other spider", "function", "object", "nested", "broken text"],
)
def test_what_cannot_travel_is_named(request_: Request, named: str) -> None:
    with pytest.raises(UnserialisableError, match=named):
        CODEC.encode(request_)


def test_a_callback_that_the_spider_has_not_is_the_spiders_fault() -> None:
    record = {**Request("http://e.com/").to_dict(), "callback": "gone"}
    with pytest.raises(SpiderError, match="spider 'shop' has no method 'gone'"):
        CODEC.decode(CODEC.encode_record(record))


def test_a_class_that_is_not_loaded_is_not_imported() -> None:
    record = {**Request("http://e.com/").to_dict(), "_class": "antigravity.Request"}
    with pytest.raises(UndecodableError, match="no such class"):
        CODEC.decode(CODEC.encode_record(record))


def test_pickle_needs_a_word_of_the_project() -> None:
    request = Request("http://e.com/", meta={"wish": complex(1, 2)})
    open_ = RequestCodec(SPIDER, allow_pickle=True)
    payload = open_.encode(request)
    assert open_.decode(payload).meta == {"wish": complex(1, 2)}
    with pytest.raises(UndecodableError, match="ORBWEB_ALLOW_PICKLE"):
        CODEC.decode(payload)


@given(st.binary(max_size=64) | st.binary(max_size=64).map(lambda tail: b"\x01" + tail))
def test_garbage_is_refused(payload: bytes) -> None:
    with pytest.raises(UndecodableError):
        CODEC.decode(payload)


def test_a_planted_pickle_is_garbage() -> None:
    with pytest.raises(UndecodableError):
        CODEC.decode(pickle.dumps({"url": "http://e.com/"}))
