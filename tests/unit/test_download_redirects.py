"""Where redirects lead, and what goes there."""

from __future__ import annotations

from typing import Any

import pytest

from orbweb.download.base import DownloadError
from orbweb.download.redirects import RedirectRules, Trail, redirect_target
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response

URL = "http://shop.example/a/b"


def moved(
    location: str, status: int = 302, url: str = URL, cookies: dict[str, str] | None = None
) -> Response:
    return Response(url=url, status_code=status, headers={"location": location}, cookies=cookies)


def hop(location: str, status: int = 302, **kwargs: Any) -> Request:
    request = Request(URL, **kwargs)
    return Trail(request, 10).next_hop(request, moved(location, status))


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/c", "http://shop.example/c"),
        ("c", "http://shop.example/a/c"),
        ("?p=2", "http://shop.example/a/b?p=2"),
        ("//other.example/x", "http://other.example/x"),
        ("https://other.example/x#part", "https://other.example/x"),
        (" /sp ace ", "http://shop.example/sp%20ace"),
        ("/caf\u00e9", "http://shop.example/caf%C3%A9"),
        ("/caf\udce9", "http://shop.example/caf%E9"),
        ("http://\u6f22.example:81/\u6f22", "http://\u6f22.example:81/%E6%BC%A2"),
        ("http://a%2F\u6f22.example/", "http://a%2F%E6%BC%A2.example/"),
        ("http://u%40:p@%E6%BC%A2.example/", "http://u%40:p@\u6f22.example/"),
        ("/done%20?q=%C3%A9&r=a/b", "http://shop.example/done%20?q=%C3%A9&r=a/b"),
    ],
)
def test_location_is_joined(location: str, expected: str) -> None:
    assert redirect_target(moved(location)) == expected


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("mailto:a@b.example", Reason.SCHEME),
        ("javascript:void(0)", Reason.SCHEME),
        ("ftp://f.example/", Reason.SCHEME),
        ("http://:80/x", Reason.BAD_URL),
        ("http://[bad/", Reason.BAD_URL),
        ("http://shop.example:99999/", Reason.BAD_URL),
        ("http://shop.example:0/", Reason.BAD_URL),
        ("http://shop.example:port/", Reason.BAD_URL),
    ],
)
def test_a_target_that_cannot_be_fetched(location: str, reason: Reason) -> None:
    with pytest.raises(DownloadError, match="redirects to") as caught:
        redirect_target(moved(location))
    assert (caught.value.reason, caught.value.retry) == (reason, False)


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (301, "PUT", "PUT"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
    ],
)
def test_the_method_after_a_redirect(status: int, method: str, expected: str) -> None:
    body: dict[str, Any] = {} if method == "HEAD" else {"json": {"a": 1}}
    result = hop("/c", status, method=method, **body)
    assert result.method == expected
    assert ("json" in result.requests_kwargs) == ("json" in body and expected == method)


def test_headers_of_the_body_go_with_the_body() -> None:
    headers = {"Content-Type": "text/x", "X-Keep": "1"}
    assert hop("/c", 303, method="POST", content=b"x", headers=headers).headers == {"X-Keep": "1"}
    assert hop("/c", 307, method="POST", content=b"x", headers=headers).headers == headers


SECRETS = {"Authorization": "Bearer t", "COOKIE": "a=1", "Host": "shop.example", "X-Keep": "1"}


@pytest.mark.parametrize(
    "target",
    ["http://other.example/", "http://shop.example:8080/", "http://sub.shop.example/"],
)
def test_another_origin_gets_no_secrets(target: str) -> None:
    result = hop(target, headers=SECRETS, auth=("u", "p"), cookies={"c": "1"})
    assert result.requests_kwargs == {"headers": {"X-Keep": "1"}} or (
        # cookies belong to a host, whatever its port (RFC 6265, 8.5)
        ":8080" in target
        and result.requests_kwargs == {"headers": {"X-Keep": "1"}, "cookies": {"c": "1"}}
    )


