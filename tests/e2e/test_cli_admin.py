"""Commands that look at a store and act on it, in one process on a real embedded store."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.commands import Call, commands
from tests.servers import Server

from orbweb.frontier.base import RunConfig
from orbweb.frontier.server import connect
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.testing.site import SiteThread

SPIDER = """
import orbweb

class ShopSpider(orbweb.Spider):
    site = ""
    custom_settings = {"SPIDER_MAX_RETRY_TIMES": 0}

    def start_requests(self):
        for path in ("/flat?n=1", "/flat?n=2", "/admin", "/hops?n=1&x=1",
                     "/status?code=404&x=1", "/status?code=404&x=2", "/status?code=503"):
            yield orbweb.Request(self.site + path)

    def parse(self, response):
        yield {"url": response.url}

class LongSpider(orbweb.Spider):
    site = ""

    def start_requests(self):
        for n in range(500):
            yield orbweb.Request(f"{self.site}/flat?n={n}&delay=0.2")

    def parse(self, response):
        pass
"""


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in whose store a run with three failed requests has ended."""
    folder = tmp_path_factory.mktemp("crawled")
    (folder / "shop.py").write_text(SPIDER)
    with SiteThread() as site:
        command = [sys.executable, "-m", "orbweb", "run", "shop.py:ShopSpider"]
        command += ["-a", f"site={site.url}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (folder / "site").write_text(site.url)
        yield folder


@pytest.fixture
def folder(crawled: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, with its store running."""
    copy = tmp_path / "copy"
    shutil.copytree(crawled, copy, ignore=lambda _, names: [n for n in names if "sock" in n])
    yield copy
    subprocess.run(
        [sys.executable, "-m", "orbweb", "store", "stop", "--yes"], cwd=copy, capture_output=True
    )


@pytest.fixture
def call(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    with commands(folder, monkeypatch, capsys) as call:
        yield call


def test_a_run_is_told_from_outside(call: Call) -> None:
    assert call("store", "start").code == 0
    (run,) = call("jobs", "--json").json
    assert (run["job"], run["run"], run["state"]) == ("ShopSpider", "", "done")
    assert (run["pending"], run["items"], run["dead"]) == (0, 3, 3)
    assert run["reasons"]["done"] == 3
    assert "ShopSpider  (default)  done" in call("jobs").out
    status = call("status", "ShopSpider").out
    assert "3 pages, 3 items" in status
    assert "skipped  1 (robots_disallowed 1)" in status
    assert "failed   3  (orbweb failed list ShopSpider)" in status
    unknown = call("status", "Shop")
    assert (unknown.code, unknown.out) == (2, "")
    assert "jobs there: ShopSpider" in unknown.err


def test_failed_requests_are_grouped_and_can_be_chosen(call: Call) -> None:
    call("store", "start")
    found = call("failed", "list", "ShopSpider", "--json").json
    assert found["reasons"] == {"status_rejected": 3}
    letters = found["letters"]
    assert {letter["request"]["url"].rpartition("/")[2] for letter in letters} == {
        "status?code=404&x=1",
        "status?code=404&x=2",
        "status?code=503",
    }
    assert all(letter["tries"] == 1 for letter in letters)
    text = call("failed", "list", "ShopSpider", "--limit", "1").out
    assert text.startswith("status_rejected  3  the site answered with a status")
    assert "… and 2 more" in text
    assert (
        call("failed", "list", "ShopSpider", "--host", "b.example", "--json").json["letters"] == []
    )
    assert call("failed", "list", "ShopSpider", "--reason", "dns", "--json").json["letters"] == []
    assert call("failed", "list", "ShopSpider", "--reason", "nds").code == 2
    one = letters[0]
    shown = call("failed", "show", "ShopSpider", one["id"][:10])
    assert one["request"]["url"] in shown.out
    assert "advice" in shown.out
    told = call("failed", "show", "ShopSpider", one["id"], "--json").json
    assert told.pop("response")["status"] in (404, 503)
    assert told == one
    assert "3 failed requests begin with" in call("failed", "show", "ShopSpider", "").err
    assert "no failed request" in call("failed", "show", "ShopSpider", "zz").err


def test_failed_requests_are_retried_or_dropped_only_on_purpose(call: Call) -> None:
    call("store", "start")
    some = call("failed", "list", "ShopSpider", "--json").json["letters"][0]["id"]
    refused = call("failed", "retry", "ShopSpider", some)
    assert refused.code == 2
    assert "Put 1 failed request of ShopSpider" in refused.err
    assert "--yes" in refused.err
    assert call("status", "ShopSpider", "--json").json["dead"] == 3
    assert "1 failed request back" in call("failed", "retry", "ShopSpider", some, "--yes").out
    counts = call("status", "ShopSpider", "--json").json
    assert (counts["state"], counts["dead"], counts["queued"]) == ("running", 2, 1)
    assert "2 failed requests forgotten" in call("failed", "drop", "ShopSpider", "--all", "-y").out
    assert call("status", "ShopSpider", "--json").json["dead"] == 0
    nothing = call("failed", "drop", "ShopSpider", "--all", "-y")
    assert (nothing.code, "nothing was done" in nothing.out) == (3, True)
    assert call("failed", "retry", "ShopSpider", "zz", "--yes").code == 3


def test_a_retried_request_is_crawled_again(call: Call, folder: Path) -> None:
    call("store", "start")
    call("failed", "retry", "ShopSpider", "--all", "--yes")
    done = call("run", "shop.py:ShopSpider", "--no-progress")
    assert done.code == 0, done.err
    assert call("status", "ShopSpider", "--json").json["dead"] == 3


def test_a_run_is_reset_only_on_purpose(call: Call, folder: Path) -> None:
    call("store", "start")
    refused = call("reset", "ShopSpider")
    assert refused.code == 2
    assert "0 waiting requests, 3 failed requests, the record of 3 pages" in refused.err
    assert len(call("jobs", "--json").json) == 1
    done = call("reset", "ShopSpider", "--yes")
    assert "forgotten" in done.out
    assert "--seen" in done.err
    assert call("jobs", "--json").json == []
    site = (folder / "site").read_text()
    again = call("run", "shop.py:ShopSpider", "-a", f"site={site}", "--no-progress")
    assert again.code == 3, again.err  # all its URLs were seen
    assert call("reset", "ShopSpider", "--seen", "--yes").code == 0
    assert call("reset", "ShopSpider", "--yes").code == 2
    anew = call("run", "shop.py:ShopSpider", "-a", f"site={site}", "--no-progress")
    assert anew.code == 0, anew.err


def test_what_a_job_has_seen_can_be_forgotten_without_a_run(call: Call) -> None:
    call("store", "start")
    call("reset", "ShopSpider", "--yes")
    assert call("reset", "ShopSpider", "--seen", "--yes").code == 0
    assert "no runs" in call("jobs").out


def test_a_run_that_has_ended_is_not_stopped(call: Call) -> None:
    call("store", "start")
    assert "has ended already" in call("stop", "ShopSpider").out


def test_an_operator_stops_a_run(call: Call, folder: Path) -> None:
    call("store", "start")
    with SiteThread() as site:
        command = [sys.executable, "-m", "orbweb", "run", "shop.py:LongSpider"]
        command += ["-a", f"site={site.url}", "-s", "HEARTBEAT_INTERVAL=0.2"]
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            while not _pages(call, "LongSpider") and process.poll() is None:
                pass
            while not (nodes := call("nodes", "LongSpider", "--json").json):
                assert process.poll() is None
            table = call("nodes", "LongSpider").out
            stopped = call("stop", "LongSpider")
            _, err = process.communicate(timeout=60)
    assert [node["said"]["pid"] for node in nodes] == [process.pid]
    assert str(process.pid) in table
    assert "working" in table
    assert "1 node asked to stop" in stopped.out
    assert "undo" in stopped.err
    assert process.returncode == 75, err
    assert call("status", "LongSpider", "--json").json["pending"] > 0


def _pages(call: Call, job: str) -> int:
    answer = call("status", job, "--json")
    return answer.json["reasons"].get("done", 0) if answer.code == 0 else 0


def test_what_waits_without_a_node_is_said_with_how_to_go_on(call: Call) -> None:
    retried = call("failed", "retry", "ShopSpider", "--all", "--yes")
    assert "next: start the spider again, unless it runs" in retried.err
    stopped = call("stop", "ShopSpider")
    assert "3 requests kept" in stopped.out
    assert "undo: start the spider again; it goes on where it stopped" in stopped.err


def test_a_stopped_store_is_read_without_staying_up(call: Call) -> None:
    assert call("store", "status", "--json").json["running"] is False
    assert len(call("jobs", "--json").json) == 1
    assert call("store", "status", "--json").json["running"] is False
    assert "not running; its data is in" in call("store", "status").out


def test_the_store_stays_until_it_is_stopped(call: Call) -> None:
    assert "undo: orbweb store stop" in call("store", "start").err
    found = call("store", "status", "--json").json
    assert (found["running"], found["kept"], found["in_use"]) == (True, True, False)
    assert "is stopped" in call("store", "stop").out
    assert "no store runs here" in call("store", "stop").out


def test_items_are_folded(call: Call, folder: Path) -> None:
    items = folder / "items.jsonl"
    items.write_text(items.read_text() * 2)
    assert "3 rows kept, 3 removed" in call("items", "dedup", "items.jsonl").out
    (found,) = call("items", "dedup", "items.jsonl", "--json").json
    assert found == {"file": "items.jsonl", "kept": 3, "removed": 0}


def test_seen_urls_are_shown_forgotten_exported_and_imported(call: Call, folder: Path) -> None:
    found = call("dedup", "stats", "ShopSpider", "--json").json
    assert (found["kind"], found["over_full"], found["forgotten_hosts"]) == ("exact", False, {})
    assert f"{found['seen']} seen URLs, kind exact" in call("dedup", "stats", "ShopSpider").out
    seen = json.loads((folder / "items.jsonl").read_text().splitlines()[0])["url"]
    new = "http://shop.example/never"
    assert call("dedup", "check", "ShopSpider", seen).code == 0
    checked = call("dedup", "check", "ShopSpider", seen, new)
    assert (checked.code, checked.out) == (3, f"seen  {seen}\nnew   {new}\n")
    assert "seen URLs" in call("dedup", "export", "ShopSpider", "seen.jsonl.gz").out
    assert call("dedup", "forget", "ShopSpider", seen).out == f"forgotten  {seen}\n"
    assert call("dedup", "check", "ShopSpider", seen).code == 3
    assert "count as seen" in call("dedup", "import", "ShopSpider", "seen.jsonl.gz").out
    assert call("dedup", "check", "ShopSpider", seen).code == 0
    for place in ("/nosuch/seen.jsonl", "/dev/null"):
        refused = call("dedup", "export", "ShopSpider", place)
        assert (refused.code, place in refused.err, "Traceback" in refused.err) == (2, True, False)
    assert call("dedup", "forget", "ShopSpider", "--host", "a b", "--yes").code == 2
    host = seen.partition("?")[0].upper()  # a URL names its host
    assert "is forgotten" in call("dedup", "forget", "ShopSpider", "--host", host, "--yes").out
    assert call("dedup", "check", "ShopSpider", seen).code == 3
    old = call("dedup", "forget", "ShopSpider", "--older-than", "1d", "--yes")
    assert old.out == "0 URLs forgotten\n"
    assert "DEDUP_GENERATION was 0" in old.err
    assert "--older-than 1y" in call("dedup", "forget", "ShopSpider", "--older-than", "1y").err
    assert call("dedup", "forget", "ShopSpider").code == 2
    assert call("dedup", "stats", "Nobody").code == 2


def test_settings_say_where_they_come_from(call: Call, folder: Path) -> None:
    (folder / "orbweb.toml").write_text("DOWNLOAD_DELAY = 2.5\n")
    words = ("settings", "--spider", "shop.py:ShopSpider", "-s", "REDIS_URL=redis://:word@h:1/0")
    found = {each["name"]: each for each in call(*words, "--json").json}
    assert found["DOWNLOAD_DELAY"]["origin"] == "file orbweb.toml"
    assert found["SPIDER_MAX_RETRY_TIMES"]["origin"] == "ShopSpider.custom_settings"
    assert found["SPIDER_MAX_RETRY_TIMES"]["value"] == 0
    assert found["REDIS_URL"]["value"] == "redis://:***@h:1/0"
    assert "word" not in call(*words).out
    told = call("settings", "--explain", "DOWNLOAD_DELAY").out
    assert "DOWNLOAD_DELAY = 2.5   from: file orbweb.toml" in told
    assert "seconds" in told
    assert "no effect" in call("settings", "--explain", "DONE_CHECK_TIMES").out


def test_the_version_is_told(call: Call) -> None:
    assert call("version", "--json").json["python"] == sys.version.split()[0]
    assert call("--version").out == call("version").out


def test_doctor_finds_a_good_store(call: Call) -> None:
    found = call("doctor", "--json")
    assert found.code == 0
    verdicts = {each["check"]: each["verdict"] for each in found.json}
    assert verdicts["durability"] == verdicts["memory"] == verdicts["clock"] == "ok"
    assert "appendfsync everysec" in found.out


def test_doctor_and_run_refuse_a_server_that_would_lose_data(call: Call) -> None:
    server = Server("valkey", "--maxmemory-policy", "allkeys-lru")
    try:
        found = call("doctor", "--store", server.url, "--json")
        assert found.code == 2
        wrong = [each["text"] for each in found.json if each["verdict"] == "wrong"]
        assert len(wrong) == 1
        assert "noeviction" in wrong[0]
        refused = call("run", "shop.py:ShopSpider", "--store", server.url, "--no-progress")
        assert refused.code == 2
        assert "noeviction" in refused.err
        assert "Traceback" not in refused.err
    finally:
        server.stop()


def test_doctor_says_that_a_server_does_not_answer(call: Call) -> None:
    found = call("doctor", "--store", "redis://127.0.0.1:1", "-s", "X_NOTE=1")
    assert found.code == 2
    assert "wrong    store" in found.out


async def _open_runs(url: str, *runs: str) -> None:
    client = connect(url, 5.0)
    for run in runs:
        await ValkeyFrontier(client, prefix="orbweb", job="Twice", run=run).open(RunConfig())
    await client.aclose()


def test_of_several_runs_that_have_not_ended_it_is_said_which_is_meant(call: Call) -> None:
    call("store", "start")
    url = call("store", "status", "--json").json["url"]
    asyncio.run(_open_runs(url, "monday", ""))
    shown = call("status", "Twice", "--json")
    assert shown.json["run"] in ("monday", "")
    assert "2 runs of Twice have not ended" in shown.err
    assert "(default)" in shown.err
    assert f"this is {shown.json['run'] or '(default)'}" in shown.err
    assert "have not ended" in call("failed", "list", "Twice").err
    assert call("status", "Twice", "--run-id", "monday", "--json").err == ""
    for words in (("reset", "Twice", "--seen", "--yes"), ("failed", "drop", "Twice", "--all")):
        refused = call(*words)
        assert refused.code == 2
        assert "Say which one: --run-id ID" in refused.err
    assert call("reset", "Twice", "--run-id", "monday", "--yes").code == 0
    assert call("status", "Twice").err.count("have not ended") == 0
    assert call("reset", "Twice", "--yes").code == 0
