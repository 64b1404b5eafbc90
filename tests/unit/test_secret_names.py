"""What a secret's name is: one list, by which all places mask that mask by names."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from orbweb.cli.record import without_secrets
from orbweb.cli.scrub import (
    Scrubber,
    secrets_of,
    secrets_of_environment,
    secrets_of_request,
)
from orbweb.log import is_secret_name, mask_secrets
from orbweb.log import masked as masked_in_log
from orbweb.model.request import Request
from orbweb.replay.recorded import RecordedPage
from orbweb.settings.load import masked as masked_setting

HUSH = "hu5h-HU5H"

NAMES = [
    *("password", "PASSWD", "passwrd", "db_pwd", "db_pass", "pass", "client_secret", "secret_key"),
    *("token", "access_token", "auth-token", "csrf_token", "token_id", "api_key", "apikey"),
    *("X-Api-Key", "accessKey", "private_key", "Authorization", "Proxy-Authorization", "auth"),
    *("x-auth", "oauth_id", "session", "session_id", "sessid", "PHPSESSID", "sid", "signature"),
    *("X-Amz-Signature", "sig", "X-Amz-Credential", "credentials", "cookie", "Set-Cookie"),
    *("cookies", "jwt", "sasl.jaas.config", "ssl.key.pem"),
]

PLACES: dict[str, Callable[[str], str]] = {
    "a field of a log line": lambda name: json.dumps(masked_in_log({name: HUSH})),
    "a parameter of a URL": lambda name: mask_secrets(f"http://shop.example/?a=b&{name}={HUSH}#x"),
    "an option in a text": lambda name: mask_secrets(f'refused: {name}="{HUSH}" or {name}={HUSH}'),
    "a setting": lambda name: str(masked_setting(f"X_{name}", HUSH)),
    "a value in a setting": lambda name: json.dumps(masked_setting("X_LOGIN", {name: HUSH})),
    "an option in a setting": lambda name: masked_setting("KAFKA_OPTIONS", f"a=b,{name}={HUSH}"),
    "a text in an archive": lambda name: Scrubber()(f"{name}: {HUSH}, {name}={HUSH}"),
    "a value in an archive": lambda name: json.dumps(Scrubber().value({name: HUSH})),
    "a recorded header": lambda name: json.dumps(recorded(name)),
}
LEARNT: dict[str, Callable[[str], set[str]]] = {
    "settings": lambda name: set(secrets_of({f"X_{name}": HUSH}, ())),
    "options": lambda name: set(secrets_of({"KAFKA_OPTIONS": f"{name}={HUSH}"}, ["KAFKA_OPTIONS"])),
    "variables": lambda name: set(secrets_of_environment({name: HUSH})),
    "headers": lambda name: set(secrets_of_request(Request("http://a/", headers={name: HUSH}))),
}


def recorded(name: str) -> dict[str, object]:
    answer = {"url": "http://a/", "history": [], "headers": {name: HUSH, "Accept": "*/*"}}
    page = RecordedPage("", {}, answer)
    return without_secrets(page).response


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", NAMES)
def test_every_place_masks_every_secret_name(place: str, name: str) -> None:
    assert HUSH not in PLACES[place](name)


@pytest.mark.parametrize("place", LEARNT)
@pytest.mark.parametrize("name", NAMES)
def test_archives_learn_the_value_of_every_secret_name(place: str, name: str) -> None:
    assert HUSH in LEARNT[place](name)


@pytest.mark.parametrize(
    "name",
    [
        "author",
        "authors",
        "authority",
        "WWW-Authenticate",
        "compass",
        "passed",
        "sigma",
        "key",
        "side",
    ],
)
def test_names_that_are_only_like_one_are_shown(name: str) -> None:
    assert not is_secret_name(name)
    assert HUSH in mask_secrets(f"http://shop.example/?{name}={HUSH}")
    assert masked_in_log({name: HUSH}) == {name: HUSH}


def test_flags_and_what_is_empty_are_no_secrets() -> None:
    fields = {"use_session": True, "token": "", "password": None, "session": "s"}
    assert masked_in_log(fields) == {**fields, "session": "***"}
    assert mask_secrets("-s USE_SESSION=true -s X=1") == "-s USE_SESSION=true -s X=1"