@pytest.mark.parametrize("target", ["/c", "https://shop.example/a"])
def test_the_same_origin_and_its_move_to_https_keep_them(target: str) -> None:
    result = hop(target, headers=SECRETS, auth=("u", "p"), cookies={"c": "1"})
    assert result.requests_kwargs == {
        "headers": SECRETS,
        "auth": ("u", "p"),
        "cookies": {"c": "1"},
    }


def test_a_move_from_https_to_http_loses_them() -> None:
    request = Request("https://shop.example/a", auth=("u", "p"))
    answer = moved("http://shop.example/a", url="https://shop.example/a")
    assert "auth" not in Trail(request, 10).next_hop(request, answer).requests_kwargs


def test_params_belong_to_the_first_url_only() -> None:
    result = hop("/c", params={"q": 1})
    assert (result.url, result.requests_kwargs) == ("http://shop.example/c", {})


def test_the_request_that_was_redirected_is_not_changed() -> None:
    request = Request(URL, method="POST", json={"a": 1}, headers=dict(SECRETS))
    Trail(request, 10).next_hop(request, moved("http://other.example/", 303))
    assert (request.url, request.method) == (URL, "POST")
    assert request.requests_kwargs == {"json": {"a": 1}, "headers": SECRETS}


def test_a_loop_is_seen() -> None:
    request = Request("http://shop.example/1")
    trail = Trail(request, 10)
    second = trail.next_hop(request, moved("/2", url="http://shop.example/1"))
    with pytest.raises(DownloadError, match="redirects without end") as caught:
        trail.next_hop(second, moved("/1", url="http://shop.example/2"))
    assert (caught.value.reason, caught.value.retry) == (Reason.REDIRECT_LOOP, False)


def test_a_page_that_sets_a_cookie_and_asks_again_is_no_loop_and_gets_its_cookie() -> None:
    request = Request(URL)
    trail = Trail(request, 10)
    again = trail.next_hop(request, moved(URL, cookies={"seen": "1"}))
    assert again.requests_kwargs["cookies"] == {"seen": "1"}
    with pytest.raises(DownloadError, match="without end"):
        trail.next_hop(again, moved(URL, cookies={"seen": "1"}))


def test_cookies_of_the_way_return_to_their_host_only() -> None:
    request = Request(URL, cookies={"own": "1"})
    trail = Trail(request, 10)
    away = trail.next_hop(request, moved("http://login.example/", cookies={"set": "2"}))
    assert "cookies" not in away.requests_kwargs
    back = trail.next_hop(
        away, moved("http://shop.example/in", url=away.url, cookies={"session": "3"})
    )
    assert back.requests_kwargs["cookies"] == {"own": "1", "set": "2"}


def test_more_redirects_than_allowed() -> None:
    request = Request("http://shop.example/0")
    trail = Trail(request, 2)
    for number in (1, 2):
        request = trail.next_hop(request, moved(f"/{number}", url=request.url))
    with pytest.raises(DownloadError, match="MAX_REDIRECTS"):
        trail.next_hop(request, moved("/3", url=request.url))
    assert trail.history[:2] == ["http://shop.example/0", "http://shop.example/1"]


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, True),
        ({"follow_redirects": False}, False),
        ({"allow_redirects": False}, False),
        ({"follow_redirects": True, "allow_redirects": False}, True),
    ],
)
def test_both_names_of_the_switch(kwargs: dict[str, Any], expected: bool) -> None:
    assert RedirectRules().applies(Request(URL, **kwargs), moved("/c")) is expected


def test_what_is_no_redirect() -> None:
    rules = RedirectRules()
    assert not rules.applies(Request(URL), moved("/c", 304))
    assert not rules.applies(Request(URL), moved("", 302))
    assert not RedirectRules(most=0).applies(Request(URL), moved("/c"))
