"""Recorded pages: what stands in the file, what is left out of it, and what counts as different."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orbweb import Request, Response
from orbweb.cli.record import without_secrets
from orbweb.errors import ConfigError
from orbweb.replay.recorded import (
    RecordedPage,
    Yielded,
    differences,
    file_name,
    read_page,
    record_page,
    write_page,
)
from orbweb.testing.recorded import check_page, recorded

URL = "http://shop.test/p/42?color=red"
SPIDER = """
import orbweb

class Shop(orbweb.Spider):
    factor = "1"

    def start_callback(self):
        self.ready = True

    def parse(self, request, response):
        assert self.ready
        yield {
            "name": response.css("h1::text").get(),
            "twice": int(self.factor) * 2,
            "seen": request.meta.get("seen"),
        }
        yield from response.follow_all(css="a", callback=self.parse_more)

    def parse_more(self, response):
        raise RuntimeError("no more")
"""
BODY = b"<h1>tea</h1><a href=/next>next</a>"


def page(content: bytes = BODY, **more: Any) -> RecordedPage:
    request = Request(URL, callback=more.pop("callback", "parse"), meta=more.pop("meta", None))
    response = Response(URL, 200, content, {"Content-Type": "text/html"}, request=request)
    return record_page("shop_spider.py:Shop", request, response, **{"arguments": {}, **more})


def expecting(
    made: RecordedPage, *items: dict[str, Any], urls: tuple[str, ...] = ()
) -> RecordedPage:
    requests = tuple({"url": url, "method": "GET", "callback": "parse_more"} for url in urls)
    return made.with_expected(Yielded(items, requests))


TEA = {"name": "tea", "twice": 2, "seen": None}
NEXT = ("http://shop.test/next",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop_spider.py").write_text(SPIDER)
    (tmp_path / "tests/pages").mkdir(parents=True)
    return tmp_path / "tests/pages"


def kept(folder: Path, made: RecordedPage, name: str = "one") -> RecordedPage:
    write_page(RecordedPage(**{**fields(made), "file": folder / f"{name}.json"}))
    return read_page(folder / f"{name}.json")


def fields(made: RecordedPage) -> dict[str, Any]:
    return {name: getattr(made, name) for name in RecordedPage.__dataclass_fields__}


@pytest.mark.parametrize("content", [BODY, "Käse 日本".encode(), b"\xff\xfe\x00binary", b""])
def test_a_page_comes_back_from_its_file_as_it_was(folder: Path, content: bytes) -> None:
    made = page(content, meta={"seen": [1, "two"]}, ignore=("at",))
    again = kept(folder, made)
    request, response = again.page()
    assert (request.url, request.callback, request.meta) == (URL, "parse", {"seen": [1, "two"]})
    assert (response.content, response.encoding) == (content, made.response["encoding"])
    assert response.meta is request.meta
    assert fields(again) == {**fields(made), "file": folder / "one.json"}


def test_secrets_are_left_out_and_the_body_stays() -> None:
    request = Request(
        "http://user:hush@shop.test/p?token=hush",
        headers={"Authorization": "Bearer hush"},
        cookies={"session": "hush"},
        cb_kwargs={"password": "hush"},
        meta={"login": {"api_key": "hush"}, "page": 2},
    )
    headers = {"Set-Cookie": "sid=hush", "X-Auth-Token": "hush", "Content-Type": "text/html"}
    response = Response(request.url, 200, BODY, headers, request=request)
    made = record_page("s.py:S", request, response, arguments={"token": "hush", "tag": "love"})
    clean = without_secrets(made)
    assert "hush" not in json.dumps(fields(clean), default=str)
    assert clean.response["headers"] == {"content-type": "text/html"}
    assert clean.request["meta"]["page"] == 2
    assert clean.arguments["tag"] == "love"
    assert clean.response["text"] == BODY.decode()


def test_what_the_spider_makes_of_a_page_is_compared(folder: Path) -> None:
    assert check_page(kept(folder, expecting(page(), TEA, urls=NEXT))) == []
    other = {**TEA, "name": "coffee"}
    assert check_page(kept(folder, expecting(page(), other, urls=NEXT))) == [
        'item 1: name: "coffee" → "tea"'
    ]
    assert check_page(kept(folder, expecting(page(), TEA))) == [
        "0 requests were expected, 1 came",
        'request new: {"url": "http://shop.test/next", "method": "GET", "callback": "parse_more"}',
    ]


def test_fields_that_differ_each_time_are_ignored(folder: Path) -> None:
    other = {**TEA, "seen": "yesterday"}
    assert check_page(kept(folder, expecting(page(ignore=("seen",)), other, urls=NEXT))) == []


def test_the_arguments_of_the_spider_are_those_of_the_record(folder: Path) -> None:
    made = expecting(page(arguments={"factor": "5"}), {**TEA, "twice": 10}, urls=NEXT)
    assert check_page(kept(folder, made)) == []


def test_an_exception_is_a_difference(folder: Path) -> None:
    (said,) = check_page(kept(folder, expecting(page(callback="parse_more"))))
    assert said.startswith("callback_error: RuntimeError: no more")
    (unknown,) = check_page(kept(folder, expecting(page(callback="parse_gone"))))
    assert "parse_gone" in unknown


def test_a_page_of_which_nothing_is_known_yet_differs() -> None:
    assert differences(page(), Yielded()) == [
        "nothing is expected of it yet: orbweb check --update"
    ]


def test_items_that_are_fewer_are_named() -> None:
    made = expecting(page(), {"n": 1}, {"n": 2})
    assert differences(made, Yielded(({"n": 2},), ())) == [
        "2 items were expected, 1 came",
        'item gone: {"n": 1}',
    ]


def test_names_of_files_tell_pages_apart() -> None:
    names = {
        file_name(
            record_page("s.py:S", request, Response(request.url, request=request), arguments={})
        )
        for request in (Request("http://a.test/"), Request("http://a.test/p?x=1"), Request(URL))
    }
    assert len(names) == 3
    assert any(name.startswith("S-parse-home-") for name in names)


def test_values_that_json_cannot_hold_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be recorded"):
        page(meta={"what": object()})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}'])
def test_a_file_that_is_no_page_is_named(folder: Path, text: str) -> None:
    (folder / "odd.json").write_text(text)
    with pytest.raises(ConfigError, match=r"odd\.json"):
        recorded(folder)


def test_a_spider_that_is_gone_is_named(folder: Path) -> None:
    made = kept(folder, expecting(page()))
    (folder.parent.parent / "shop_spider.py").unlink()
    with pytest.raises(ConfigError, match=r"there is no spider shop_spider\.py"):
        check_page(made)
