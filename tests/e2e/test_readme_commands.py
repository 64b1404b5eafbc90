"""The spider of the README crawls, and every command that the documents name can be typed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import typer

from orbweb.cli.app import app
from orbweb.testing.site import SiteThread

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").glob("*.md"))]


def command_lines(text: str) -> list[str]:
    """Commands in shell blocks and in backticks; `…` and bare names are no commands."""
    blocks = re.findall(r"```(?:bash|console|sh)\n(.*?)```", text, re.S)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(orbweb [a-z][^`\n]*)`", text)
    return [line for line in lines if line.startswith("orbweb ")]


def parse(line: str) -> None:
    """Read a command line as the program would, without running it."""
    words = shlex.split(line, comments=True)[1:]
    command: Any = typer.main.get_command(app)
    path = ["orbweb"]
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, f"{line}: there is no command {words[0]}"
        command = command.commands[words[0]]
        path.append(words.pop(0))
    if not hasattr(command, "commands") and words:
        command.make_context(" ".join(path), words)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_in_the_documents_exists_with_its_options(path: Path) -> None:
    lines = [
        line
        for line in command_lines(path.read_text(encoding="utf-8"))
        if not re.search(r"\b(COMMAND|OPTIONS)\b|\||…", line)
    ]
    assert lines
    for line in lines:
        parse(line)


def test_every_command_that_an_alert_names_exists() -> None:
    rules = files("orbweb.metrics").joinpath("shipped", "rules", "orbweb.rules.yml")
    texts = re.findall(r'^ *(?:action|undo): "(.*)"$', rules.read_text("utf-8"), re.MULTILINE)
    commands = [
        re.split(r"[;(]| \(", line)[0].strip()
        for text in texts
        for line in re.findall(r"orbweb [^;]+", text)
    ]
    assert len(commands) > 20
    for line in commands:
        parse(re.sub(r"\{\{.*?\}\}|RATE", "1/s", line))


def write_spider(page: Path, name: str, file: Path, site: SiteThread) -> None:
    """The block of a page that has this class, as a file."""
    (source,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
        if f"class {name}" in block
    )
    file.write_text(source.replace("http://127.0.0.1:7273", site.url))


def shell(folder: Path, *words: str) -> str:
    kept = ("PATH", "HOME", "PYTHONPATH", "TMPDIR")
    done = subprocess.run(
        [sys.executable, "-m", "orbweb", *words],
        cwd=folder,
        env={name: os.environ[name] for name in kept if name in os.environ},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_spider_of_the_readme_crawls_as_it_stands(tmp_path: Path) -> None:
    with SiteThread() as site:
        write_spider(ROOT / "README.md", "NewsSpider", tmp_path / "news.py", site)
        shell(tmp_path, "run", "news.py", "-w", "2", "-o", "news.csv")
        assert "1 089 pages, 990 items" in shell(tmp_path, "status", "NewsSpider")
        assert "no failed requests" in shell(tmp_path, "failed", "list", "NewsSpider")
    assert len((tmp_path / "news.csv").read_text().splitlines()) == 1 + 990


def test_the_spider_of_the_page_about_spiders_crawls_as_it_stands(tmp_path: Path) -> None:
    with SiteThread() as site:
        write_spider(ROOT / "docs" / "spiders.md", "QuoteSpider", tmp_path / "quotes.py", site)
        shell(tmp_path, "run", "quotes.py:QuoteSpider", "-a", "tag=love")
    rows = [json.loads(line) for line in (tmp_path / "quotes.jsonl").read_text().splitlines()]
    assert len({row["url"] for row in rows}) == len(rows) == 30
    assert {row["tag"] for row in rows} == {"love"}
    assert all(row["text"] for row in rows)
