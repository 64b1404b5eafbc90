"""Records in the store that cannot be read: each is named, and what is around it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.commands import Call, commands
from tests.servers import Server

from orbweb.frontier.base import Ack, NewRequest, RunConfig
from orbweb.frontier.items import FailedItem
from orbweb.frontier.keys import RunKeys, ShardKeys
from orbweb.frontier.server import connect
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.kafka.envelope import Envelope, encode
from orbweb.model.codec import encode as encoded
from orbweb.model.request import Request

JOB = "Shop"
BAD = b"\xffno record\xfe"
KEYS = ShardKeys("orbweb")
KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture
async def run(server: Server) -> RunKeys:
    """A run with one dead letter."""
    client = connect(server.url, 5.0)
    frontier = ValkeyFrontier(client, prefix="orbweb", job=JOB)
    opened = await frontier.open(RunConfig())
    payload = encoded(Request("http://a.example/good"))
    await frontier.add([NewRequest("aa01", "a.example", 0, 1, payload)])
    (lease,) = (await frontier.claim("node", 1, 1, 60_000)).leases
    await frontier.ack([Ack(*lease.held, "callback_error", error="KeyError: 'price'")])
    await client.aclose()
    return KEYS.run(JOB, "", opened.epoch)


@pytest.fixture
def call(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Call]:
    with commands(tmp_path, monkeypatch, capsys) as asked:
        yield lambda *words: asked(*words, "--store", server.url)


def plant(server: Server, key: str, **fields: bytes) -> None:
    server.client().hset(key, mapping=fields)  # type: ignore[arg-type]


def test_a_dead_letter_of_an_older_layout_is_read_as_far_as_it_goes(
    server: Server, run: RunKeys, call: Call
) -> None:
    """It did not say which node had the request."""
    whole = server.client().hget(run.why, "aa01")
    assert isinstance(whole, bytes)
    reason, tries, at_ms, _, error = whole.split(b"\n")
    plant(server, run.why, aa01=b"\n".join((reason, tries, at_ms, error + b"\nand more")))
    (letter,) = call("failed", "list", JOB, "--json").json["letters"]
    assert (letter["error"], letter["node"]) == ("KeyError: 'price'\nand more", "")
    assert letter["request"]["url"] == "http://a.example/good"
    plant(server, run.why, aa01=b"\n".join((reason, tries, at_ms, b"Gone")))
    assert call("failed", "show", JOB, "aa01", "--json").json["error"] == "Gone"


def test_a_dead_letter_that_cannot_be_read_is_named_beside_the_others(
    server: Server, run: RunKeys, call: Call
) -> None:
    plant(server, run.why, bb01=BAD, bb02=b"dns\n1\n5\nnode\nno name")
    plant(server, run.dead, bb01=b"a.example\n0\n0\npayload", bb02=BAD)
    listed = call("failed", "list", JOB)
    assert (listed.code, "KeyError: 'price'" in listed.out) == (0, True)
    assert all(id in listed.out for id in ("aa01", "bb01", "bb02"))
    assert "this record cannot be read" in call("failed", "show", JOB, "bb01").out
    exported = call("failed", "export", JOB).lines
    assert {line["id"]: line["reason"] for line in exported} == {
        "aa01": "callback_error",
        "bb01": "undecodable",
        "bb02": "undecodable",
    }
    dropped = call("failed", "drop", JOB, "--reason", "undecodable", "--yes")
    assert "2 failed requests forgotten" in dropped.out
    assert len(call("failed", "list", JOB, "--json").json["letters"]) == 1


def test_failed_items_that_cannot_be_read_are_named_beside_the_others(
    server: Server, run: RunKeys, call: Call
) -> None:
    envelope = encode(Envelope(KEY, "goods", {"sku": 1}))
    good = FailedItem(KEY, "goods", "Sql", "refused", 5, "http://a/", "aa01", envelope=envelope)
    later = FailedItem("f" * 32, "goods", "Sql", "refused", 6, "http://a/", "x", envelope=b"\x63")
    rows = {each.id: msgspec.msgpack.encode(each) for each in (good, later)}
    plant(server, run.failed_items, **rows, **{"eeee Sql": BAD})
    told = call("items", "failed", JOB, "--json")
    items = {item["key"]: item for item in told.json["items"]}
    assert items[KEY]["item"] == {"sku": 1}
    assert items["f" * 32]["item"] is None
    assert f"the item {'f' * 32} cannot be read" in told.err
    assert "this record cannot be read" in items["eeee"]["error"]
    assert "1 failed item forgotten" in call("items", "drop", JOB, "eeee", "--yes").out
    assert len(call("items", "failed", JOB, "--json").json["items"]) == 2


READING = [
    ("jobs",),
    ("status", JOB),
    ("nodes", JOB),
    ("hosts",),
    ("failed", "list", JOB),
    ("items", "failed", JOB),
    ("items", "quality", JOB),
    ("dedup", "stats", JOB),
    ("explain", "http://a.example/good", "--job", JOB),
    ("log", JOB, "--in-store"),
    ("rates", "list"),
    ("rates", "log"),
    ("config", "list"),
    ("config", "history"),
    ("config", "acks"),
    ("config", "get", "DOWNLOAD_DELAY"),
    ("alerts", "list"),
    ("tasks", "list", JOB),
    ("tasks", "count", JOB),
    ("doctor",),
]


def plant_everywhere(server: Server, run: RunKeys) -> None:
    client: Any = server.client()
    for key in (
        *(run.why, run.dead, run.beats, run.failed_items, run.quality, run.counts, run.responses),
        *(KEYS.rates, KEYS.config_acks, KEYS.switches, KEYS.rules, KEYS.job_runs(JOB)),
        *(KEYS.job_quality(JOB), KEYS.job_pages(JOB, "e")),
        *(KEYS.alerts(kind) for kind in ("silences", "consumers", "schedules", "idle", "lost")),
        KEYS.alerts("deliveries"),
    ):
        client.hset(key, mapping={"bad": BAD, "worse": b"", "text": b'5\n{"until_ms": "soon"}'})
    client.hset(run.responses, "aa01", BAD)
    client.hset(KEYS.rules, JOB, BAD)
    client.set(f"{KEYS.role('alerts')}:record", BAD)
    client.rpush(KEYS.audit, BAD, b"{}", b'{"at_ms": 5, "by": "li", "verb": "pause", "new": 1}')
    client.rpush(KEYS.task_list(JOB), BAD, b"uid {")
    client.hset(KEYS.config, mapping={"version": 2, "values": b'{"version": 2}'})
    client.rpush(KEYS.config_history, BAD, b'{"version": 2, "at_ms": 1, "by": "li", "verb": "set"}')
    client.xadd(KEYS.job_log(JOB), {"line": BAD})
    client.xadd(KEYS.job_log(JOB), {"other": BAD})
    client.set(KEYS.robots("http://a.example"), BAD)


def test_no_command_that_reads_dies_of_a_bad_record(
    server: Server, run: RunKeys, call: Call
) -> None:
    plant_everywhere(server, run)
    ended = {}
    for words in READING:
        for form in ((), ("--json",)):
            answer = call(*words, *form)
            ended[" ".join((*words, *form))] = (answer.code, "Traceback" in answer.err)
    good = {words for words, (code, trace) in ended.items() if code in (0, 3) and not trace}
    assert ended.keys() - good == set()


def test_what_could_not_be_read_is_said(server: Server, run: RunKeys, call: Call) -> None:
    plant_everywhere(server, run)
    assert "li" in (log := call("rates", "log").out)
    assert "this line cannot be read" in log
    assert {rate["state"] for rate in call("rates", "list", "--json").json} == {"unreadable"}
    history = call("config", "history").out
    assert "v2 set by li" in history
    assert "this line cannot be read" in history
    assert "what changed in version 1 cannot be read" in call("config", "diff", "0", "2").err
    assert "what node bad has counted is left out" in call("items", "quality", JOB).err
    assert "no task" in call("tasks", "list", JOB).out
    assert "cannot be read" in call("alerts", "list").err


def test_the_metrics_and_the_watch_leave_out_what_they_cannot_read(
    server: Server, run: RunKeys, call: Call
) -> None:
    plant_everywhere(server, run)
    shown = call("metrics", "show")
    assert (shown.code, f'spider="{JOB}"' in shown.out) == (0, True)
