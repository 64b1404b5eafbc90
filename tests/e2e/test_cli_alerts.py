"""`orbweb alerts` as people type it, over a real store and a service that answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.receiver import Receiver
from tests.servers import Server

from orbweb.alarms.judge import Docket, encode
from orbweb.alarms.states import Alarm, State


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


def orbweb(
    folder: Path, server: Server, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "orbweb", *words],
        cwd=folder, env=kept | {"ORBWEB_REDIS_URL": server.url} | environment,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def fire(server: Server, *alarms: Alarm) -> None:
    """What a judge would have put down just now."""
    client = server.client()
    seconds, _ = client.time()  # type: ignore[misc]
    docket = Docket(alarms={alarm.key: alarm for alarm in alarms}, judged_ms=seconds * 1000)
    client.set("{orbweb:0}:role:alerts:record", encode(docket))


def test_alarms_are_listed_silenced_and_told_again(tmp_path: Path, server: Server) -> None:
    fire(
        server,
        Alarm("sink_down", "Shop", "r1", "SqlPipeline", 1_800_000_000_000, State.FIRING, 35.0,
              "postgresql://u:hunter2@db refused"),
    )  # fmt: skip
    listed = orbweb(tmp_path, server, "alerts", "list")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.startswith("[HIGH] Shop (r1): SqlPipeline has stored nothing for 35 s")
    assert "do: orbweb pause Shop --job" in listed.stdout
    assert "undo: orbweb resume Shop --job" in listed.stdout
    assert "hunter2" not in listed.stdout
    chinese = orbweb(tmp_path, server, "alerts", "list", "--lang", "zh").stdout
    assert "【高】Shop (r1)" in chinese
    assert "撤销: orbweb resume Shop --job" in chinese

    words = ("sink_down/Shop", "--for", "2h", "--reason", "the database moves")
    silenced = orbweb(tmp_path, server, "alerts", "silence", *words)
    assert silenced.returncode == 0, silenced.stderr
    assert "undo: orbweb alerts unsilence sink_down/Shop" in silenced.stderr
    found = json.loads(orbweb(tmp_path, server, "alerts", "list", "--json").stdout)
    assert found["watched"] is True
    assert [(each["rule"], each["silenced"]) for each in found["alarms"]] == [("sink_down", True)]
    assert found["silences"][0]["reason"] == "the database moves"

    again = orbweb(tmp_path, server, "alerts", "unsilence", "sink_down/Shop")
    assert "people are told again" in again.stdout
    found = json.loads(orbweb(tmp_path, server, "alerts", "list", "--json").stdout)
    assert found["silences"] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("silence", "sinkdown", "--for", "2h", "--reason", "x"), "there is no rule sinkdown"),
        (("silence", "cpu", "--for", "90d", "--reason", "x"), "up to 30d"),
        (("silence", "cpu", "--for", "2h", "--reason", " "), "--reason"),
        (("test",), "no channel is set"),
        (("list", "--lang", "de"), "en or zh"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, server: Server, words: tuple[str, ...], says: str
) -> None:
    done = orbweb(tmp_path, server, "alerts", *words)
    assert done.returncode == 2
    assert says in done.stderr


def test_rules_have_the_thresholds_of_the_settings(tmp_path: Path, server: Server) -> None:
    done = orbweb(tmp_path, server, "alerts", "rules", "--json", ORBWEB_ALERTS_BACKLOG="7")
    rules = {rule["rule"]: rule for rule in json.loads(done.stdout)}
    assert (rules["backlog"]["threshold"], rules["backlog"]["for_seconds"]) == (7.0, 300.0)
    assert rules["node_silent"]["threshold"] == 60.0
    assert rules["duplicates"]["threshold"] == 0.01
    assert rules["cpu"]["for_seconds"] == 600.0


def test_each_channel_is_proved_by_the_services_own_answer(tmp_path: Path, server: Server) -> None:
    with Receiver() as good, Receiver() as bad:
        bad.body = '{"errcode": 93000, "errmsg": "invalid webhook url"}'
        channels = f"ops={good.url}/x,team=wecom+{bad.url}/send?key=0123456789abcdef"
        done = orbweb(tmp_path, server, "alerts", "test", ORBWEB_ALERTS_CHANNELS=channels)
        assert done.returncode == 1
        assert "HTTP 200" in done.stdout
        assert "93000" in done.stdout
        assert "0123456789abcdef" not in done.stdout + done.stderr
        assert good.letters[0]["alarms"][0]["job"] == "TEST"
        one = orbweb(tmp_path, server, "alerts", "test", "ops", ORBWEB_ALERTS_CHANNELS=channels)
        assert one.returncode == 0, one.stderr
