"""`orbweb run` and `orbweb demo`, as people and programs use them: real processes, a real site."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orbweb.frontier.embedded import EmbeddedStore
from orbweb.testing.site import OriginLog, SiteThread

SPIDER = """
import orbweb
from orbweb.testing.pages import Tree

class TreeSpider(orbweb.Spider):
    url = ""
    pages = "40"

    def start_requests(self):
        for path in Tree(int(self.pages)).root_urls():
            yield orbweb.Request(self.url + path)

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all(css="a")

class AirTree(orbweb.AirSpider):
    start_requests = TreeSpider.start_requests
    parse = TreeSpider.parse
    url = ""
    pages = "40"
"""
SUMMARY = "ORBWEB_RUN_SUMMARY "
FIRST_ITEM_SECONDS = 3.0


class Shell:
    """Runs commands in one directory, as a user would."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[subprocess.Popen[str]] = []
        kept = ("PATH", "HOME", "PYTHONPATH", "TMPDIR")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}
        (directory / "tree.py").write_text(SPIDER)

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "orbweb", *words],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """End what a failed test has left."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=30)

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=90)
        assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(words, code, out, err)

    def rows(self, name: str) -> list[dict[str, Any]]:
        path = self.directory / name
        return [json.loads(line) for line in path.read_text().splitlines()]


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = [line for line in done.stdout.splitlines() if line.startswith(SUMMARY)]
    assert len(lines) == 1, done.stdout
    found: dict[str, Any] = json.loads(lines[0].removeprefix(SUMMARY))
    return found


def wait_for(what: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.end()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SiteThread]:
    with SiteThread(log=tmp_path / "origin.jsonl", latency_seconds=0.02) as site:
        yield site


def worker_pids(shell: Shell) -> list[int]:
    """Process ids that the log names, when both workers have started."""
    log = shell.directory / "log"
    found = (
        re.findall(r"worker_started worker=\d+ pid=(\d+)", log.read_text()) if log.exists() else ()
    )
    return [int(pid) for pid in found] if len(found) >= 2 else []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def urls(rows: list[dict[str, Any]]) -> list[str]:
    return [row["url"] for row in rows]


@pytest.mark.alone
def test_the_demo_crawls_a_shop_anew_each_time(shell: Shell) -> None:
    first = shell("demo")
    assert "180 items" in first.stderr
    assert "200 pages" in first.stderr
    assert "1 failed" in first.stderr
    assert "robots_disallowed 1" in first.stderr
    assert "orbweb failed list DemoSpider" in first.stderr
    assert len(shell.rows("demo.jsonl")) == 180
    begun = time.monotonic()
    old = (shell.directory / "demo.jsonl").stat().st_size
    second = shell.start("demo")
    file = shell.directory / "demo.jsonl"
    wait_for(lambda: 0 < file.stat().st_size < old or second.poll() is not None)
    assert second.poll() is None
    assert time.monotonic() - begun < 2 * FIRST_ITEM_SECONDS  # twice the promise, for busy machines
    assert "180 items" in second.communicate(timeout=60)[1]
    assert len(shell.rows("demo.jsonl")) == 180
    runs = json.loads(shell("jobs", "--json").stdout)
    assert [run["state"] for run in runs] == ["done", "done"]


def test_a_new_run_empties_the_file_and_a_resumed_one_does_not(
    shell: Shell, site: SiteThread
) -> None:
    run = ("run", "tree.py:TreeSpider", "-a", f"url={site.url}", "-O", "out.jsonl")
    (shell.directory / "out.jsonl").write_text('{"url":"old"}\n')
    early = shell(*run, "--fresh", "--stop-after", "10", code=75)
    assert summary(early)["state"] == "stopped"
    some = urls(shell.rows("out.jsonl"))
    assert 10 <= len(some) < 40
    assert "old" not in some
    done = summary(shell(*run, "--resume"))
    assert done["run"]["pages"] == 40
    assert len(set(urls(shell.rows("out.jsonl")))) == len(shell.rows("out.jsonl")) == 40
    nothing = shell(*run, "--resume", code=3)
    assert "nothing to resume" in nothing.stderr
    joined = shell(*run, "--run-id", done["run_id"], code=3)
    assert "40 pages" in joined.stderr
    assert len(shell.rows("out.jsonl")) == 40
    shell(*run, "--fresh")
    assert len(shell.rows("out.jsonl")) == 40


def test_items_are_appended_to_csv(shell: Shell, site: SiteThread) -> None:
    run = ("run", "tree.py:AirTree", "-a", f"url={site.url}", "-a", "pages=5", "-o", "out.csv")
    shell(*run)
    shell(*run)
    lines = (shell.directory / "out.csv").read_text().splitlines()
    assert lines[0] == "url,_key"
    assert len(lines) == 1 + 2 * 5
    assert not (shell.directory / "items.jsonl").exists()


def test_a_killed_worker_is_started_again_and_nothing_is_lost(
    shell: Shell, site: SiteThread
) -> None:
    process = shell.start(
        *("run", "tree.py:TreeSpider", "-w", "2", "-a", f"url={site.url}", "-a", "pages=400"),
        *("-s", "SPIDER_TASK_LEASE=2", "-O", "out.jsonl", "--logfile", "log"),
    )
    out = shell.directory / "out.jsonl"
    wait_for(lambda: out.exists() and out.stat().st_size > 0)
    os.kill(wait_for(lambda: worker_pids(shell))[0], signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 0, stderr
    assert "worker_crashed worker=1" in stderr
    assert 'how="killed by SIGKILL"' in stderr
    found = summary(subprocess.CompletedProcess((), 0, stdout, stderr))
    assert found["workers"] == 2
    assert found["run"]["pages"] == 400
    shell("items", "dedup", "out.jsonl")
    assert sorted(set(urls(shell.rows("out.jsonl")))) == sorted(urls(shell.rows("out.jsonl")))
    assert len(shell.rows("out.jsonl")) == 400
    assert len(OriginLog.read(shell.directory / "origin.jsonl").under("/tree").counts()) == 400


def test_a_signal_reaches_all_workers(shell: Shell, site: SiteThread) -> None:
    run = ("run", "tree.py:TreeSpider", "-w", "2", "-a", f"url={site.url}", "-a", "pages=300")
    process = shell.start(*run, "-O", "out.jsonl", "--logfile", "log")
    out = shell.directory / "out.jsonl"
    wait_for(lambda: out.exists() and out.stat().st_size > 0)
    process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75, stderr
    assert time.monotonic() - begun < 10
    assert not any(alive(pid) for pid in worker_pids(shell))
    shell(*run, "-O", "out.jsonl")
    assert len(set(urls(shell.rows("out.jsonl")))) == 300


def test_a_callback_that_blocks_the_loop_does_not_hold_up_a_signal(
    shell: Shell, site: SiteThread
) -> None:
    (shell.directory / "stuck.py").write_text(
        "import time, orbweb\n"
        "class Stuck(orbweb.AirSpider):\n"
        "    async def parse(self, response):\n"
        "        print('stuck', flush=True)\n"
        "        time.sleep(60)\n"
        f"    start_urls = ['{site.url}/flat?n=1']\n"
    )
    process = shell.start("run", "stuck.py", "-s", "GRACEFUL_TIMEOUT=0.5")
    assert process.stdout
    assert process.stdout.readline() == "stuck\n"
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert time.monotonic() - sent < 10


def test_closed_streams_are_no_sockets(shell: Shell, site: SiteThread) -> None:
    command = [sys.executable, "-m", "orbweb", "run", "tree.py:TreeSpider", "-a", f"url={site.url}"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command],
        cwd=shell.directory,
        env=shell.environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert len(shell.rows("items.jsonl")) == 40


def test_a_signal_while_the_store_starts_leaves_no_server_behind(
    shell: Shell, site: SiteThread
) -> None:
    process = shell.start("run", "tree.py:TreeSpider", "-a", f"url={site.url}")
    wait_for((shell.directory / ".orbweb" / "start.lock").exists)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 75, err
    assert SUMMARY in out
    assert not EmbeddedStore(shell.directory).status().running


def test_a_spider_file_that_fails_is_a_crash_of_every_worker(shell: Shell) -> None:
    (shell.directory / "bad.py").write_text("1 / 0\n")
    done = shell("run", "bad.py", code=1)
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run", "tree.py"), "several spiders (TreeSpider, AirTree)"),
        (("run", "nothing.py"), "there is no file nothing.py"),
        (("run", "tree.py:AirTree", "-w", "2"), "AirSpider"),
        (("run", "tree.py:AirTree", "-O", "items.json"), "items.jsonl"),
        (("run", "tree.py:AirTree", "-O", "tree.py/x.csv"), "tree.py/x.csv"),
        (("run", "tree.py:AirTree", "-s", "DOWNLOAD_DELY=1"), "did you mean DOWNLOAD_DELAY"),
        (("run", "tree.py:AirTree", "-s", "DOWNLOAD_DELAY=much"), "a number is wanted"),
        (("run", "tree.py:AirTree", "-s", "no"), "NAME=VALUE"),
        (("run", "tree.py:TreeSpider", "--store", "redis://127.0.0.1:1"), "127.0.0.1:1"),
        (("run", "tree.py:TreeSpider", "--store", "http://127.0.0.1:1"), "REDIS_URL"),
        (("jobs", "--store", "redis://:secret@127.0.0.1:1/0"), "127.0.0.1:1"),
        (("jobs",), "there is no store here"),
        (("status", "Tree"), "there is no store here"),
        (("failed", "drop", "Tree"), "--all"),
        (("settings", "--explain", "DOWNLOAD_DELY"), "did you mean DOWNLOAD_DELAY"),
    ],
)
def test_mistakes_are_one_clear_line(shell: Shell, words: tuple[str, ...], text: str) -> None:
    done = shell(*words, code=2)
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not (shell.directory / ".orbweb").exists()
