"""`orbweb new`, and batches as people see them: run, list, refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbweb.testing import shop
from orbweb.testing.site import SiteThread

FAST = ("-s", "SPIDER_RETRY_INTERVAL=0.1", "-s", "TASK_POLL_INTERVAL=0.2")


class Shell:
    """Commands in a directory, with a site."""

    def __init__(self, directory: Path, site: str) -> None:
        self.directory = directory
        self.site = ("-a", f"site={site}")
        kept = ("PATH", "HOME", "PYTHONPATH", "TMPDIR")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "orbweb", *words, code=code)

    def python(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with SiteThread() as site:
        yield Shell(tmp_path, site.url)


def test_a_new_batch_spider_runs_at_once(shell: Shell) -> None:
    said = shell("new", "shop", "--batch").stderr
    assert "orbweb run shop.py --monitor --once" in said
    shell.directory /= "shop"
    assert "181 tasks are in tasks.db" in shell.python("make_tasks.py").stdout
    assert "no batch of ShopSpider was opened" in shell("batches", "shop.py").stdout
    once = ("run", "shop.py", *shell.site, *FAST, "--monitor", "--once")
    done = shell(*once, "-w", "2")
    assert '"run_id": "batch-1"' in done.stdout
    items = [
        json.loads(line) for line in (shell.directory / "items.jsonl").read_text().splitlines()
    ]
    assert sorted(item["id"] for item in items) == [
        n for n in range(1, shop.PRODUCTS + 1) if n != shop.FAILING
    ]
    (batch,) = json.loads(shell("batches", "shop.py", "--json").stdout)
    assert (batch["number"], batch["state"]) == (1, "done")
    assert batch["counts"] == {"total": 181, "todo": 0, "doing": 0, "done": 180, "failed": 1}
    listed = shell("batches", "shop.py").stdout
    assert "they come every hour; the next is due 20" in listed
    assert "no batch is due before" in shell(*once, code=3).stderr
    assert "180 pages" in shell("status", "ShopSpider").stdout
    assert (
        "no batch is open"
        in shell("run", "shop.py", *shell.site, "-s", "TASK_EXHAUST_POLLS=1", code=3).stderr
    )


def test_a_new_spider_runs_at_once(shell: Shell) -> None:
    shell("new", "my-shop")
    shell.directory /= "my-shop"
    shell("run", "my_shop", *shell.site, *FAST)
    rows = (shell.directory / "items.jsonl").read_text().splitlines()
    assert len(rows) == shop.GOOD_PRODUCTS


def test_a_new_task_spider_runs_at_once(shell: Shell) -> None:
    shell("new", "shop", "--task")
    shell.directory /= "shop"
    tasks = "".join(
        json.dumps({"id": number, "category": shop.category_of(number)}) + "\n"
        for number in (1, 2, 3)
    )
    (shell.directory / "ids.jsonl").write_text(tasks)
    refused = shell("tasks", "push", "shop.py", "ids.jsonl", code=2).stderr
    assert "shop.py is a file" in refused
    shell("tasks", "push", "ShopSpider", "ids.jsonl")
    shell("run", "shop.py", *shell.site, *FAST)
    rows = (shell.directory / "items.jsonl").read_text().splitlines()
    assert sorted(json.loads(row)["id"] for row in rows) == [1, 2, 3]


def test_new_refuses_what_is_there_and_what_is_no_name(shell: Shell) -> None:
    shell("new", "shop")
    assert "is there already" in shell("new", "shop", code=2).stderr
    assert "no good name" in shell("new", "7shops", code=2).stderr
    assert "exclude each other" in shell("new", "x", "--batch", "--task", code=2).stderr


def test_options_that_do_not_fit_are_refused(shell: Shell) -> None:
    shell("new", "shop", "--batch")
    shell("new", "plain")
    shell.directory /= "shop"
    run = ("run", "shop.py")
    assert "--once goes with --monitor" in shell(*run, "--once", code=2).stderr
    assert "the batch is the run" in shell(*run, "--fresh", code=2).stderr
    assert "no table shop_task" in shell(*run, code=2).stderr
    assert "is no BatchSpider" in shell("batches", "../plain/spiders/plain.py", code=2).stderr
    plain = shell("run", "../plain/spiders/plain.py", "--monitor", code=2)
    assert "--monitor is for a BatchSpider" in plain.stderr


def test_an_item_class_is_written_for_a_table(shell: Shell) -> None:
    shell("new", "shop", "--batch")
    shell.directory /= "shop"
    shell.python("make_tasks.py")
    source = shell("genitem", "--from-sql", "sqlite:///tasks.db", "--table", "shop_task").stdout
    assert "class ShopTaskItem(mw.Item):" in source
    assert "    category: str  # TEXT" in source
    assert "say where the table is" in shell("genitem", "--table", "shop_task", code=2).stderr
