"""URLs: what is fetchable, when two are one page, whose host it is, how links are joined."""

from __future__ import annotations

import pickle
import time
from urllib.parse import urljoin

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbweb.model.fingerprint import canonical_url, host_of
from orbweb.model.reasons import Reason
from orbweb.model.url import BadUrlError, UrlBase, _canonical_slow, add_params, beside, clean_url


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://ex.com", "http://ex.com/"),
        ("http://ex.com?b=1", "http://ex.com/?b=1"),
        ("HTTP://EX.com:80/a#top", "http://ex.com/a"),
        ("https://ex.com:443/a", "https://ex.com/a"),
        ("https://ex.com:80/a", "https://ex.com:80/a"),
        ("http://ex.com:8080/a", "http://ex.com:8080/a"),
        ("http://ex.com:08080/a", "http://ex.com:8080/a"),
        ("http://ex.com:/a", "http://ex.com/a"),
        ("http://ex.com./a", "http://ex.com/a"),
        ("http://ex.com/?b=2&a=1&b=1", "http://ex.com/?a=1&b=1&b=2"),
        ("http://ex.com/?a=&b", "http://ex.com/?a=&b="),
        ("http://ex.com/?", "http://ex.com/"),
        ("http://ex.com/?&&a=1&", "http://ex.com/?a=1"),
        ("http://ex.com/?q=a%20b", "http://ex.com/?q=a+b"),
        ("http://ex.com/?q=a+b", "http://ex.com/?q=a+b"),
        ("http://ex.com/?q=a%2Bb", "http://ex.com/?q=a%2Bb"),
        ("http://ex.com/?u=http%3A%2F%2Fb%2Fc", "http://ex.com/?u=http://b/c"),
        ("http://ex.com/?a=b%26c", "http://ex.com/?a=b%26c"),
        ("http://ex.com/?a=1%", "http://ex.com/?a=1%25"),
        ("http://ex.com/%7euser/%c3%a9", "http://ex.com/~user/%C3%A9"),
        ("http://ex.com/é", "http://ex.com/%C3%A9"),
        ("http://ex.com/a%2fb", "http://ex.com/a%2Fb"),
        ("http://ex.com/100%", "http://ex.com/100%25"),
        ("http://ex.com/a b", "http://ex.com/a%20b"),
        ("http://ex.com/a/./b/../c", "http://ex.com/a/c"),
        ("http://ex.com/a/%2e%2e/c", "http://ex.com/c"),
        ("http://ex.com/a/..", "http://ex.com/"),
        ("http://ex.com/../../a", "http://ex.com/a"),
        ("http://ex.com/a//b", "http://ex.com/a//b"),
        ("http://ex.com/.well-known/x", "http://ex.com/.well-known/x"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://例子.测试/", "http://xn--fsqu00a.xn--0zwm56d/"),
        ("http://☃.net/", "http://xn--n3h.net/"),
        ("http://u:p%40@Ex.com/", "http://u:p%40@ex.com/"),
        ("http://[2001:DB8:0::1]:80/", "http://[2001:db8::1]/"),
        ("  http://ex.com/a\n", "http://ex.com/a"),
        ("http://ex.com/a\tb", "http://ex.com/ab"),
        ("http://my_host.example/", "http://my_host.example/"),
    ],
)
def test_spellings_of_one_page_have_one_canonical_url(url: str, canonical: str) -> None:
    assert canonical_url(url) == canonical
    assert canonical_url(canonical) == canonical


_pieces = st.text("ab/.?&=#%+~é 2fF;:@", max_size=20)


@settings(deadline=None)
@given(_pieces, st.sampled_from(["", ":80", ":443", ":8080"]), st.sampled_from(["http", "https"]))
@example("?a=1&a-b=2", "", "http")
@example("/a?a=+", ":80", "https")
def test_the_fast_path_agrees_with_the_full_one_and_changes_nothing_twice(
    rest: str, port: str, scheme: str
) -> None:
    url = f"{scheme}://ex.com{port}/{rest}"
    canonical = canonical_url(url)
    assert canonical == _canonical_slow(url, frozenset())
    assert canonical_url(canonical) == canonical


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://ex.com/?utm_source=x&id=4&utm_medium=y", "http://ex.com/?id=4"),
        ("http://ex.com/?sid=1", "http://ex.com/"),
        ("http://ex.com/?sid2=1", "http://ex.com/?sid2=1"),
        ("http://ex.com/?utm%5Fsource=%20", "http://ex.com/"),
        ("http://ex.com/a", "http://ex.com/a"),
    ],
)
def test_named_and_starred_parameters_are_left_out(url: str, kept: str) -> None:
    assert canonical_url(url, frozenset({"utm_*", "sid"})) == kept


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://Ex.COM/a?b/c", "ex.com"),
        ("http://ex.com?u=http://b/", "ex.com"),
        ("http://ex.com", "ex.com"),
        ("http://ex.com#a/b", "ex.com"),
        ("http://ex.com:80/", "ex.com"),
        ("https://ex.com:80/", "ex.com:80"),
        ("http://user:pw@ex.com:81/", "ex.com:81"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
        ("http://[::1]:8000/", "[::1]:8000"),
    ],
)
def test_the_host_is_the_unit_of_politeness(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mailto:a@ex.com", Reason.SCHEME),
        ("javascript:void(0)", Reason.SCHEME),
        ("ftp://ex.com/", Reason.SCHEME),
        ("", Reason.BAD_URL),
        ("/relative", Reason.BAD_URL),
        ("//ex.com/", Reason.BAD_URL),
        ("http:ex.com", Reason.BAD_URL),
        ("http://", Reason.BAD_URL),
        ("http:///a", Reason.BAD_URL),
        ("http://[::bad/", Reason.BAD_URL),
        ("http://[::1", Reason.BAD_URL),
        ("http://a..b/", Reason.BAD_URL),
        ("http://a b/", Reason.BAD_URL),
        ("http://a:99999/", Reason.BAD_URL),
        ("http://a:x/", Reason.BAD_URL),
        ("http://a:٣/", Reason.BAD_URL),
        ("http://\ud800/", Reason.BAD_URL),
    ],
)
def test_a_url_that_cannot_be_fetched_is_refused_by_name_and_reason(
    url: str, reason: Reason
) -> None:
    for refuse in (clean_url, canonical_url, host_of):
        with pytest.raises(BadUrlError) as caught:
            refuse(url)
        assert caught.value.reason is reason
    with pytest.raises(BadUrlError) as caught:
        clean_url(url)
    assert repr(url) in str(caught.value)


