"""Commands on hosts and rates, in one process on a real store; each undo is pasted and works."""

from __future__ import annotations

import asyncio
import csv
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.e2e.commands import Answer, Call, commands
from tests.servers import Server

from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.testing.contract_store import Node, page, seeded
from orbweb.testing.origin import OriginLog
from orbweb.testing.site import SiteThread


class Filled:
    """Makes runs in a store. See `orbweb.testing.contract.Store`."""

    def __init__(self, client: Redis) -> None:
        self.client = client

    def frontier(self, job: str = "job", run: str = "") -> ValkeyFrontier:
        return ValkeyFrontier(self.client, prefix="orbweb", job=job, run=run)

    def turn(self, ms: int) -> None:
        raise NotImplementedError


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


async def fill(server: Server) -> None:
    """Two jobs: news with three requests for a.example and one for b.example; localhost."""
    client = Redis(unix_socket_path=str(server.socket))
    await client.flushall()
    store: Any = Filled(client)
    requests = [page(f"a{n}", "a.example") for n in range(3)]
    node: Node = await seeded(store, *requests, page("b", "b.example:8080"), job="news")
    assert await node.take(1)
    await seeded(store, page("x", "localhost"), job="localhost")
    await client.aclose()


@pytest.fixture
def call(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Call]:
    asyncio.run(fill(server))
    with commands(tmp_path, monkeypatch, capsys) as call:
        monkeypatch.setenv("ORBWEB_REDIS_URL", server.url)
        monkeypatch.setenv("LOGNAME", "ann")
        yield call


def facts(call: Call, host: str) -> Any:
    (found,) = call("hosts", host, "--json").json["hosts"]
    return found


def undone(call: Call, answer: Answer) -> str:
    """What the last command says when the undo is pasted."""
    done = [call(*words) for words in answer.undo]
    assert [each.code for each in done] == [0] * len(done), done
    return done[-1].out


def test_hosts_say_what_waits_and_why(call: Call) -> None:
    found = call("hosts", "--json").json
    assert found["total"] == 3
    assert [(each["host"], each["queued"]) for each in found["hosts"]] == [
        ("a.example", 2),
        ("b.example:8080", 1),
        ("localhost", 1),
    ]
    text = call("hosts", "--limit", "1")
    assert text.out.splitlines()[0].split()[:2] == ["HOST", "QUEUED"]
    assert text.out.splitlines()[1].endswith("ready")
    assert "… and 2 more of 3 hosts (--limit 0 shows all)" in text.err
    assert call("hosts", "--job", "localhost", "--json").json["total"] == 1
    assert call("hosts", "--sort", "rate", "--json").json["hosts"][0]["host"] == "a.example"
    assert call("hosts", "http://A.example/path", "--json").json["hosts"][0]["queued"] == 2


def test_what_cannot_be_shown_is_said(call: Call) -> None:
    wrong = call("hosts", "--sort", "age")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--sort age is none of backlog, rate, errors" in wrong.err
    assert "jobs there: localhost, news" in call("hosts", "--job", "new").err
    assert "is no host" in call("hosts", "a b").err


def test_a_limit_is_set_and_undone(call: Call) -> None:
    done = call("limit", "a.example", "2/s", "--for", "30m", "--reason", "429s since 2:00")
    assert done.code == 0, done.err
    assert "a.example: no limit → 2/s, until " in done.out
    limit = facts(call, "a.example")["limit"]
    assert (limit["gap_ms"], limit["by"], limit["why"]) == (500, "ann", "429s since 2:00")
    slower = call("limit", "a.example", "30/m")
    assert slower.out == "a.example: 2/s → 30/m\n"
    assert "30/m → 2/s, until " in undone(call, slower)
    limit = facts(call, "a.example")["limit"]
    assert (limit["gap_ms"], limit["why"]) == (500, "429s since 2:00")
    assert limit["until_ms"] > 0
    assert undone(call, done) == "a.example: 2/s → no limit\n"
    assert facts(call, "a.example")["limit"] is None
    assert "has no limit: nothing was done" in call("limit", "a.example", "off").out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("limit", "a.example", "fast"), "right would be 2/s"),
        (("limit", "a.example", "0/s"), "orbweb pause"),
        (("limit", "a.example", "off", "--for", "1h"), "--for goes with a rate"),
        (("limit", "a.example", "1/s", "--for", "30"), "--for '30' is no time span"),
        (("limit", "ftp://a.example", "1/s"), "is no host"),
        (("pause", "a.example", "--host", "--job"), "exclude each other"),
        (("pause", "nobody"), "neither a job nor a host"),
        (("pause", "b.example", "--job"), "there is no job"),
        (("rates", "approve", "a.example", "--by", "bob"), "nobody has asked"),
        (("rates", "revoke", "a.example", "--by", "bob", "--reason", "x"), "no rate for a.example"),
        (("rates", "request", "a.example", "1/s", "--contact", " ", "--reason", "x"), "say some"),
        (("rates", "export", "--format", "xml"), "csv, json"),
    ],
)
def test_mistakes_are_told_and_change_nothing(
    call: Call, words: tuple[str, ...], text: str
) -> None:
    refused = call(*words)
    assert (refused.code, refused.out) == (2, "")
    assert text in refused.err
    assert call("rates", "log", "--json").json == []


