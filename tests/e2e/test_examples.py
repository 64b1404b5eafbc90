"""The examples crawl the demo site as they stand, but for its port."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbweb.testing.site import SiteThread

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


class Folder:
    """A copy of the examples with a site that they crawl."""

    def __init__(self, path: Path, site: str) -> None:
        self.path = path
        for file in EXAMPLES.glob("*.py"):
            text = file.read_text(encoding="utf-8")
            assert "http://127.0.0.1:7273" in text
            (path / file.name).write_text(text.replace("http://127.0.0.1:7273", site))

    def run(self, *words: str) -> None:
        kept = ("PATH", "HOME", "PYTHONPATH", "TMPDIR")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr

    def rows(self, name: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.path / name).read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with SiteThread() as site:
        yield Folder(tmp_path, site.url)


def test_news_is_the_spider_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", readme, re.S)
        if "class NewsSpider" in block
    )
    assert (EXAMPLES / "news.py").read_text(encoding="utf-8") == shown


def test_news_gets_every_article(folder: Folder) -> None:
    folder.run("news.py")
    assert len({row["url"] for row in folder.rows("items.jsonl")}) == 990


def test_air_needs_no_store(folder: Folder) -> None:
    folder.run("air.py")
    rows = folder.rows("tea.jsonl")
    assert len(rows) == len({row["name"] for row in rows}) == 30
    assert not (folder.path / ".orbweb" / "data").exists()


@pytest.mark.parametrize("words", [("items.py",), ("-m", "orbweb", "run", "items.py", "-w", "2")])
def test_items_go_into_tables_of_their_own(folder: Folder, words: tuple[str, ...]) -> None:
    folder.run(*words)
    connection = sqlite3.connect(folder.path / "shop.sqlite")
    try:
        assert connection.execute("SELECT name, pages FROM category").fetchall() == [("books", 3)]
        names = connection.execute("SELECT name FROM products").fetchall()
    finally:
        connection.close()
    assert len(names) == len(set(names)) == 30
