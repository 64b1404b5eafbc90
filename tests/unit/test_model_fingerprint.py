"""Two requests are the same when method, canonical URL and body are."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbweb.errors import UnserialisableError
from orbweb.model.codec import decode, encode
from orbweb.model.fingerprint import derived_fingerprint, fingerprint, request_id
from orbweb.model.request import Request

URL = "http://ex.com/a"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Request(URL), Request("HTTP://EX.com:80/a#x")),
        (Request(f"{URL}?a=1&b=2"), Request(URL, params={"b": 2, "a": "1"})),
        (Request(f"{URL}?b=2", params="a=1"), Request(f"{URL}?a=1&b=2")),
        (Request(URL, params=[("a", 1), ("a", 2)]), Request(URL, params={"a": [1, 2]})),
        (Request(URL, params={}), Request(URL)),
        (Request(URL, headers={"X": "1"}, cookies={"c": "1"}), Request(URL)),
        (Request(URL, cb_kwargs={"x": 1}, meta={"y": 2}, priority=1), Request(URL)),
        (Request(URL, "post", data={"a": 1, "b": 2}), Request(URL, "POST", data={"b": 2, "a": 1})),
        (Request(URL, "POST", data=b"x"), Request(URL, "POST", content="x")),
        (
            Request(URL, "POST", json={"a": 1, "b": [2]}),
            Request(URL, "POST", json={"b": [2], "a": 1}),
        ),
    ],
)
def test_the_same_page_has_the_same_fingerprint(one: Request, other: Request) -> None:
    assert fingerprint(one) == fingerprint(other)
    assert one.fingerprint == other.fingerprint


def test_every_kind_of_body_and_every_method_counts() -> None:
    different = [
        Request(URL),
        Request(URL, "HEAD"),
        Request(URL, "POST"),
        Request(f"{URL}/"),
        Request("https://ex.com/a"),
        Request(URL, params={"a": 1}),
        Request(URL, "POST", data={"a": 1}),
        Request(URL, "POST", data={"a": [1, 1]}),
        Request(URL, "POST", data={"a=1&b": 1}),
        Request(URL, "POST", json={"a": 1}),
        Request(URL, "POST", json={"a": "1"}),
        Request(URL, "POST", json=[]),
        Request(URL, "POST", json=0),
        Request(URL, "POST", content=b"a=1"),
        Request(URL, "POST", content=b"a=2"),
        Request(URL, "POST", files={"a": b"1"}),
        Request(URL, "POST", files={"a": b"2"}),
        Request(URL, "POST", files={"a": ("name.txt", b"1")}),
        Request(URL, "POST", data={"a": 1}, files={"a": b"1"}),
    ]
    assert len({fingerprint(request) for request in different}) == len(different)


def test_tracking_parameters_do_not_count_when_named() -> None:
    tracked = Request(f"{URL}?id=1", params={"utm_source": "x"})
    assert fingerprint(tracked, frozenset({"utm_*"})) == fingerprint(Request(f"{URL}?id=1"))


def test_the_number_does_not_change_between_versions() -> None:
    """Fingerprints are stored for months: a change here makes every known page new."""
    assert request_id(fingerprint(Request(URL))) == "9c86a8c4a4109eff"
    assert request_id(fingerprint(Request(URL, "POST", json={"a": 1}))) == "adb1a80d17361a86"


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_a_request_id_is_sixteen_hex_characters_and_unique(number: int) -> None:
    name = request_id(number)
    assert len(name) == 16
    assert int(name, 16) == number % 2**64


def test_a_derived_number_depends_on_all_parts_and_where_they_end() -> None:
    numbers = {
        derived_fingerprint("a", "b"),
        derived_fingerprint("ab"),
        derived_fingerprint("a", "b", ""),
        derived_fingerprint("b", "a"),
        derived_fingerprint("a\x001:b"),
        derived_fingerprint("a\x00b"),
    }
    assert len(numbers) == 6
    assert derived_fingerprint("a", "b") in numbers
    assert all(-(2**63) <= number < 2**63 for number in numbers)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("files", {"files": {"f": io.BytesIO(b"x")}}),
        ("content", {"content": iter([b"x"])}),
        ("json", {"json": {"a": object()}}),
        ("data", {"data": io.BytesIO(b"x")}),
        (r"data\['a'\]", {"data": {"a": object()}}),
        ("params", {"params": 7}),
        ("params", {"params": ["ab"]}),
        (r"data\['a'\]", {"data": {"a": "\ud800"}}),
        ("content", {"content": "\ud800"}),
        ("json", {"json": "\ud800"}),
    ],
)
def test_a_body_that_cannot_be_read_twice_is_refused_by_field(
    field: str, options: dict[str, Any]
) -> None:
    with pytest.raises(UnserialisableError, match=field):
        fingerprint(Request(URL, "POST", **options))


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=4), st.text(max_size=4) | st.integers(), max_size=3),
    st.sampled_from(["params", "data", "json"]),
)
def test_a_fingerprint_survives_the_journey_through_the_store(
    body: dict[str, object], field: str
) -> None:
    options: dict[str, Any] = {field: body}
    request = Request(URL, "POST", **options)
    assert fingerprint(decode(encode(request))) == fingerprint(request)
