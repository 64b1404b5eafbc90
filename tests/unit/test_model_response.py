"""A response reads in the encoding that browsers would use, and its links are cheap to follow."""

from __future__ import annotations

from typing import Any

import pytest

from orbweb.errors import ResponseError
from orbweb.model.fingerprint import fingerprint, host_of
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import BadUrlError

URL = "http://ex.com/list/page.html?p=1"
HANZI = "中文网页，用来测试编码的一段文字。人民网新闻频道今天报道了最新消息。" * 8


def page(body: str | bytes = "", *, url: str = URL, **arguments: Any) -> Response:
    content = body.encode() if isinstance(body, str) else body
    return Response(url, content=content, **arguments)


def html(content_type: str) -> dict[str, str]:
    return {"Content-Type": content_type}


@pytest.mark.parametrize(
    ("content", "content_type", "text"),
    [
        (b"\xef\xbb\xbf" + "é".encode(), "text/html; charset=gbk", "é"),
        ("é".encode("utf-16"), "text/html; charset=gbk", "é"),
        (b"\xe9", "text/html; charset=iso-8859-1", "é"),
        (b"\x80", "text/html; charset=iso-8859-1", "€"),
        ("é".encode(), "text/html; charset=hex", "é"),
        ("é".encode(), "text/html; charset=idna", "é"),
        (b"<meta charset=rot13>" + "é".encode(), "text/html", "<meta charset=rot13>é"),
        (HANZI.encode("gb18030"), "text/html; charset=gb2312", HANZI),
        (
            b"<meta charset=utf-8>" + HANZI.encode("gbk"),
            "text/html; charset=gbk",
            "<meta charset=utf-8>" + HANZI,
        ),
        (
            b'<meta charset="gb2312">' + HANZI.encode("gbk"),
            "text/html",
            '<meta charset="gb2312">' + HANZI,
        ),
        (
            b'<meta charset="gb2312">' + HANZI.encode("gbk"),
            "text/html; charset=nonsense",
            '<meta charset="gb2312">' + HANZI,
        ),
        (HANZI.encode(), "text/html", HANZI),
        (HANZI.encode("gb18030"), "", HANZI),
        (b"a\xffb", "text/html; charset=utf-8", "a\ufffdb"),
        (b"", "", ""),
    ],
)
def test_the_charset_comes_from_mark_header_meta_and_guess_in_this_order(
    content: bytes, content_type: str, text: str
) -> None:
    response = page(content, headers=html(content_type))
    assert response.text == text
    assert text.rpartition(">")[2] in response.xpath("string(/)").get("")


def test_an_encoding_can_be_given_and_changed() -> None:
    response = page("<p>é".encode("cp1252"), headers=html("text/html; charset=utf-8"))
    assert response.css("p::text").get() == "\ufffd"
    response.encoding = "latin-1"
    assert response.encoding == "cp1252"
    assert (response.text, response.css("p::text").get()) == ("<p>é", "é")
    assert page("é".encode("gbk"), encoding="gbk").text == "é"
    with pytest.raises(ResponseError, match="nonsense"):
        response.encoding = "nonsense"


def test_headers_are_lower_case_and_asked_for_in_any_case() -> None:
    response = page(headers={"Content-Type": "text/x", "X-A": "1"})
    assert list(response.headers) == ["content-type", "x-a"]
    assert response.headers["X-A"] == response.headers.get("x-a") == "1"
    assert "CONTENT-TYPE" in response.headers
    assert response.headers.get("Absent", "d") == "d"


def test_json_is_read_and_refused_clearly() -> None:
    assert page('{"a": "é"}').json() == {"a": "é"}
    assert page('{"a": 1}'.encode("utf-16")).json() == {"a": 1}
    gbk = html("application/json; charset=gbk")
    assert page('"中"'.encode("gbk"), headers=gbk).json() == "中"
    assert page("1.5").json(parse_float=str) == "1.5"
    with pytest.raises(ResponseError, match=r"page.html.*is not JSON.*<html>"):
        page("<html>").json()


def test_selecting_works_as_in_parsel() -> None:
    response = page("<p class=a>one 1</p><p>two 2</p>")
    assert response.css("p.a::text").get() == "one 1"
    assert response.xpath("//p[.=$t]/text()", t="two 2").getall() == ["two 2"]
    assert response.re(r"\d") == ["1", "2"]
    assert response.re_first(r"\d\d", "none") == "none"
    assert response.bs4.find_all("p")[0]["class"] == ["a"]
    assert page("").css("p").getall() == []


def test_xml_is_parsed_as_xml() -> None:
    body = "<rss><item><link>http://x/</link></item></rss>"
    for kind in ("application/rss+xml; charset=utf-8", "text/xml"):
        assert page(body, headers=html(kind)).css("link::text").get() == "http://x/"
    assert page(body, headers=html("text/html")).css("link::text").get() is None


