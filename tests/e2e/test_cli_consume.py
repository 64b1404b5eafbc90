"""`orbweb consume` and `orbweb ledger`, as a person types them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orbweb.kafka.envelope import Envelope, encode
from orbweb.model.item import Origin, item_record
from orbweb.pipelines.base import Page
from orbweb.pipelines.valkey import FIELD, StreamPipeline
from orbweb.testing.site import SiteThread

DATABASE = "sqlite:///items.db"
SPIDER = """
import orbweb as mw

class Shop(mw.Spider):
    custom_settings = {"ITEM_PIPELINES": ["orbweb.pipelines.valkey.StreamPipeline"]}

    def start_requests(self):
        for n in range(20):
            yield mw.Request(f"SITE/flat?n={n}", callback=self.parse)

    def parse(self, request, response):
        for number in range(5):
            yield {"url": response.url, "number": number, "tags": ["a", "b"]}
"""


def environment(**more: str) -> dict[str, str]:
    kept = ("PATH", "HOME", "PYTHONPATH", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ} | more


class Shell:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "orbweb", *words],
            cwd=self.directory,
            env=environment(**more),
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done

    def consume(self, *words: str, code: int = 0, **more: str) -> dict[str, Any]:
        return summary(self("consume", "--to", DATABASE, *words, code=code, **more).stdout)

    def rows(self, sql: str) -> list[Any]:
        with sqlite3.connect(self.directory / "items.db") as connection:
            return connection.execute(sql).fetchall()


def summary(output: str) -> dict[str, Any]:
    line = next(each for each in output.splitlines() if each.startswith("ORBWEB_CONSUME_SUMMARY"))
    found: dict[str, Any] = json.loads(line.partition(" ")[2])
    return found


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def store(shell: Shell) -> Any:
    """The embedded store of the directory, kept running; its URL."""
    shell("store", "start")
    yield json.loads(shell("store", "status", "--json").stdout)["url"]
    shell("store", "stop", "--yes")


def test_a_crawl_ends_in_a_database_without_any_other_server(shell: Shell) -> None:
    with SiteThread() as site:
        (shell.directory / "shop.py").write_text(SPIDER.replace("SITE", site.url))
        shell("run", "shop.py")
    first = shell.consume("--until-empty", "--create-tables")
    assert (first["new"], first["duplicate"], first["lag"]) == (100, 0, 0)
    assert shell.rows("SELECT count(*), count(DISTINCT _key) FROM items") == [(100, 100)]
    assert shell.consume("--until-empty")["new"] == 0
    (run,) = json.loads(shell("ledger", "list", "--to", DATABASE, "--json").stdout)
    assert run["keys"] == 100
    asked = shell("ledger", "trim", run["run"], "--to", DATABASE, code=2)
    assert "Forget 100 keys of 1 run?" in asked.stderr
    shell("ledger", "trim", run["run"], "--to", DATABASE, "--yes")
    assert json.loads(shell("ledger", "list", "--to", DATABASE, "--json").stdout) == []


def fill(url: str, count: int, run: str = "e1") -> None:
    records = tuple(
        item_record({"n": n}, run=run, request_id="r1", position=n, default_table="items")
        for n in range(count)
    )
    StreamPipeline(url).save_pages([Page(Origin(run, "r1", "a:1"), records)])


def test_two_processes_give_one_summary(shell: Shell, store: str) -> None:
    fill(store, 3000)
    fill(store, 3000)  # as a page that was fetched twice
    both = shell.consume("-w", "2", "--until-empty", "--create-tables", "--batch", "50")
    assert (both["new"], both["duplicate"], both["dead"]) == (3000, 3000, 0)
    assert both["workers"] == 2
    assert shell.rows("SELECT count(*) FROM items") == [(3000,)]


def test_dead_letters_are_shown_and_tried_again(shell: Shell, store: str) -> None:
    import redis

    row = {"_key": "k1", "n": 1}
    client = redis.Redis.from_url(store)
    client.xadd("orbweb:items", {FIELD: b"rubbish"})
    client.xadd("orbweb:items", {FIELD: encode(Envelope("k1", "items", row))})
    done = shell("consume", "--to", DATABASE, "--until-empty", code=4)
    assert (summary(done.stdout)["dead"], summary(done.stdout)["exit_code"]) == (2, 4)
    assert "warning: all of 2 messages became dead letters" in done.stderr
    letters = json.loads(shell("ledger", "dead", "--to", DATABASE, "--json").stdout)
    errors = " ".join(letter["error"] for letter in letters)
    assert "version 72" in errors
    assert "SQL_CREATE_TABLES" in errors
    first = shell("ledger", "dead", "--to", DATABASE, "--limit", "1")
    assert len(first.stdout.splitlines()) == 2
    assert "and 1 more: --limit 0 shows all" in first.stderr
    whole = shell("ledger", "dead", "--to", DATABASE, "--limit", "0")
    assert len(whole.stdout.splitlines()) == 3
    again = shell.consume("--retry-dead", "--create-tables")
    assert (again["new"], again["dead"], again["exit_code"]) == (1, 1, 0)
    assert shell.consume("--retry-dead", code=4)["dead"] == 1
    assert shell.consume("-w", "2", "--until-empty")["exit_code"] == 0
    client.xadd("orbweb:items", {FIELD: b"rubbish"})
    assert shell.consume("-w", "2", "--until-empty", code=4)["dead"] == 1
    assert shell.rows("SELECT n FROM items") == [(1,)]


def test_sigterm_ends_it_with_0_and_its_entries_are_free(shell: Shell, store: str) -> None:
    fill(store, 100)
    process = subprocess.Popen(
        [sys.executable, "-m", "orbweb", "consume", "--to", DATABASE, "--create-tables"],
        cwd=shell.directory,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 30
    while not stored(shell):
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert summary(output)["new"] == 100


def test_it_can_be_stopped_while_it_waits_for_the_database(shell: Shell) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "orbweb", "consume", "--to", "postgresql://u@127.0.0.1:1/x"],
        cwd=shell.directory,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    assert "waiting error=" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=10)
    assert process.returncode == 75
    assert "stopped_before_it_began" in rest


def stored(shell: Shell) -> bool:
    try:
        return shell.rows("SELECT count(*) FROM items") == [(100,)]
    except sqlite3.OperationalError:
        return False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "SQL_URL"),
        (("--to", "nonsense"), "right would be"),
        (("--to", "oracle://h/x"), "pip install"),
        (("--to", DATABASE), "there is no store here"),
        (("--to", DATABASE, "--topic", "t", "--stream", "s"), "keep one"),
        (("--to", DATABASE, "--brokers", "b:1"), "--topic"),
        (("--to", DATABASE, "--retry-dead", "-w", "2"), "one process"),
        (("--to", DATABASE, "--topic", "t", "-s", "KAFKA_OPTIONS=no.such=1"), "no.such"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    shell: Shell, words: tuple[str, ...], said: str
) -> None:
    done = shell("consume", *words, code=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_passwords_are_shown_nowhere(shell: Shell) -> None:
    done = shell("consume", "--to", "postgresql+nodriver://u:s3cret@127.0.0.1:1/x", code=2)
    options = "KAFKA_OPTIONS=sasl.password=s3cret"
    other = shell("consume", "--to", DATABASE, "--topic", "t", "-s", f"{options},zzz", code=2)
    shown = shell("settings", "-s", options)
    assert "s3cret" not in done.stderr + other.stderr + shown.stdout + shown.stderr