def test_an_approval_needs_its_author_and_its_reason(call: Call) -> None:
    assert call("rates", "approve", "a.example", "1/s").code == 2
    assert call("rates", "revoke", "a.example", "--by", "bob").code == 2


def test_an_unknown_host_is_steered_all_the_same(call: Call) -> None:
    done = call("limit", "https://Bücher.example/x", "1/s")
    assert done.code == 0
    assert "xn--bcher-kva.example: no limit → 1/s" in done.out
    assert "nothing is queued for xn--bcher-kva.example" in done.err
    assert "nothing is queued" not in call("limit", "a.example", "1/s").err


def test_a_host_is_paused_and_resumed(call: Call) -> None:
    paused = call("pause", "a.example", "--reason", "their request")
    assert paused.out == "a.example: paused until it is resumed; 2 requests wait\n"
    table = call("hosts").out
    assert "paused by ann: their request, until it is resumed" in table
    again = call("pause", "a.example", "--for", "2h")
    assert again.undo == [["pause", "a.example", "--reason", "their request"]]
    assert undone(call, paused) == "a.example: goes on; 2 requests wait\n"
    assert facts(call, "a.example")["pause"] is None
    assert "is not paused: nothing was done" in call("resume", "a.example").out


def test_a_job_is_paused_and_resumed(call: Call) -> None:
    paused = call("pause", "news", "--for", "1h")
    assert "news · run (default): paused until " in paused.out
    assert "4 requests kept" in paused.out
    assert call("status", "news", "--json").json["paused"] is True
    assert "news       (default)  paused" in call("jobs").out
    assert facts(call, "a.example")["waiting_because"]["reason"] == "run_paused"
    assert undone(call, paused) == "news · run (default): goes on; 4 requests wait\n"
    assert call("status", "news", "--json").json["paused"] is False
    assert "is not paused" in call("resume", "news").out


def test_a_name_that_is_a_job_and_a_host_must_be_told_apart(call: Call) -> None:
    refused = call("pause", "localhost")
    assert refused.code == 2
    assert "localhost is a job and a host: say which with --job or --host" in refused.err
    host = call("pause", "localhost", "--host")
    assert host.out.startswith("localhost: paused")
    job = call("pause", "localhost", "--job")
    assert job.out.startswith("localhost · run (default): paused")
    assert undone(call, host).startswith("localhost: goes on")
    assert undone(call, job).startswith("localhost · run (default): goes on")


def test_an_undo_means_the_same_store(call: Call, server: Server) -> None:
    more = ("-s", "REDIS_KEY_PREFIX=other", "--store", server.url)
    done = call("limit", "a.example", "1/s", *more)
    assert done.undo[0][-4:] == list(more)
    assert undone(call, done) == "a.example: 1/s → no limit\n"


def test_a_rate_is_requested_approved_and_revoked(call: Call) -> None:
    why = ("--contact", "ops@a.example", "--reason", "weekly catalogue")
    asked = call("rates", "request", "a.example", "4/s", *why)
    assert asked.out == "a.example: 4/s is asked for; nothing is approved yet\n"
    approved = call("rates", "approve", "a.example", "2/s", "--by", "bob", "--for", "90d")
    assert "a.example: 2/s is approved by bob, until " in approved.out
    assert "now: 2/s (approved ceiling)" in approved.err
    (rate,) = call("rates", "list", "--json").json
    assert (rate["state"], rate["ceiling"], rate["now"]) == ("approved", "2/s", "2/s")
    assert rate["contact"] == "ops@a.example"
    clamped = call("limit", "a.example", "5/s")
    assert "no limit → 2/s" in clamped.out
    assert "5/s is above the approved 2/s" in clamped.err
    undone(call, clamped)
    revoked = call("rates", "revoke", "a.example", "--by", "bob", "--reason", "a letter came")
    assert revoked.out == "a.example: approved 2/s → revoked\n"
    assert call("rates", "list", "--json").json[0]["state"] == "revoked"
    undone(call, revoked)
    assert call("rates", "list", "--json").json[0]["ceiling"] == "2/s"
    undone(call, approved)
    (rate,) = call("rates", "list", "--json").json
    assert (rate["state"], rate["asked"], rate["ceiling"]) == ("requested", "4/s", "")
    undone(call, asked)
    assert call("rates", "list", "--json").json[0]["state"] == "revoked"
    trail = call("rates", "log", "a.example", "--json").json
    assert [line["verb"] for line in trail] == [
        *("revoke", "request", "revoke", "approve", "revoke"),
        *("limit", "limit", "approve", "request"),
    ]
    assert trail[4]["why"] == "a letter came"
    shown = call("rates", "log", "--limit", "1")
    assert len(shown.out.splitlines()) == 2
    assert "… and 8 older" in shown.err


