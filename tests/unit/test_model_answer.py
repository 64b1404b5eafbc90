"""What is kept of a response beside a dead letter."""

from __future__ import annotations

import pytest
from backports import zstd

from orbweb.model.answer import (
    LONGEST_HEADER,
    MOST_HEADERS,
    UnreadableAnswerError,
    pack_answer,
    unpack_answer,
)
from orbweb.model.request import Request
from orbweb.model.response import Response

PAGE = Response(
    "https://shop.example/p?b=1",
    403,
    "<title>geh weg – ü</title>".encode("latin-1", "replace"),
    {"Content-Type": "text/html; charset=latin-1", "X-Odd": "ä"},
    {"session": "s3cret"},
    elapsed=0.25,
    history=["https://shop.example/old"],
)


def test_a_response_comes_back_as_it_was() -> None:
    request = Request(PAGE.url)
    answer = unpack_answer(pack_answer(PAGE, 1000), request)
    assert answer.is_whole
    assert answer.response.to_dict() == PAGE.to_dict()
    assert answer.response.request is request
    assert answer.response.css("title::text").get() == PAGE.css("title::text").get()


def test_a_longer_body_is_cut_and_its_length_is_known() -> None:
    answer = unpack_answer(pack_answer(PAGE, 7))
    assert (answer.response.content, answer.is_whole) == (b"<title>", False)
    assert answer.whole_bytes == len(PAGE.content)


def test_headers_cannot_grow_without_end() -> None:
    many = {f"x-{n}": "v" * 100_000 for n in range(500)}
    packed = pack_answer(Response("http://h.example/", 200, b"", many), 10)
    headers = unpack_answer(packed).response.headers
    assert len(headers) == MOST_HEADERS
    assert max(map(len, headers.values())) == LONGEST_HEADER


def test_a_header_that_is_no_unicode_does_not_lose_the_body() -> None:
    odd = Response("http://h.example/", 500, b"body", {"x": "\ud800"})
    answer = unpack_answer(pack_answer(odd, 100))
    assert (answer.response.content, answer.response.status_code) == (b"body", 500)


@pytest.mark.parametrize(
    "packed",
    [b"", b"\x02abc", b"\x01not zstd", b"\x01" + zstd.compress(b"\x93\x01\x02"), b"\x01"],
    ids=["empty", "version", "garbage", "other content", "nothing"],
)
def test_what_is_no_answer_is_refused(packed: bytes) -> None:
    with pytest.raises(UnreadableAnswerError):
        unpack_answer(packed)
