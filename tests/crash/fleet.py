"""Real nodes in real processes against a real site: started, killed, judged by the origin's log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from orbweb.testing.site import OriginLog, SiteThread

SPIDERS = Path(__file__).with_name("spiders.py")


class Node:
    """One worker process. Its output goes to a file."""

    def __init__(self, command: list[str], directory: Path, environment: dict[str, str]) -> None:
        directory.mkdir(exist_ok=True)
        self.output = directory / f"node-{time.monotonic_ns()}.log"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=directory, env=environment, stdout=output, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float = 60) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR2)
            time.sleep(0.5)
            raise AssertionError(
                f"still running after {seconds} s:\n{self.text()[-6000:]}"
            ) from None

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def summary(self) -> dict[str, object]:
        for line in reversed(self.text().splitlines()):
            if line.startswith("ORBWEB_RUN_SUMMARY "):
                found: dict[str, object] = json.loads(line.partition(" ")[2])
                return found
        raise AssertionError(f"no summary in:\n{self.text()[-3000:]}")


class Fleet:
    """Nodes of one job in one directory. Settings are given as in the environment."""

    def __init__(
        self, directory: Path, spider: str, *, script: Path = SPIDERS, **settings: object
    ) -> None:
        self.script = script
        self.directory = directory
        self.spider = spider
        self.log = directory / "origin.jsonl"
        self.latency = float(str(settings.pop("latency", 0)))
        self.nodes: list[Node] = []
        self._read_bytes = self._asked = 0
        hosts = int(str(settings.get("HOSTS", 1)))
        self.site = SiteThread(
            log=self.log,
            latency_seconds=self.latency,
            also_on=[f"127.0.0.{n}" for n in range(2, hosts + 1)],
        )
        self.environment = {
            **{key: os.environ[key] for key in ("PATH", "HOME", "PYTHONPATH") if key in os.environ},
            "PYTHONUNBUFFERED": "1",
            **{key: str(value) for key, value in settings.items()},
        }

    def __enter__(self) -> Fleet:
        self.site.start()
        self.environment["SITE"] = self.site.url
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            if node.running:
                node.kill()
        self.site.stop()
        if not self.environment.get("ORBWEB_REDIS_URL"):
            self.store("stop")

    def store(self, verb: str) -> None:
        """`orbweb store start|stop` on the embedded server of this directory."""
        subprocess.run(
            [sys.executable, "-m", "orbweb", "store", verb],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            check=False,
        )

    def orbweb(self, *words: str) -> str:
        """What a command prints here, which must succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "orbweb", *words],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *arguments: str, **settings: object) -> Node:
        environment = self.environment | {key: str(value) for key, value in settings.items()}
        command = [sys.executable, str(self.script), self.spider, *arguments]
        node = Node(command, self.directory, environment)
        self.nodes.append(node)
        return node

    def origin(self) -> OriginLog:
        """What the site was asked, without robots.txt."""
        return OriginLog.read(self.log).where(lambda hit: hit.path != "/robots.txt")

    def asked(self) -> int:
        """How many requests the site has answered, robots.txt aside. Reads only what is new."""
        if self.log.exists():
            with self.log.open("rb") as log:
                log.seek(self._read_bytes)
                lines = log.read().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith(b"\n")]
            self._read_bytes += sum(map(len, whole))
            self._asked += sum(b'"/robots.txt"' not in line for line in whole)
        return self._asked

    def until(self, pages: int, seconds: float = 60) -> None:
        """Wait until the site has answered that many requests."""
        self.until_true(lambda: self.asked() >= pages, seconds, f"{pages} pages")

    def until_true(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Look until it is true, for at most a fifth of the time: the nodes need the machine."""
        end = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            if condition():
                return
            now = time.monotonic()
            if now > end:
                logs = "\n".join(node.text()[-2000:] for node in self.nodes)
                raise AssertionError(f"no {what} after {seconds} s; {self.asked()} hits\n{logs}")
            time.sleep(max(0.02, 4 * (now - began)))

    def rows(self, table: str = "items") -> list[dict[str, object]]:
        """The stored rows, folded by `orbweb items dedup`."""
        path = self.directory / f"{table}.jsonl"
        self.orbweb("items", "dedup", str(path))
        return [json.loads(line) for line in path.read_text().splitlines()]