def test_a_refusal_travels_between_processes() -> None:
    again = pickle.loads(pickle.dumps(BadUrlError("x:y", Reason.SCHEME, "no")))
    assert (again.url, again.reason, str(again)) == ("x:y", Reason.SCHEME, "cannot fetch 'x:y': no")


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_either_fetchable_or_refused(rest: str) -> None:
    for url in (rest, f"http://{rest}", f"http://ex.com/{rest}"):
        try:
            cleaned = clean_url(url)
        except BadUrlError:
            continue
        assert canonical_url(cleaned) == canonical_url(url)
        assert canonical_url(url).isascii()
        assert host_of(url)


_hrefs = st.text("ab/.?=#:", max_size=8).filter(lambda href: "//" not in href) | st.sampled_from(
    ["//other.com/x", "https://o.com/a/../b", "mailto:x@y", "?q=a:b", "#x", "", "..", "a/../b"]
)


@settings(deadline=None)
@given(
    st.sampled_from(
        [
            "http://ex.com",
            "http://ex.com/",
            "http://ex.com/a/b.html?x=/y/z#f/g",
            "https://ex.com:8443/a/b/",
            "http://ex.com?x/y",
            "http://ex.com/a/../b/c",
        ]
    ),
    _hrefs,
)
def test_links_are_joined_as_the_standard_library_does(base: str, href: str) -> None:
    assert _same_page(UrlBase(base).join(href)) == _same_page(urljoin(base, href))


def _same_page(url: str) -> str:
    try:
        return canonical_url(url)
    except BadUrlError:
        return url


@pytest.mark.parametrize(
    ("href", "joined"),
    [
        ("a;p=1", "http://ex.com/d/a;p=1"),
        (";", "http://ex.com/d/;"),
        ("a//b", "http://ex.com/d/a//b"),
        ("/a//b", "http://ex.com/a//b"),
        ("//o.com", "http://o.com"),
        (" \n/a\t", "http://ex.com/a"),
    ],
)
def test_where_the_standard_library_differs_from_browsers_the_browsers_are_followed(
    href: str, joined: str
) -> None:
    assert UrlBase("http://ex.com/d/e").join(href) == joined


@pytest.mark.parametrize(
    "url",
    [
        "http://ex.com/" + "a" * 200_000 + " ",
        "http://" + "a." * 100_000,
        "http://ex.com/?" + "a=&" * 100_000 + "#\n",
        "http://ex.com" + "/.." * 100_000,
    ],
    ids=["path", "host", "query", "dots"],
)
def test_a_hostile_url_costs_no_more_than_its_length(url: str) -> None:
    started = time.process_time()
    assert _same_page(url)
    assert time.process_time() - started < 2


def test_parameters_are_added_before_the_fragment() -> None:
    assert add_params("http://e/?a=1#f", "b=2") == "http://e/?a=1&b=2#f"
    assert add_params("http://e/#f", "b=2") == "http://e/?b=2#f"
    assert add_params("http://e/?", "b=2") == "http://e/?b=2"
    assert add_params("http://e/?a=1", "") == "http://e/?a=1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://e/a: 5000 bytes announced", "5000 bytes announced"),
        ("HTTP status 503 for http://e/a", "HTTP status 503"),
        ("http://e/a redirects to http://e/a/b: too deep", "redirects to http://e/a/b: too deep"),
        ("cannot fetch 'http://e/a': no host", "no host"),
        (
            "http://e/robots.txt disallows http://e/a for 'x'",
            "http://e/robots.txt disallows it for 'x'",
        ),
        ("http://e/ab: 5000 bytes announced", "http://e/ab: 5000 bytes announced"),
        ("ValueError: no price", "ValueError: no price"),
    ],
)
def test_beside_its_url_a_text_does_not_name_it_again(text: str, shown: str) -> None:
    assert beside("http://e/a", text) == shown
