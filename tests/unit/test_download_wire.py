"""What aiohttp is told for each way of asking."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from orbweb.download import wire
from orbweb.download.base import DownloadError
from orbweb.download.wire import own_proxy, wire_arguments
from orbweb.model.reasons import Reason
from orbweb.model.request import Request

URL = "http://shop.example/a"
DEFAULT = aiohttp.ClientTimeout(total=30, connect=10, sock_read=20)


def arguments(url: str = URL, **kwargs: Any) -> dict[str, Any]:
    return wire_arguments(Request(url, **kwargs), DEFAULT)


def test_a_form_is_urlencoded() -> None:
    sent = arguments(method="POST", data={"name": "Ann & Co", "tags": ["a", "b"]})
    assert sent["data"] == b"name=Ann+%26+Co&tags=a&tags=b"
    assert sent["headers"]["Content-Type"] == "application/x-www-form-urlencoded"


def test_json_is_compact_utf8_and_keeps_a_content_type_that_was_given() -> None:
    sent = arguments(method="POST", json={"k": ["é", 1]})
    assert sent["data"] == '{"k":["é",1]}'.encode()
    assert sent["headers"]["Content-Type"] == "application/json"
    own = arguments(method="POST", json={}, headers={"content-type": "application/vnd.api+json"})
    assert dict(own["headers"]) == {"content-type": "application/vnd.api+json"}


@pytest.mark.parametrize("kwargs", [{"content": "é"}, {"data": "é"}, {"content": b"\xc3\xa9"}])
def test_a_raw_body_gets_no_content_type(kwargs: dict[str, Any]) -> None:
    sent = arguments(method="PUT", **kwargs)
    assert sent["data"] == b"\xc3\xa9"
    assert "headers" not in sent
    assert sent["skip_auto_headers"] == ("Content-Type",)


def test_files_make_a_multipart_form() -> None:
    sent = arguments(method="POST", data={"a": 1}, files={"f": ("x.txt", b"body", "text/plain")})
    assert isinstance(sent["data"], aiohttp.FormData)
    assert sent["data"].is_multipart


def test_two_bodies_are_refused() -> None:
    with pytest.raises(DownloadError, match="json and data") as caught:
        arguments(method="POST", json={}, data={"a": 1})
    assert not caught.value.retry


def test_auth_and_cookies_become_headers() -> None:
    headers = arguments(auth=("user", "pass"), cookies={"a": "1", "b": "2"})["headers"]
    assert headers["Authorization"] == "Basic dXNlcjpwYXNz"
    assert headers["Cookie"] == "a=1; b=2"


def test_cookies_join_a_cookie_header_and_a_given_authorization_stays() -> None:
    given = {"cookie": "z=9", "authorization": "Bearer t"}
    headers = arguments(headers=given, cookies={"a": "1"}, auth=("u", "p"))["headers"]
    assert headers["cookie"] == "z=9; a=1"
    assert headers["authorization"] == "Bearer t"
    assert len(headers) == 2


def test_a_header_of_none_is_left_out() -> None:
    assert dict(arguments(headers={"X-A": None, "X-B": 3})["headers"]) == {"X-B": "3"}


def test_one_number_bounds_the_whole_exchange() -> None:
    timeout = arguments(timeout=45)["timeout"]
    assert (timeout.total, timeout.connect, timeout.sock_read) == (45, 45, 45)
    assert arguments(timeout=45)["timeout"] is timeout


def test_a_pair_is_connect_and_read() -> None:
    timeout = arguments(timeout=(5, 120))["timeout"]
    assert (timeout.total, timeout.connect, timeout.sock_read) == (125, 5, 120)


@pytest.mark.parametrize("value", [0, -1, "5", (1, 2, 3), (1, 0)])
def test_a_timeout_that_means_nothing_is_refused(value: Any) -> None:
    with pytest.raises(DownloadError, match="timeout must be"):
        arguments(timeout=value)


def test_verify_false_turns_verification_off_and_true_is_the_default() -> None:
    assert arguments(verify=False)["ssl"] is False
    assert "ssl" not in arguments(verify=True)


def test_a_ca_file_that_is_not_there_is_named() -> None:
    with pytest.raises(DownloadError, match=r"/no/such/ca\.pem") as caught:
        arguments(verify="/no/such/ca.pem")
    assert (caught.value.reason, caught.value.retry) == (Reason.TLS, False)


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"proxy": "http://p:1"}, "http://p:1"),
        ({"proxies": {"http": "http://p:2", "https": "http://q:2"}}, "http://p:2"),
        ({"proxies": {"all://": "http://p:3"}}, "http://p:3"),
        ({"proxies": {"https": "http://q:2"}}, None),
        ({"proxy": "http://p:1", "proxies": {"http": "http://p:2"}}, "http://p:1"),
        ({"meta": {"proxy": "p:4"}}, "http://p:4"),
        ({"proxy": "http://p:1", "meta": {"proxy": "p:4"}}, "http://p:1"),
    ],
)
def test_the_proxy_of_a_request(kwargs: dict[str, Any], expected: str | None) -> None:
    proxy = own_proxy(Request(URL, **kwargs))
    assert (proxy and proxy.address) == expected


def test_a_socks_proxy_without_the_extra_is_refused_and_not_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "has_socks", lambda: False)
    with pytest.raises(DownloadError, match=r"pip install 'orbweb\[socks\]'") as caught:
        own_proxy(Request(URL, proxy="socks5://p:1"))
    assert (caught.value.reason, caught.value.retry) == (Reason.PROXY, False)
