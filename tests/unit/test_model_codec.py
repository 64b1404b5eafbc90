"""What enters the store comes out exactly as it was, or does not enter."""

from __future__ import annotations

import functools
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbweb.errors import UnserialisableError
from orbweb.model.codec import UndecodableError, decode, encode
from orbweb.model.request import Request
from orbweb.model.way import NO_WAY, Way

URL = "http://ex.com/a"

_zones = st.none() | st.sampled_from(
    [UTC, ZoneInfo("Asia/Shanghai"), timezone(timedelta(hours=-3, minutes=-30)), ZoneInfo("UTC")]
)
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_hashable = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | _text
    | st.binary(max_size=8)
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.dates()
    | st.times(timezones=_zones)
    | st.datetimes(timezones=_zones)
    | st.timedeltas()
)
_values = st.recursive(
    _hashable | st.tuples(_hashable, _hashable) | st.frozensets(_hashable, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(_hashable, max_size=3)
        | st.dictionaries(_text, inner, max_size=3)
        | st.dictionaries(_hashable | st.tuples(_hashable, _text), inner, max_size=3)
    ),
    max_leaves=8,
)


def form(value: Any) -> Any:
    """A form whose equality tells 1 from True and 1.0, tuple from list, and fold from none."""
    kind = type(value)
    if kind is dict:
        return kind, [(form(key), form(one)) for key, one in value.items()]
    if kind in (list, tuple):
        return kind, [form(one) for one in value]
    if kind in (set, frozenset):
        return kind, sorted(map(repr, map(form, value)))
    if kind in (datetime, time):
        return kind, repr(value), value.fold
    return kind, repr(value)


def test_the_form_sees_differences_that_equality_does_not() -> None:
    assert form([1]) != form([True])
    assert form((1,)) != form([1])
    assert form({"a": 1.0}) != form({"a": 1})


@settings(deadline=None)
@given(_values)
def test_every_supported_value_returns_exactly(value: Any) -> None:
    request = Request(URL, meta={"m": value}, cb_kwargs={"k": value}, json=value, own=value)
    again = decode(encode(request))
    assert form(again.meta) == form({"m": value})
    assert form(again.cb_kwargs) == form({"k": value})
    assert form(again.custom) == form({"own": value})
    assert form(again.json) == form(value)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("-inf"),
        -0.0,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63) - 1,
        Decimal("NaN"),
        Decimal("-0.00"),
        Decimal("1E+400"),
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime.min,
        datetime.max.replace(tzinfo=UTC),
        time(1, tzinfo=timezone(timedelta(hours=1), "named")),
        timedelta.min,
        timedelta.max,
        date.max,
        UUID(int=0),
        {1: "int", "1": "str", None: 0, b"b": 1, (1, (2, "x")): [(), set(), frozenset()]},
        {(): {}},
    ],
    ids=repr,
)
def test_the_edges_of_the_types_return_exactly(value: Any) -> None:
    assert form(decode(encode(Request(URL, meta={"m": value}))).meta["m"]) == form(value)


@settings(deadline=None)
@given(
    method=st.sampled_from(["GET", "POST", "DELETE"]),
    callback=st.none() | st.just("parse_page"),
    priority=st.integers(-(2**31), 2**31),
    retry_times=st.integers(0, 9),
    filter_repeat=st.booleans(),
    auto_request=st.booleans(),
    use_session=st.none() | st.booleans(),
    random_user_agent=st.none() | st.booleans(),
    impersonate=st.none() | _text,
    render=st.booleans(),
    render_time=st.none() | st.floats(allow_nan=False),
    wait_for=st.none() | _text,
    render_script=st.none() | _text,
    download_midware=st.none() | st.just("sign"),
    parser_name=st.none() | _text,
    headers=st.none() | st.dictionaries(_text, _text, max_size=2),
    auth=st.none() | st.tuples(_text, _text),
    timeout=st.none() | st.floats(0, 99),
    verify=st.none() | st.booleans(),
)
def test_every_argument_returns(**arguments: Any) -> None:
    request = Request(URL, **arguments)
    request.depth, request.parent_id = 7, "0123456789abcdef"
    again = decode(encode(request))
    assert form(again.to_dict()) == form(request.to_dict())
    assert again.url == URL


def test_the_lease_is_not_part_of_the_request() -> None:
    request = Request(URL)
    request.id, request.lease_token = "0123456789abcdef", "node:1"
    again = decode(encode(request))
    assert (again.id, again.lease_token) == ("", "")


def test_the_way_of_a_redirected_request_travels_with_it() -> None:
    request = Request("http://b.test/")
    request.way = Way(("http://a.test/",), (("GET", "http://a.test/"),), {"a.test": {"c": "1"}})
    assert decode(encode(request)).way == request.way
    assert decode(encode(Request("http://b.test/"))).way is NO_WAY
    assert request.replace(url="http://c.test/").way == request.way


def test_a_plain_request_is_small() -> None:
    assert len(encode(Request(URL))) <= len(URL) + 6


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 1


class Text(str):
    __slots__ = ()


Pair = namedtuple("Pair", "a b")
LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Colour.RED,
        Size.BIG,
        Pair(1, 2),
        OrderedDict(a=1),
        bytearray(b"x"),
        1j,
        print,
        LOOP,
        "\ud800",
        10**5000,
        ("\ud800",),
        {"\ud800"},
        {1: "\ud800"},
        range(3),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("field", ["meta", "cb_kwargs", "json", "cookies", "own"])
