"""A run that is gone under its nodes: whoever judges hears of it, unless an operator did it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.servers import Server

import orbweb as mw
from orbweb.engine.report import RunReport
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.base import RunConfig
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.operator import Author
from orbweb.frontier.servers import OneServer
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.sources import MemoryBatchStore
from orbweb.spiders.start import Start
from orbweb.testing.site import SiteThread

KEYS = ShardKeys("orbweb")

QUICK: dict[str, Any] = {
    "HEARTBEAT_INTERVAL": 0.1,
    "SPIDER_TASK_LEASE": 1,
    "BATCH_INTERVAL": "0.000001",
    "TASK_POLL_INTERVAL": 0.05,
    "ITEM_PIPELINES": (),
    "QUALITY_ENABLE": False,
    "WARNING_ENABLE": True,
}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with SiteThread() as running:
        yield running.url


class Losing:
    """Has its run taken away as soon as a page is there."""

    custom_settings: ClassVar = QUICK
    redis_key = "Losing"
    url = store = how = ""
    is_taken = False

    def parse(self, request: Any, response: Any, **_: Any) -> None:
        if self.is_taken:
            return
        self.is_taken = True
        another = threading.Thread(target=lambda: asyncio.run(self.take()))
        another.start()
        another.join()

    async def take(self) -> None:
        servers = OneServer(self.store)
        try:
            if self.how == "flush":
                await servers.of_shard(0).flushall()
                return
            admin = Admin(servers, "orbweb")
            (info,) = await admin.runs()
            author = Author("li", "too old") if self.how == "operator" else None
            await admin.reset(info, seen=False, author=author)
        finally:
            await servers.aclose()


class Plain(Losing, mw.Spider):
    def start_requests(self) -> Any:
        for n in range(300):
            yield mw.Request(f"{self.url}/flat?n={n}&delay=0.05")


class Batch(Losing, mw.BatchSpider):
    def task_requests(self, task: Any) -> Any:
        yield mw.Request(task["url"], callback=self.parse)


def lose(kind: str, how: str, server: Server, site: str, directory: Path) -> RunReport:
    if kind == "plain":
        spider: Any = Plain()
    else:
        rows = [{"id": n, "url": f"{site}/flat?n={n}&delay=0.05"} for n in range(300)]
        spider = Batch(batch_store=MemoryBatchStore(rows))
    spider.url, spider.store, spider.how = site, server.url, how
    is_batch = kind == "batch"
    overrides = {"REDIS_URL": server.url}
    start = Start(directory=directory, overrides=overrides, monitor=is_batch, once=is_batch)
    report = spider.run(start)
    assert isinstance(report, RunReport)
    return report


def noted(server: Server) -> list[bytes]:
    return sorted(server.client().hkeys(KEYS.alerts("lost")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "name"), [("plain", b"Losing/"), ("batch", b"Losing/batch-1")], ids=["plain", "batch"]
)
def test_a_node_whose_run_is_gone_leaves_a_note(
    kind: str, name: bytes, server: Server, site: str, tmp_path: Path
) -> None:
    report = lose(kind, "flush", server, site, tmp_path)
    assert (report.exit_code, report.run_lost) == (1, True)
    assert noted(server) == [name]


@pytest.mark.parametrize("kind", ["plain", "batch"])
def test_a_reset_by_an_operator_is_no_alarm_and_the_log_says_who_it_was(
    kind: str,
    server: Server,
    site: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("orbweb"), "propagate", True)
    monkeypatch.setattr("orbweb.spiders.build.configure_log", lambda _: None)
    monkeypatch.setattr("orbweb.spiders.build_batch.configure_log", lambda _: None)
    report = lose(kind, "operator", server, site, tmp_path)
    assert report.run_lost
    assert "was reset by li (too old)" in caplog.text
    assert "marked as done. This node stops; the run did not end." in caplog.text
    assert noted(server) == []


def test_a_reset_that_nobody_answers_for_leaves_a_note(
    server: Server, site: str, tmp_path: Path
) -> None:
    assert lose("plain", "nobody", server, site, tmp_path).run_lost
    assert noted(server) == [b"Losing/"]


async def test_a_reset_stands_in_the_audit_trail_and_names_the_incarnation(server: Server) -> None:
    servers = OneServer(server.url)
    admin = Admin(servers, "orbweb")
    frontier = ValkeyFrontier(servers.of_shard(0), prefix="orbweb", job="Shop", run="r1")
    try:
        epochs: list[str] = []
        for _ in range(2):
            opened = await frontier.open(RunConfig())
            epochs.append(opened.epoch)
            info = RunInfo("Shop", "r1", opened.epoch, opened.status)
            await admin.reset(info, seen=False, author=Author("li", f"act {len(epochs)}"))
        acts = [await admin.reset_by("Shop", "r1", epoch) for epoch in epochs]
        assert [act and act.why for act in acts] == ["act 1", "act 2"]
        assert await admin.reset_by("Shop", "r1", "another") is None
        assert [line.verb for line in await admin.hosts.trail()] == ["reset", "reset"]
    finally:
        await servers.aclose()