def test_meta_and_cb_kwargs_are_those_of_the_request() -> None:
    request = Request(URL, meta={"a": 1}, cb_kwargs={"b": 2})
    response = page(request=request)
    assert response.meta is request.meta
    assert response.cb_kwargs is request.cb_kwargs
    with pytest.raises(ResponseError, match="does not belong"):
        _ = page().meta


@pytest.mark.parametrize(("status", "ok"), [(199, False), (200, True), (299, True), (300, False)])
def test_ok_means_2xx(status: int, ok: bool) -> None:
    assert Response(URL, status).ok is ok


@pytest.mark.parametrize(
    ("body", "joined"),
    [
        ("", "http://ex.com/list/x"),
        ('<base href="/b/">', "http://ex.com/b/x"),
        ("<base target=_top href=http://o.com/b>", "http://o.com/x"),
        ("<BASE HREF='//o.com/c/d'>", "http://o.com/c/x"),
        ('<!-- <base href="/b/"> -->', "http://ex.com/list/x"),
        ('<base target="_top">', "http://ex.com/list/x"),
        ('<base data-href="/b/">', "http://ex.com/list/x"),
        ("<basefont href='/b/'>", "http://ex.com/list/x"),
        ('<base href="/b/?a=1&amp;b=/">', "http://ex.com/b/x"),
        ("<base " * 2700, "http://ex.com/list/x"),
    ],
)
def test_links_are_joined_to_the_base_of_the_page(body: str, joined: str) -> None:
    assert page(body).urljoin("x") == joined
    assert page(body.encode("utf-16")).urljoin("x") == joined


def test_following_takes_urls_elements_and_selectors() -> None:
    response = page('<a id=x href=" ../a?b=1 ">A</a><p>p</p><a name=n>')
    anchor = response.css("#x")
    for link in ("../a?b=1", anchor, anchor[0], anchor[0].root, response.css("a::attr(href)")[0]):
        request = response.follow(link, "parse_a", meta={"m": 1}, priority=5)
        assert request.url == "http://ex.com/a?b=1"
        assert (request.callback, request.meta, request.priority) == ("parse_a", {"m": 1}, 5)
    assert response.follow(response.bs4.a).url == "http://ex.com/a?b=1"


@pytest.mark.parametrize("query", ["p", "a[name]", "b"])
def test_following_what_has_no_link_is_an_error(query: str) -> None:
    response = page("<p>p</p><a name=n>")
    with pytest.raises(ResponseError):
        response.follow(response.css(query))
    with pytest.raises(ResponseError):
        response.follow(None)


@pytest.mark.parametrize(
    ("href", "reason"),
    [
        ("mailto:a@b", Reason.SCHEME),
        ("javascript:void(0)", Reason.SCHEME),
        ("http://[bad", Reason.BAD_URL),
        ("//[bad/x", Reason.BAD_URL),
        ("http://a:99999/", Reason.BAD_URL),
    ],
)
def test_a_link_that_cannot_be_fetched_does_not_break_the_page(href: str, reason: Reason) -> None:
    request = page().follow(href, "parse")
    assert request.problem is reason
    for enter in (fingerprint, lambda one: host_of(one.url)):
        with pytest.raises(BadUrlError) as caught:
            enter(request)
        assert caught.value.reason is reason


def test_following_all_takes_one_source_and_passes_over_anchors_without_link() -> None:
    response = page('<a href=1>1</a><a name=x><a href=mailto:a@b>m</a><a href="/2">2</a>')
    urls = ["http://ex.com/list/1", "mailto:a@b", "http://ex.com/2"]
    for found in (
        response.follow_all(css="a"),
        response.follow_all(css="a::attr(href)"),
        response.follow_all(xpath="//a/@href"),
        response.follow_all(response.css("a")),
        response.follow_all(["1", "mailto:a@b", "/2"]),
    ):
        assert [request.url for request in found] == urls
    made = list(response.follow_all(css="a", callback="parse_x", dont_filter=True))
    assert {request.callback for request in made} == {"parse_x"}
    assert {request.filter_repeat for request in made} == {False}
    for wrong in ({}, {"urls": [], "css": "a"}, {"css": "a", "xpath": "//a"}):
        with pytest.raises(TypeError, match="exactly one"):
            response.follow_all(**wrong)


def test_the_query_of_a_link_is_escaped_in_the_encoding_of_the_page() -> None:
    gbk = page("<a href='/搜?q=中&n=1'>".encode("gbk"), headers=html("text/html; charset=gbk"))
    assert gbk.follow(gbk.css("a")).url == "http://ex.com/搜?q=%D6%D0&n=1"
    utf8 = page("<a href='/搜?q=中'>")
    assert utf8.follow(utf8.css("a")).fingerprint == Request("http://ex.com/搜?q=中").fingerprint


def test_a_dict_and_back() -> None:
    response = page("é", headers={"A": "b"}, cookies={"c": "d"}, elapsed=0.5, history=["http://x/"])
    request = Request(URL)
    again = Response.from_dict(response.to_dict(), request)
    assert again.to_dict() == response.to_dict()
    assert again.request is request
    assert (again.text, again.elapsed, again.history) == ("é", 0.5, ["http://x/"])
