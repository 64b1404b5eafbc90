"""What a support archive must not hold, however it is written."""

from __future__ import annotations

import json

import pytest

from orbweb.cli.scrub import Scrubber, secrets_of, secrets_of_environment, secrets_of_request
from orbweb.model.request import Request

HUSH = "hu5h-HU5H"


@pytest.mark.parametrize(
    "text",
    [
        f"http://user:{HUSH}@shop.example/p?id=1",
        f"https://{HUSH}@shop.example/p",
        f"http://shop.example/p?id=1&access_token={HUSH}&page=2",
        f"http://shop.example/p?api-key={HUSH}#top",
        f"http://shop.example/p?key={HUSH}",
        f"http://shop.example/p?X-Amz-Signature={HUSH}",
        f"redis://:{HUSH}@h:6379/0",
        f"Authorization: Bearer {HUSH}",
        f"authorization=Basic {HUSH}==",
        f"Cookie: a=1; session={HUSH}; b=2",
        f"Set-Cookie: sid={HUSH}; Path=/",
        json.dumps({"X-Api-Key": HUSH, "cookie": f"a=1; b={HUSH}"}),
        json.dumps(json.dumps({"password": HUSH})),
        f"sasl.password={HUSH},sasl.username=u",
        f"login with password '{HUSH}' failed: password={HUSH}",
        f"sent header bearer {HUSH}abc",
        f"secret_key: {HUSH}",
    ],
)
def test_what_is_named_like_a_secret_or_looks_like_one_is_taken_out(text: str) -> None:
    assert HUSH not in Scrubber()(text).replace(f"'{HUSH}' failed", "")


def test_a_known_value_is_taken_out_wherever_it_stands() -> None:
    scrubbed = Scrubber([HUSH, "abc"])(f"nobody knows that {HUSH} is one; abc is too short")
    assert scrubbed == "nobody knows that *** is one; abc is too short"


def test_a_token_of_the_usual_form_is_taken_out() -> None:
    assert "eyJ" not in Scrubber()("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl back")


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:7273/product?category=tea&id=42",
        "2026-12-01 11:39:39 [orbweb.engine] INFO: the run is done: 200 pages, 180 items",
        '{"kind":"done","reason":"done","id":"92244cfed8a1194a","ms":2}',
        "user@shop.example wrote",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Scrubber()(text) == text


def test_secrets_of_settings_are_their_passwords_and_what_is_named_like_one() -> None:
    values = {
        "REDIS_URL": ["redis://:one-%31@h/0", ""],
        "X_API_TOKEN": ["two-2"],
        "X_LOGIN": [{"password": "no name of its own here"}],
        "KAFKA_OPTIONS": ["sasl.username=u,sasl.password=three-3"],
        "SQL_URL": ["mysql://u:f/o?u#r@h/x"],
        "DOWNLOAD_DELAY": [1.0],
    }
    found = set(secrets_of(values, ["REDIS_URL", "KAFKA_OPTIONS", "SQL_URL"]))
    assert {"one-%31", "one-1", "two-2", "three-3", "f/o?u#r"} <= found
    assert "u" not in found


def test_secrets_of_the_environment_are_found_by_their_names() -> None:
    environ = {"AWS_SECRET_ACCESS_KEY": "one", "HTTP_PROXY": "http://u:two@p", "HOME": "/home/me"}
    assert {"one", "two"} <= set(secrets_of_environment(environ))
    assert "/home/me" not in set(secrets_of_environment(environ))


def test_secrets_of_a_request_are_its_headers_cookies_and_named_values() -> None:
    request = Request(
        "http://shop.example/",
        headers={"X-Api-Key": "k-1234", "Authorization": "Bearer b-1234", "Accept": "text/html"},
        cookies={"session": "c-1234"},
        meta={"login_token": "m-1234", "page": "seven"},
    )
    scrub = Scrubber()
    scrub.learn(secrets_of_request(request))
    assert scrub("k-1234 b-1234 c-1234 m-1234 text/html seven") == "*** *** *** *** text/html seven"
