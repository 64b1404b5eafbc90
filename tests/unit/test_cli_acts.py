"""What acts on hosts read from the command line, and the undo that they print."""

from __future__ import annotations

import getpass

import pytest

from orbweb.cli.acts import (
    Asked,
    limit_words,
    pause_words,
    read_host,
    read_rate,
    read_span,
    say_undo,
    user_name,
)
from orbweb.cli.rates import undo_of
from orbweb.errors import ConfigError
from orbweb.frontier.hosts import Limit, Pause
from orbweb.frontier.rates import Rate, RateState, approved, pack, requested, revoked, unpack
from orbweb.frontier.register import RateChange

NOW = 1_700_000_000_000
DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("shop.example", "shop.example"),
        ("SHOP.example.", "shop.example"),
        ("shop.example:8080", "shop.example:8080"),
        ("shop.example:80", "shop.example"),
        ("shop.example:443", "shop.example"),
        ("https://shop.example/p?q=1", "shop.example"),
        ("http://user:word@shop.example:81/", "shop.example:81"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("127.0.0.1:7273", "127.0.0.1:7273"),
        ("[::1]:8080", "[::1]:8080"),
        ("localhost", "localhost"),
    ],
)
def test_a_host_is_read_as_crawls_know_it(text: str, host: str) -> None:
    assert read_host(text) == host


@pytest.mark.parametrize(
    "text", ["", "a b", "ftp://a.example", "a.example:port", "a.example:99999"]
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is no host .* right would be shop\.example"):
        read_host(text)


def test_rates_and_spans_are_refused_by_their_option() -> None:
    with pytest.raises(ConfigError, match="is no rate"):
        read_rate("quick")
    with pytest.raises(ConfigError, match="--for 'soon' is no time span"):
        read_span("soon")
    assert Asked().for_ms == 0
    assert Asked("1h30m").for_ms == 5_400_000


def test_the_author_is_who_types_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    assert Asked(reason="r").author == ("ann", "r")
    assert Asked(by="bob").author.by == "bob"

    def nobody() -> str:
        raise KeyError("no such uid")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert user_name() == "unknown"


def test_undo_commands_say_what_was_there() -> None:
    assert limit_words("h", None, NOW) == ["limit", "h", "off"]
    limit = Limit(334, NOW + 90_500, "ann", "it's slow")
    assert limit_words("h", limit, NOW) == [
        *("limit", "h", "3/s", "--for", "1m31s", "--reason", "it's slow")
    ]
    assert pause_words(["h"], None, NOW) == ["resume", "h"]
    assert pause_words(["j", "--job"], Pause(0, "ann"), NOW) == ["pause", "j", "--job"]


def test_an_undo_can_be_pasted_and_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    say_undo(Asked(store="redis://h"), ["limit", "h", "1/s", "--reason", "it's slow"], ["jobs"])
    assert capsys.readouterr().err == (
        "undo: orbweb limit h 1/s --reason 'it'\"'\"'s slow' --store redis://h"
        " && orbweb jobs --store redis://h\n"
    )
    say_undo(Asked(store="redis://:word@h"), ["limit", "h", "off"])
    assert capsys.readouterr().err == ("undo: orbweb limit h off  # with the same -s and --store\n")


def entry(asked: int | None = None, ceiling: int | None = None, expires: int = NOW + DAY) -> Rate:
    return Rate("h", asked, ceiling, expires, contact="ops", requested_by="ann", reason="r")


@pytest.mark.parametrize(
    ("before", "after", "verbs"),
    [
        (None, entry(asked=500), [["revoke"]]),
        (None, entry(ceiling=500), [["revoke"]]),
        (entry(asked=500), entry(ceiling=500), [["revoke"], ["request", "2/s"]]),
        (entry(asked=500), entry(asked=250), [["request", "2/s"]]),
        (entry(ceiling=500), entry(asked=250, ceiling=500), [["approve", "2/s"]]),
        (entry(ceiling=500), entry(ceiling=250), [["approve", "2/s"]]),
        (entry(250, 500), entry(ceiling=250), [["approve", "2/s"], ["request", "4/s"]]),
        (entry(ceiling=500, expires=NOW), entry(ceiling=500), [["revoke"]]),
    ],
)
def test_the_undo_of_a_change_of_the_register(
    before: Rate | None, after: Rate, verbs: list[list[str]]
) -> None:
    commands = undo_of(RateChange(before, after, NOW), "bob")
    assert [[words[1], *words[3:4]] if len(verb) > 1 else [words[1]]
            for words, verb in zip(commands, verbs, strict=True)] == verbs  # fmt: skip


def test_an_approval_restored_ends_when_it_would_have() -> None:
    (words,) = undo_of(RateChange(entry(ceiling=500), entry(ceiling=250), NOW), "bob")
    assert words[-4:] == ["--by", "bob", "--for", "1d"]


def test_the_life_of_an_entry() -> None:
    one = requested(None, "h", 500, by="ann", contact="ops", why="r", at_ms=NOW)
    assert (one.state(NOW), one.text(NOW)) == (RateState.REQUESTED, "requested 2/s")
    two = approved(one, "h", None, by="bob", expires_ms=NOW + DAY, at_ms=NOW)
    assert two.state(NOW + DAY - 1) is RateState.APPROVED
    assert two.state(NOW + DAY) is RateState.EXPIRED
    assert (two.requested_by, two.approver, two.contact) == ("ann", "bob", "ops")
    three = revoked(two, "h", by="eve", why="x", at_ms=NOW)
    assert (three.state(NOW), three.ceiling_ms) == (RateState.REVOKED, None)
    with pytest.raises(ConfigError, match="no rate for h"):
        revoked(three, "h", by="eve", why="x", at_ms=NOW)
    again = requested(three, "h", 500, by="ann", contact="", why="r", at_ms=NOW)
    assert again.state(NOW) is RateState.REQUESTED
    assert unpack("h", pack(two).encode()) == two
    assert unpack("h", b'{"host": "h", "later": 1}') == Rate("h")