def test_what_cannot_return_exactly_is_refused_by_field(value: Any, field: str) -> None:
    options: dict[str, Any] = {field: {"deep": [{"x": value}]}}
    request = Request(URL, **options)
    named = "custom" if field == "own" else field
    is_broken = isinstance(value, str | tuple | set | dict) and "ud800" in repr(value)
    match = "surrogate" if is_broken else named
    with pytest.raises(UnserialisableError, match=match):
        encode(request)


def test_a_priority_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(UnserialisableError, match="64 bits"):
        encode(Request(URL, priority=10**30))


def test_the_refusal_shows_the_way_to_the_value_and_its_type() -> None:
    with pytest.raises(UnserialisableError, match=r"meta\['a'\]\[1\].*Colour") as caught:
        encode(Request(URL, meta={"a": [1, Colour.RED]}))
    assert URL in str(caught.value)


def test_a_subclass_of_text_travels_as_text() -> None:
    again = decode(encode(Request(URL, meta={"t": Text("x")}))).meta["t"]
    assert (type(again), again) == (str, "x")


class Spider:
    def parse(self) -> None: ...

    alias = parse


def module_function() -> None: ...


def test_a_callback_travels_as_the_name_of_a_method() -> None:
    class LocalSpider(Spider):
        def parse_local(self) -> None: ...

    spider = LocalSpider()
    callbacks: list[tuple[Any, str]] = [
        (spider.parse, "parse"),
        (spider.parse_local, "parse_local"),
        (LocalSpider.parse_local, "parse_local"),
        (Spider.parse, "parse"),
        (module_function, "module_function"),
        ("parse_x", "parse_x"),
    ]
    for callback, name in callbacks:
        assert decode(encode(Request(URL, callback=callback))).callback == name
    assert decode(encode(Request(URL))).callback is None


def test_a_callback_that_no_other_process_can_find_is_refused() -> None:
    def local() -> None: ...

    for callback in (lambda: None, local, functools.partial(module_function)):
        for field in ("callback", "download_midware"):
            options: dict[str, Any] = {field: callback}
            with pytest.raises(UnserialisableError, match=f"{field}: .*method of the spider"):
                encode(Request(URL, **options))


@pytest.mark.parametrize(
    ("field", "value"),
    [("priority", 1.5), ("depth", "1"), ("filter_repeat", 1), ("url", b"x"), ("meta", [1])],
)
def test_an_attribute_of_a_wrong_type_is_refused_before_it_is_stored(
    field: str, value: Any
) -> None:
    request = Request(URL)
    setattr(request, field, value)
    with pytest.raises(UnserialisableError, match=field):
        encode(request)


def test_a_custom_name_that_hides_a_method_is_refused_on_both_sides() -> None:
    request = Request(URL)
    request.custom["copy"] = 1
    with pytest.raises(UnserialisableError, match="copy"):
        encode(request)
    forged = b"\x01" + msgspec.msgpack.encode({"u": URL, "x": {"copy": 1}})
    with pytest.raises(UndecodableError, match="copy"):
        decode(forged)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x02",
        b"\x01",
        b"\x01\xc1",
        b"{}",
        b"\x01" + msgspec.msgpack.encode({}),
        b"\x01" + msgspec.msgpack.encode({"u": 1}),
        b"\x01" + msgspec.msgpack.encode({"u": "mailto:x"}),
        b"\x01" + msgspec.msgpack.encode({"u": URL, "m": "A B"}),
        b"\x01" + msgspec.msgpack.encode({"u": URL, "k": [1]}),
        b"\x01" + msgspec.msgpack.encode({"u": URL, "h": 3}),
        b"\x01" + msgspec.msgpack.encode({"u": URL, "o": {"nonsense": 3}}),
        b"\x01" + msgspec.msgpack.encode({"u": URL, "o": {"priority": 3}}),
        b"\x01" + msgspec.msgpack.encode({"u": URL}) + b"\x00",
        b"\x01" + msgspec.msgpack.encode({"u": URL, "e": {"a": msgspec.msgpack.Ext(99, b"\xc0")}}),
        b"\x01" + msgspec.msgpack.encode({"u": URL, "e": {"a": msgspec.msgpack.Ext(1, b"")}}),
        b"\x01" + msgspec.msgpack.encode({"u": URL, "e": {"a": msgspec.msgpack.Ext(6, b"\xa1x")}}),
        b"\x01"
        + msgspec.msgpack.encode({"u": URL, "e": {"a": msgspec.msgpack.Ext(2, b"\x91\x90")}}),
        b"\x01\x81\xa1e" + b"\x91" * 5000 + b"\xc0",
        b"\x01"
        + msgspec.msgpack.encode(
            {"u": URL, "e": {"a": msgspec.msgpack.Ext(11, msgspec.msgpack.encode("x" * 16))}}
        ),
    ],
)
def test_foreign_bytes_are_undecodable_and_nothing_else(payload: bytes) -> None:
    with pytest.raises(UndecodableError):
        decode(payload)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_undecodable(tail: bytes) -> None:
    for payload in (tail, b"\x01" + tail, b"\x01\x82\xa1u\xa8http://a\xa1e" + tail):
        try:
            decode(payload)
        except UndecodableError:
            continue


@settings(deadline=None)
@given(_values, st.data())
def test_a_damaged_payload_raises_nothing_but_undecodable(value: Any, data: st.DataObject) -> None:
    payload = bytearray(encode(Request(URL, meta={"m": value})))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(payload[: data.draw(st.integers(place, len(payload)))]))
    except UndecodableError:
        return
