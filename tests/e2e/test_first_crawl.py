"""docs/first-crawl.md is followed to the letter: its files, its commands, its outputs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbweb.testing.site import SiteThread

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first-crawl.md"
SITE = "http://127.0.0.1:7273"
SECONDS = 90


class Reader:
    """A person with terminals who does what the page says."""

    def __init__(self, folder: Path, site: str) -> None:
        self.folder = folder
        self.site = site
        self.output = ""
        self.nodes: list[tuple[subprocess.Popen[bytes], int]] = []
        tools = folder / "bin"
        tools.mkdir()
        for name, words in (("orbweb", "-m orbweb"), ("python", "")):
            (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            (tools / name).chmod(0o755)
        kept = ("HOME", "PYTHONPATH", "TMPDIR", "LANG")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}
        self.environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "TERM": "xterm"}
        self.work = folder / "work"
        self.work.mkdir()

    def python(self, text: str) -> None:
        """Write the spider, or put a method in the place of its last one."""
        text, file = text.replace(SITE, self.site), self.work / "shop.py"
        if text.startswith("    def "):
            text = re.sub(r"    def parse_product.*", lambda _: text, file.read_text(), flags=re.S)
        file.write_text(text)

    def toml(self, text: str) -> None:
        (self.work / "orbweb.toml").write_text(text)

    def bash(self, text: str) -> None:
        """Run the commands; what they print is the output until the next ones."""
        self.output = ""
        for line in text.splitlines():
            if "--run-id two" in line:
                self.start_two_nodes(line)
            elif line == "kill -9 PID":
                self.kill_one_node()
            elif "orbweb.testing.site" not in line:  # the site runs already
                self.output += self.run(line)

    def text(self, text: str) -> None:
        """Each line that the page shows was printed; `…` and spaces stand for anything."""
        printed = self.output.replace(self.site, SITE)
        for line in text.splitlines():
            parts = [re.escape(part.strip()) for part in re.split(r"…|\s{2,}", line.strip())]
            assert re.search(".*".join(parts), printed), f"{line}\n--- not in:\n{printed}"

    def run(self, line: str) -> str:
        process, ours = self.start(line)
        code = self.finish(process, ours)
        assert code in ((0, 3, 75) if "orbweb run" in line else (0,)), f"{line}: {code}"
        return self.heard

    def start(self, line: str) -> tuple[subprocess.Popen[bytes], int]:
        """Start a command on a terminal of its own; gives our end of the terminal."""
        ours, its = os.openpty()
        process = subprocess.Popen(
            ["sh", "-c", f"stty cols 400; exec {line}" if line.startswith("orbweb") else line],
            cwd=self.work,
            env=self.environment,
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        return process, ours

    def finish(self, process: subprocess.Popen[bytes], ours: int) -> int:
        """Hear all that a command says, to its end."""
        heard = b""
        with open(ours, "rb", buffering=0) as terminal:
            while True:
                try:
                    part = terminal.read(65536)
                except OSError:  # Linux: the other end is closed
                    break
                if not part:
                    break
                heard += part
        text = heard.decode().replace("\r\n", "\n")
        self.heard = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", text)
        return process.wait(SECONDS)

    def start_two_nodes(self, line: str) -> None:
        self.nodes = [self.start(line) for _ in range(2)]
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            table = subprocess.run(
                ["orbweb", "nodes", "ShopSpider", "--run-id", "two", "--json"],
                cwd=self.work,
                env=self.environment,
                capture_output=True,
                text=True,
            )
            if table.returncode == 0 and len(json.loads(table.stdout)) == 2:
                return
            time.sleep(0.2)
        raise TimeoutError("the two nodes are not there")

    def kill_one_node(self) -> None:
        victim, survivor = self.nodes
        victim[0].kill()
        assert self.finish(*victim) == -9
        assert self.finish(*survivor) == 0, self.heard
        self.nodes = []

    def end(self) -> None:
        for process, ours in self.nodes:
            process.kill()
            process.wait()
            os.close(ours)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with SiteThread() as site:
        reader = Reader(tmp_path, site.url)
        yield reader
        reader.end()


@pytest.mark.timeout(300)
def test_the_tutorial_does_what_it_says(reader: Reader) -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert {kind for kind, _ in blocks} == {"bash", "python", "toml", "text"}
    for kind, text in blocks:
        getattr(reader, kind)(text)
