"""`orbweb config` on a real store without nodes; each undo is pasted and works."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.commands import Call, commands
from tests.servers import Server

from orbweb.frontier.base import RunConfig
from orbweb.frontier.operator import Author
from orbweb.frontier.servers import reach
from orbweb.frontier.steering import HostAdmin
from orbweb.frontier.valkey import ValkeyFrontier

WHY = ("--reason", "a test")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture
def orbweb(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Call]:
    """Runs a command in this process."""
    server.client().flushall()
    server.client().hset("{orbweb:0}:switches", "books", b'{"price_v2": false, "words": []}')
    with commands(tmp_path, monkeypatch, capsys) as call:
        monkeypatch.setenv("ORBWEB_REDIS_URL", server.url)
        yield call


def values(orbweb: Call) -> dict[str, Any]:
    found = orbweb("config", "list", "--json").json["values"]
    return {f"{each['scope']}:{each['of']}/{each['key']}": each["value"] for each in found}


def test_a_value_is_set_shown_and_undone(orbweb: Call) -> None:
    done = orbweb("config", "set", "DOWNLOAD_DELAY", "1.5", "--host", "HTTP://Shop.Example/x", *WHY)
    assert done.code == 0
    assert "DOWNLOAD_DELAY [host:shop.example]  – → 1.5" in done.out
    assert "no node that it concerns is at work" in done.err
    changed = orbweb(
        *("config", "set", "DOWNLOAD_DELAY", "2", "--host", "shop.example"),
        *("--for", "30m", "--author", "li", *WHY),
    )
    assert "1.5 → 2.0  until" in changed.out
    assert "set by li" in changed.out
    for answer in (changed, done):
        (words,) = answer.undo
        assert orbweb(*words).code == 0
        assert values(orbweb) == (
            {"host:shop.example/DOWNLOAD_DELAY": 1.5} if answer is changed else {}
        )
    verbs = [line["verb"] for line in orbweb("config", "history", "--json").json]
    assert verbs == ["unset", "set", "set", "set"]


def test_every_scope_and_kind_is_kept_as_it_was_meant(orbweb: Call) -> None:
    for words in (
        ("EXCLUDE_URLS", "/a,/b"),
        ("RETRY_TIMES", "2", "--job", "books"),
        ("PARSE.price_v2", "on", "--job", "books", "--run-id", "7"),
        ("PARSE.words", "x,y"),
        ("MAX_RESPONSE_SIZE", "2MiB", "--host", "h:8080"),
        ("CONCURRENT_REQUESTS", "4", "--node", "4f5a"),
        ("X_MINE", '{"a": 1}'),
    ):
        assert orbweb("config", "set", *words, *WHY).code == 0
    assert values(orbweb) == {
        "global:/EXCLUDE_URLS": ["/a", "/b"],
        "job:books/SPIDER_MAX_RETRY_TIMES": 2,
        "run:books:7/PARSE.price_v2": True,
        "global:/PARSE.words": ["x", "y"],
        "host:h:8080/MAX_RESPONSE_SIZE": 2 * 1024 * 1024,
        "node:4f5a/CONCURRENT_REQUESTS": 4,
        "global:/X_MINE": {"a": 1},
    }
    assert orbweb("config", "rollback", "2", *WHY).code == 0
    assert len(values(orbweb)) == 2
    assert "–" in orbweb("config", "diff", "2", "7").out
    found = orbweb("config", "get", "RETRY_TIMES", "--job", "books", "--json").json
    assert found["key"] == "SPIDER_MAX_RETRY_TIMES"
    assert [each["value"] for each in found["live"]] == [2]
    assert found["base"] == 3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("set", "DOWNLOAD_DELAY", "1"), "add --reason TEXT"),
        (("set", "DOWNLOAD_DELY", "1", *WHY), "did you mean DOWNLOAD_DELAY?"),
        (("get", "DOWNLOAD_DELY"), "unknown setting 'DOWNLOAD_DELY'"),
        (("set", "LOG_LEVEL", "LOUD", *WHY), "choose one of DEBUG"),
        (("set", "LOG_LEVEL", "DEBUG", "--canary", "1", *WHY), "is at work now"),
        (("set", "LOG_LEVEL", "DEBUG", "--canary", "none", *WHY), "a number of nodes or a part"),
        (("set", "DOWNLOAD_DELAY", "1", "--canary", "10%", *WHY), "some nodes cannot"),
        (
            ("set", "DOWNLOAD_DELAY", "1", "--canary", "1", *WHY),
            "one host (--host HOST) for a time",
        ),
        (("set", "RETRY_TIMES", "1", "--canary", "1", *WHY), "one job (--job JOB) for a time"),
        (
            ("set", "DOWNLOAD_DELAY", "1", "--node", "a", *WHY),
            "a run (--run-id) and a host (--host)",
        ),
        (("set", "LOG_LEVEL", "DEBUG", "--for", "soon", *WHY), "--for"),
        (("set", "LOG_LEVEL", "DEBUG", "--job", "a", "--node", "b", *WHY), "exclude each other"),
        (("set", "LOG_LEVEL", "DEBUG", "--run-id", "b", *WHY), "add --job JOB"),
        (("unset", "LOG_LEVEL", *WHY), "there is no live value"),
        (("promote", "LOG_LEVEL", *WHY), "no canary"),
        (("rollback", "99", *WHY), "there is no version 99"),
        (("diff",), "never been changed"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_stored(
    orbweb: Call, words: tuple[str, ...], text: str
) -> None:
    answer = orbweb("config", *words)
    assert answer.code == 2
    assert text in answer.err
    assert orbweb("config", "list", "--json").json == {"version": 0, "values": []}


def test_a_delay_below_the_approved_rate_is_told_to_be_clamped(
    orbweb: Call, server: Server
) -> None:
    async def approve() -> None:
        from redis.asyncio import Redis

        client = Redis(unix_socket_path=str(server.socket))
        admin = HostAdmin(lambda shard: client, "orbweb")
        await admin.rates.approve("shop.example", 500, Author("ann", "asked"), 60_000)
        await client.aclose()

    asyncio.run(approve())
    answer = orbweb("config", "set", "DOWNLOAD_DELAY", "0.1", "--host", "shop.example", *WHY)
    assert answer.code == 0
    assert "the approved 2/s holds all the same" in answer.err


def test_secrets_are_masked_and_left_out_of_the_undo(orbweb: Call) -> None:
    first = orbweb("config", "set", "PROXY_LIST", "http://u:hunter2@p:1", *WHY)
    second = orbweb("config", "set", "PROXY_LIST", "http://u:hunter3@p:2", *WHY)
    shown = "".join(
        answer.out + answer.err
        for answer in (first, second, orbweb("config", "list"), orbweb("config", "history"))
    )
    assert "hunter" not in shown
    assert shlex.split(shown)


def test_acks_without_a_node(orbweb: Call) -> None:
    assert orbweb("config", "acks", "--json").json == {"version": 0, "nodes": []}
    assert "no node is at work" in orbweb("config", "acks").out


def test_a_value_for_what_nobody_knows_is_kept_and_said(orbweb: Call) -> None:
    assert orbweb("limit", "127.0.0.1:7273", "1/s", *WHY).code == 0
    words = ("config", "set", "CONCURRENT_REQUESTS_PER_DOMAIN", "2", *WHY)
    done = orbweb(*words, "--host", "127.0.0.1")
    assert done.code == 0
    assert "knows no host 127.0.0.1, so it holds only if one comes" in done.err
    assert "did you mean 127.0.0.1:7273?" in done.err
    assert "knows no" not in orbweb(*words, "--host", "127.0.0.1:7273").err
    other = orbweb("config", "set", "CONCURRENT_REQUESTS", "2", *WHY, "--node", "zzz")
    assert (other.code, "knows no node zzz at work" in other.err) == (0, True)


def test_a_negative_value_is_judged_as_a_value(orbweb: Call) -> None:
    done = orbweb("config", "set", "DOWNLOAD_DELAY", "-1", *WHY)
    assert done.code == 2
    assert "0 seconds is the least" in done.err
    assert "No such option" in orbweb("config", "set", "DOWNLOAD_DELAY", "1", "--hots", "x").err


def test_where_a_job_is_missing_it_is_said_what_lists_them(orbweb: Call) -> None:
    for words in (("status",), ("failed", "list")):
        done = orbweb(*words)
        assert (done.code, "orbweb jobs" in done.err) == (2, True)


def test_a_run_without_a_node_has_one_word_everywhere(orbweb: Call, server: Server) -> None:
    async def make() -> None:
        servers = await reach(server.url, "orbweb", 5)
        try:
            for run in ("r1", "r2"):
                client = servers.of_shard(0)
                await ValkeyFrontier(client, prefix="orbweb", job="Shop", run=run).open(RunConfig())
        finally:
            await servers.aclose()

    asyncio.run(make())
    for words in (("jobs",), ("status", "Shop", "--run-id", "r1"), ("diff", "Shop")):
        done = orbweb(*words)
        assert "no node at work" in done.out + done.err, words
        assert "running" not in done.out + done.err, words
    assert "r2 has not ended (no node at work)" in orbweb("diff", "Shop").err