def test_the_register_is_exported(call: Call) -> None:
    call("rates", "approve", "b.example:8080", "30/m", "--by", "bob", "--reason", "x")
    call("rates", "request", "a.example", "2/s", "--contact", "x, y", "--reason", '"z"')
    table = call("rates", "export").out.splitlines()
    rows = list(csv.DictReader(table))
    assert [row["host"] for row in rows] == ["a.example", "b.example:8080"]
    assert (rows[1]["ceiling"], rows[1]["approver"], rows[1]["clamped"]) == ("30/m", "bob", "0")
    assert rows == [
        {name: str(value) for name, value in row.items()}
        for row in call("rates", "export", "--format", "json").json
    ]
    call("rates", "approve", "a.example", "--by", "bob", "--for", "1s")
    while not (expired := call("rates", "list", "--expired", "--json").json):
        pass
    assert [rate["host"] for rate in expired] == ["a.example"]
    assert "a.example       expired" in call("rates", "list").out


def test_an_empty_register_and_trail_are_said(call: Call) -> None:
    assert call("rates", "list").out == "the register of rates is empty\n"
    assert call("rates", "list", "--expired").out == "no rate has expired\n"
    assert call("rates", "log", "a.example").out == "nothing was done to a.example yet\n"


SPIDER = """
import orbweb

class LongSpider(orbweb.Spider):
    site = ""

    def start_requests(self):
        for n in range(60):
            yield orbweb.Request(f"{self.site}/flat?n={n}&delay=0.05")

    def parse(self, response):
        pass
"""


def test_a_crawl_stands_still_while_it_is_paused(call: Call, tmp_path: Path) -> None:
    def counts() -> Any:
        answer = call("status", "LongSpider", "--json")
        return answer.json if answer.code == 0 else {"leased": 0, "reasons": {}}

    def beat() -> int:
        """Something that changes with each beat of the node."""
        nodes = call("nodes", "LongSpider", "--json").json
        return int(nodes[0]["said"]["elapsed"] * 1000) if nodes else -1

    (tmp_path / "long.py").write_text(SPIDER)
    with SiteThread() as site:
        host = site.url.removeprefix("http://")
        command = [sys.executable, "-m", "orbweb", "run", "long.py", "--no-progress"]
        command += ["-a", f"site={site.url}", "-s", "HEARTBEAT_INTERVAL=0.2"]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            while not counts()["reasons"].get("done") and process.poll() is None:
                pass
            for name, reason in (("LongSpider", "run_paused"), (host, "host_paused")):
                paused = call("pause", name)
                while counts()["leased"]:
                    pass
                before, seen = counts()["reasons"]["done"], set[int]()
                while len(seen) < 3 and process.poll() is None:
                    seen.add(beat())
                assert facts(call, host)["waiting_because"]["reason"] == reason
                assert counts()["reasons"]["done"] == before
                undone(call, paused)
                while counts()["reasons"]["done"] == before and process.poll() is None:
                    pass
            _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert counts()["reasons"]["done"] == 60


@pytest.mark.alone
def test_a_site_sees_no_more_than_the_limit_allows(call: Call, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(SPIDER)
    log = tmp_path / "site.log"
    with SiteThread(log=log) as site:
        call("limit", site.url, "20/s")
        command = [sys.executable, "-m", "orbweb", "run", "long.py", "-w", "2", "--no-progress"]
        command += ["-a", f"site={site.url}", "--stop-after", "15"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 75, done.stderr
        taken = facts(call, site.url.removeprefix("http://"))["taken"]
    times = [hit.t for hit in OriginLog.read(log).hits]
    assert 15 <= len(times) <= taken + 1, "robots.txt is asked for beside the pages"
    late = 0.03  # what a busy machine may add before the site sees a request
    assert times[-1] - times[0] >= (len(times) - 1) * 0.05 - late
    assert min(b - a for a, b in pairwise(times)) >= 0.05 - late
