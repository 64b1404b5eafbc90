"""Curl command lines become the requests that curl would send."""

from __future__ import annotations

from typing import Any

import pytest

from orbweb.errors import ConfigError
from orbweb.replay.curl import is_curl, request_from_curl

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json", "Accept": "application/json"}

FROM_A_BROWSER = """curl 'https://shop.example/api/items?page=2' \\
  -H 'accept: application/json, text/plain, */*' \\
  -H 'Accept-Language: de' \\
  -b 'session=abc; theme=dark' \\
  -H $'x-note: it\\'s \\u00fc' \\
  --data-raw $'------WebKitFormBoundary\\r\\nfield' \\
  --compressed --insecure"""


def test_a_line_that_a_browser_copied() -> None:
    request = request_from_curl(FROM_A_BROWSER)
    assert (request.method, request.url) == ("POST", "https://shop.example/api/items?page=2")
    assert request.requests_kwargs == {
        "headers": {
            "accept": "application/json, text/plain, */*",
            "Accept-Language": "de",
            "x-note": "it's ü",
            **FORM,
        },
        "cookies": {"session": "abc", "theme": "dark"},
        "content": "------WebKitFormBoundary\r\nfield",
        "verify": False,
    }


@pytest.mark.parametrize(
    ("line", "method", "url", "options"),
    [
        ("curl shop.example", "GET", "http://shop.example", {}),
        ("curl -I https://a.example/", "HEAD", "https://a.example/", {}),
        ("curl -XPUT -sSL https://a.example/", "PUT", "https://a.example/", {}),
        ("curl --url https://a.example/ -L", "GET", "https://a.example/", {}),
        (
            "curl https://a.example/ -d a=1 --data b=2",
            "POST",
            "https://a.example/",
            {"content": "a=1&b=2", "headers": FORM},
        ),
        ("curl 'https://a.example/?x=1' -G -d a=1", "GET", "https://a.example/?x=1&a=1", {}),
        (
            "curl https://a.example/ --data-urlencode 'q=a b&c'",
            "POST",
            "https://a.example/",
            {"content": "q=a+b%26c", "headers": FORM},
        ),
        (
            """curl https://a.example/ --json '{"a": 1}'""",
            "POST",
            "https://a.example/",
            {"content": '{"a": 1}', "headers": JSON},
        ),
        (
            "curl https://a.example/ -d x -H 'content-type: text/plain'",
            "POST",
            "https://a.example/",
            {"content": "x", "headers": {"content-type": "text/plain"}},
        ),
        (
            "curl https://a.example/ -u me:pa:ss -x proxy:3128 -m 5 -A bot -e https://r.example/",
            "GET",
            "https://a.example/",
            {
                "auth": ("me", "pa:ss"),
                "proxy": "http://proxy:3128",
                "timeout": 5.0,
                "headers": {"User-Agent": "bot", "Referer": "https://r.example/"},
            },
        ),
        (
            "curl https://a.example/ -H 'X: 1' -H 'x: 2' -H 'Empty:'",
            "GET",
            "https://a.example/",
            {"headers": {"X": "1, 2"}},
        ),
    ],
)
def test_what_an_option_means(line: str, method: str, url: str, options: dict[str, Any]) -> None:
    request = request_from_curl(line)
    assert (request.method, request.url) == (method, url)
    assert request.requests_kwargs == options


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("curl", "0 URLs"),
        ("curl https://a.example/ https://b.example/", "2 URLs"),
        ("curl --http3 https://a.example/", "--http3"),
        ("curl -F file=@x https://a.example/", "-F"),
        ("curl -d @body.json https://a.example/", "files are not read"),
        ("curl --json @body.json https://a.example/", "files are not read"),
        ("curl -b cookies.txt https://a.example/", "files are not read"),
        ("curl -H nothing https://a.example/", "NAME: VALUE"),
        ("curl -m soon https://a.example/", "seconds"),
        ("curl 'https://a.example/", "quotation"),
        ("curl https://a.example/ -d a --json {}", "exclude"),
        ("curl https://a.example/ -X", "-X"),
    ],
)
def test_what_is_not_understood_is_said(line: str, says: str) -> None:
    with pytest.raises(ConfigError, match="curl line") as refused:
        request_from_curl(line)
    assert says in str(refused.value)


def test_secrets_of_a_line_are_not_repeated_in_errors() -> None:
    with pytest.raises(ConfigError) as refused:
        request_from_curl("curl https://a.example/ -b s3cret")
    assert "s3cret" not in str(refused.value)


def test_an_address_is_no_curl_line() -> None:
    assert is_curl("curl https://a.example/")
    assert not is_curl("https://a.example/curl x")
    assert not is_curl("")
