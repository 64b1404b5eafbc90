"""`orbweb log` reads what a real crawl has left, here and in the store."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.commands import Call, commands

from orbweb.cli import main
from orbweb.testing.site import SiteThread

SPIDER = """
import orbweb

class ShopSpider(orbweb.Spider):
    site = ""
    custom_settings = {"SPIDER_MAX_RETRY_TIMES": 0, "CRAWL_LOG_STREAM": 1000}

    def start_requests(self):
        for path in ("/flat?n=1", "/flat?n=2", "/admin", "/status?code=404&x=1"):
            yield orbweb.Request(self.site + path)
        yield orbweb.Request(self.site.replace("//", "//user:hunter2@") + "/flat?n=3")

    def parse(self, response):
        yield {"url": response.url}
"""


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("crawled")
    (folder / "shop.py").write_text(SPIDER)
    with SiteThread() as site:
        command = [sys.executable, "-m", "orbweb", "run", "shop.py", "-a", f"site={site.url}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def call(
    crawled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    with commands(crawled, monkeypatch, capsys) as call:
        yield call


@pytest.mark.parametrize("where", [(), ("--in-store",)], ids=["files", "store"])
def test_every_outcome_is_a_line(call: Call, where: tuple[str, ...]) -> None:
    answer = call("log", "ShopSpider", "--json", *where)
    assert answer.code == 0, answer.err
    found = sorted((line["kind"], line["reason"]) for line in answer.lines)
    assert found == [
        ("done", "done"),
        ("done", "done"),
        ("done", "done"),
        ("dropped", "robots_disallowed"),
        ("failed", "status_rejected"),
    ]
    times = [line["time"] for line in answer.lines]
    assert times == sorted(times)
    assert all(line["items"] == 1 for line in answer.lines if line["kind"] == "done")


def test_passwords_are_masked_in_text_and_in_json(call: Call) -> None:
    for words in ((), ("--json",), ("--json", "--in-store")):
        answer = call("log", "ShopSpider", *words)
        assert "flat?n=3" in answer.out
        assert "hunter2" not in answer.out


def test_people_see_what_happened_and_why(call: Call) -> None:
    answer = call("log", "--reason", "failed")
    assert "failed status_rejected    404" in answer.out
    assert "HTTP status 404" in answer.out
    answer = call("log", "--count")
    assert answer.out.splitlines()[1].split() == ["done", "done", "3"]


def test_lines_are_chosen(call: Call) -> None:
    assert len(call("log", "--json", "-n", "2").lines) == 2
    assert len(call("log", "--json", "--status", "4xx").lines) == 1
    assert len(call("log", "--json", "--since", "1h", "--url", "*n=2").lines) == 1
    assert call("log", "--json", "--until", "1h").lines == []
    assert call("log", "Other").out == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--status", "40"), "404 or 5xx"),
        (("--since", "soon"), "30m, 2h or 1d"),
        (("--reason", "nonsense"), "Kinds of lines: done"),
        (("--in-store",), "orbweb log JOB --in-store"),
        (("-s", "CRAWL_LOG_DIR=elsewhere"), "there is no crawl log in"),
    ],
)
def test_a_wrong_word_says_what_would_be_right(
    call: Call, words: tuple[str, ...], says: str
) -> None:
    answer = call("log", *words)
    assert answer.code == 2
    assert says in answer.err


@pytest.mark.parametrize("where", [(), ("--in-store",)], ids=["files", "store"])
def test_following_shows_lines_of_a_run_that_begins_later(
    crawled: Path, tmp_path: Path, where: tuple[str, ...]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(crawled, folder, ignore=lambda _, names: [n for n in names if "sock" in n])
    command = [sys.executable, "-m", "orbweb", "log", "ShopSpider", "--follow", "--json"]
    command += ["-n", "1", *where]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        stuck = threading.Timer(60, follower.kill)
        stuck.start()
        assert json.loads(follower.stdout.readline())["job"] == "ShopSpider"
        with SiteThread() as site:
            run = [sys.executable, "-m", "orbweb", "run", "shop.py", "--fresh"]
            run += ["-a", f"site={site.url}", "-s", "LOG_LEVEL=ERROR"]
            subprocess.run(run, cwd=folder, capture_output=True, check=True)
            found = {json.loads(follower.stdout.readline())["host"] for _ in range(5)}
        follower.send_signal(signal.SIGINT)  # a killed one would leave its server running
        stuck.cancel()
    assert found == {site.url.partition("//")[2]}


AIR = """
import orbweb

class Air(orbweb.AirSpider):
    site = ""
    custom_settings = {"SPIDER_MAX_RETRY_TIMES": 0}

    def start_requests(self):
        for path in ("/flat?n=1", "/admin", "/status?code=404&x=1"):
            yield orbweb.Request(self.site + path)

    def parse(self, response):
        yield {"url": response.url}
"""


def test_a_crawl_without_a_store_is_explained_by_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "air.py").write_text(AIR)
    with SiteThread() as site:
        command = [sys.executable, "-m", "orbweb", "run", "air.py", "-a", f"site={site.url}"]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORBWEB_REDIS_URL", raising=False)
    found = {}
    for path in ("/flat?n=1", "/admin", "/status?code=404&x=1", "/never"):
        monkeypatch.setattr(sys, "argv", ["orbweb", "explain", f"{site.url}{path}", "--json"])
        with pytest.raises(SystemExit):
            main()
        (record,) = json.loads(capsys.readouterr().out)
        found[path] = record["reason"]
    assert found == {
        "/flat?n=1": "done",
        "/admin": "robots_disallowed",
        "/status?code=404&x=1": "status_rejected",
        "/never": "never_discovered",
    }


def test_a_directory_without_anything_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORBWEB_REDIS_URL", raising=False)
    monkeypatch.setattr(sys, "argv", ["orbweb", "explain", "http://shop.test/"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "neither a store here nor a crawl log" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
