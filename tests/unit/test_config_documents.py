"""How documents of live values are written, and what addresses of sources look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbweb.config.address import Address
from orbweb.config.documents import BadDocument, read_document
from orbweb.config.place import Place
from orbweb.config.sources import open_source
from orbweb.errors import ConfigError

TOML = """
DOWNLOAD_DELAY = 0.5
"node:w3/CONCURRENT_REQUESTS" = 4

[PARSE]
price = true

[job.books]
DEPTH_LIMIT = 3
PARSE.price = false

[run."books:2026-12"]
PROXY_LIST = ["http://p.test:80"]

[host."shop.example"]
DOWNLOAD_DELAY = 2
"""
VALUES = {
    "DOWNLOAD_DELAY": 0.5,
    "node:w3/CONCURRENT_REQUESTS": 4,
    "PARSE.price": True,
    "job:books/DEPTH_LIMIT": 3,
    "job:books/PARSE.price": False,
    "run:books:2026-12/PROXY_LIST": ["http://p.test:80"],
    "host:shop.example/DOWNLOAD_DELAY": 2,
}


def test_tables_say_for_whom_values_hold() -> None:
    values = read_document(TOML, "toml")
    assert values == VALUES
    assert [str(Place.read(key)) for key in values] == list(values)


def test_json_is_the_same() -> None:
    text = '{"DOWNLOAD_DELAY": 0.5, "job": {"books": {"DEPTH_LIMIT": 3}}, "PARSE": {"price": true}}'
    assert read_document(text, "json") == {
        "DOWNLOAD_DELAY": 0.5,
        "job:books/DEPTH_LIMIT": 3,
        "PARSE.price": True,
    }


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("A = \nB = 1", "toml", "no TOML: .*line 1"),
        ("{", "json", "no JSON: .*line 1"),
        ("[1]", "json", "an object of values, not list"),
        ("job = 1", "toml", r"\[job.books\]"),
        ("[host]\nDOWNLOAD_DELAY = 1", "toml", "host must be a table of tables"),
        ('"job:b/X" = 1\n[job.b]\nX = 2', "toml", "job:b/X is there twice"),
        ('{"a":' * 100_000, "json", "no JSON"),
    ],
)
def test_what_is_no_document(text: str, kind: str, why: str) -> None:
    with pytest.raises(BadDocument, match=why):
        read_document(text, kind)


@pytest.mark.parametrize(
    ("text", "base", "place", "user", "password"),
    [
        ("etcd://h/a/b/", "http://h:2379", "h:2379/a/b/", "", ""),
        ("etcd+https://u:p%2Fw@h:1/a", "https://h:1", "h:1/a", "u", "p/w"),
        ("consul://:token@h/a", "http://h:8500", "h:8500/a", "", "token"),
        ("nacos://u:p@[::1]/x.toml", "http://[::1]:8848", "[::1]:8848/x.toml", "u", "p"),
    ],
)
def test_addresses(text: str, base: str, place: str, user: str, password: str) -> None:
    address = Address.read(text)
    assert (address.base, address.place) == (base, place)
    assert (address.user, address.password) == (user, password)
    assert "password" not in repr(address)


@pytest.mark.parametrize(
    "text",
    [
        "zookeeper://:hunter2@h/x",
        "etcd://:hunter2@h",
        "etcd:///x",
        "etcd+ssh://u:hunter2@h/x",
        "consul://u:hunter2@h:port/x",
        "orbweb.live.toml",
        "nacos://u:hunter2@h/orbweb.yaml",
        "file:orbweb.live.yaml",
    ],
)
def test_what_is_no_address(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CONFIG_SOURCE") as caught:
        open_source(text, tmp_path)
    assert "hunter2" not in str(caught.value)
