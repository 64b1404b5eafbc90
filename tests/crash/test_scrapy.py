"""Scrapy workers in real processes: killed, told to stop, left without a store."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.crash.fleet import Node
from tests.servers import Server

from orbweb.testing.pages import Tree
from orbweb.testing.site import OriginLog, SiteThread

WORKER = Path(__file__).with_name("scrapy_worker.py")


@pytest.fixture
def store() -> Iterator[Server]:
    server = Server("valkey", aof="everysec")
    yield server
    server.stop()


class ScrapyFleet:
    """Workers of one spider, one site, one store."""

    def __init__(self, directory: Path, store: Server, pages: int, latency: float = 0.02) -> None:
        self.directory = directory
        self.pages = pages
        self.log = directory / "origin.jsonl"
        self.items = directory / "items.jsonl"
        self.site = SiteThread(log=self.log, latency_seconds=latency)
        self.workers: list[Node] = []
        self.environment = {
            **{key: os.environ[key] for key in ("PATH", "HOME", "PYTHONPATH") if key in os.environ},
            "PYTHONUNBUFFERED": "1",
            "STORE": store.url,
            "ITEMS": str(self.items),
            "PAGES": str(pages),
        }

    def __enter__(self) -> ScrapyFleet:
        self.site.start()
        self.environment["SITE"] = self.site.url
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            if worker.running:
                worker.kill()
        self.site.stop()

    def start(self, spider: str = "tree", **settings: object) -> Node:
        settings = {"ORBWEB_LEASE": 3, "ORBWEB_RUN_ID": "night", **settings}
        words = [f"{name}={value}" for name, value in settings.items()]
        command = [sys.executable, str(WORKER), spider, *words]
        worker = Node(command, self.directory, self.environment)
        self.workers.append(worker)
        return worker

    def origin(self) -> OriginLog:
        return OriginLog.read(self.log)

    def until(self, hits: int, seconds: float = 60) -> None:
        self.until_true(lambda: len(self.origin()) >= hits, seconds)

    def until_true(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = "\n".join(worker.text()[-3000:] for worker in self.workers)
                raise AssertionError(f"{len(self.origin())} hits after {seconds} s\n{logs}")
            time.sleep(0.02)

    def missing(self) -> set[str]:
        """Pages that were never asked for."""
        asked = self.origin().counts()
        return {url for url in map(Tree(of=self.pages).url, range(self.pages)) if url not in asked}

    def missing_items(self) -> set[str]:
        found = {json.loads(line)["item"] for line in self.items.read_text().splitlines()}
        return {f"{n}-0" for n in range(self.pages)} - found


def finish_reason(worker: Node) -> str:
    found = re.search(r"'finish_reason': '(\w+)'", worker.text())
    assert found, worker.text()[-3000:]
    return found[1]


KILLS = [
    pytest.param(200, 2, id="2 kills"),
    pytest.param(4000, 8, id="8 kills", marks=[pytest.mark.long, pytest.mark.timeout(400)]),
]


@pytest.mark.parametrize(("pages", "kills"), KILLS)
def test_kills_lose_no_page_and_no_item(
    tmp_path: Path, store: Server, pages: int, kills: int
) -> None:
    rng = random.Random(7)
    with ScrapyFleet(tmp_path, store, pages) as fleet:
        workers = [fleet.start(), fleet.start()]
        fleet.until(20)
        for _ in range(kills):
            time.sleep(rng.uniform(0.2, 0.8))
            victim = rng.randrange(2)
            workers[victim].kill()
            workers[victim] = fleet.start()
        assert [worker.wait(300) for worker in workers] == [0, 0]
        assert [finish_reason(worker) for worker in workers] == ["finished", "finished"]
        assert not fleet.missing()
        assert not fleet.missing_items()
        assert fleet.origin().repeats() <= kills * 64  # what a worker may hold


def test_a_store_that_is_killed_and_comes_back_loses_no_page(tmp_path: Path, store: Server) -> None:
    with ScrapyFleet(tmp_path, store, 200) as fleet:
        workers = [fleet.start(), fleet.start()]
        client = store.client()
        fleet.until_true(  # one that begins without a store ends with an error
            lambda: any(client.zcard(key) == 2 for key in client.scan_iter(match="*:nodes"))
        )
        for hits in (30, 100):
            fleet.until(hits)
            store.kill()
            time.sleep(1.0)
            store.start()
        assert [worker.wait(60) for worker in workers] == [0, 0]
        assert [finish_reason(worker) for worker in workers] == ["finished", "finished"]
        assert not fleet.missing()
        assert not fleet.missing_items()


def test_a_worker_whose_store_is_gone_ends_when_it_is_told_to(
    tmp_path: Path, store: Server
) -> None:
    with ScrapyFleet(tmp_path, store, 200) as fleet:
        worker = fleet.start(ORBWEB_GIVE_UP=3)
        fleet.until(30)
        store.kill()
        time.sleep(0.5)
        worker.signal(signal.SIGTERM)
        told = time.monotonic()
        worker.wait(30)
        assert time.monotonic() - told < 15
        assert "done again" in worker.text()
        store.start()
        assert fleet.start().wait(60) == 0
        assert not fleet.missing()
        assert not fleet.missing_items()
