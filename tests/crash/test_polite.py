"""What hosts see of two jobs with two nodes each, and of all that can befall them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from tests.crash.fleet import Fleet, Node
from tests.servers import Server

from orbweb.frontier.admin import Admin
from orbweb.frontier.servers import OneServer
from orbweb.testing.origin import OriginLog

SPIDERS = Path(__file__).with_name("spiders.py")
ROOT = Path(__file__).parents[2]
HOSTS = 50
DELAY = 0.2
CONCURRENCY = 2
LATENCY = 0.05
TOLERANCE = 0.005


@contextmanager
def origin(log: Path) -> Iterator[int]:
    """The port of the measuring site, a process of its own."""
    command = [sys.executable, "-m", "tests.crash.polite_origin", str(log), str(LATENCY)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


class PoliteFleet:
    """The nodes of two jobs on one store."""

    def __init__(self, directory: Path, server: Server, port: int, pages: int) -> None:
        self._directory = directory
        self._environment = {
            **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
            "PYTHONUNBUFFERED": "1",
            "ORBWEB_REDIS_URL": server.url,
            "ORBWEB_DOWNLOAD_DELAY": str(DELAY),
            "ORBWEB_CONCURRENT_REQUESTS_PER_DOMAIN": str(CONCURRENCY),
            "ORBWEB_CONCURRENT_REQUESTS": "64",
            "ORBWEB_SPIDER_TASK_LEASE": "5",
            "ORBWEB_HEARTBEAT_INTERVAL": "0.5",
            "ORBWEB_REQUEST_TIMEOUT": "5",
            "PORT": str(port),
            "HOSTS": str(HOSTS),
            "PAGES": str(pages),
        }
        self.nodes: list[Node] = []

    def start(self, job: str) -> Node:
        command = [sys.executable, str(SPIDERS), job]
        node = Node(command, self._directory / job, self._environment)
        self.nodes.append(node)
        return node

    def end(self) -> None:
        for node in self.nodes:
            if node.running:
                node.kill()


def misbehave(fleet: PoliteFleet, server: Server, nodes: list[Node], seconds: float) -> None:
    """Kill, freeze, join, leave, restart the store, one after the other."""
    rng = random.Random(3)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for fault in rng.sample(("kill", "freeze", "leave", "server"), 4):
            which = rng.randrange(len(nodes))
            job = ("PoliteOne", "PoliteTwo")[which % 2]
            if fault == "kill":
                nodes[which].kill()
                nodes[which] = fleet.start(job)
            elif fault == "freeze":
                nodes[which].signal(signal.SIGSTOP)
                time.sleep(1.2)
                nodes[which].signal(signal.SIGCONT)
            elif fault == "leave":
                nodes[which].signal(signal.SIGTERM)
                nodes[which].wait(20)
                nodes[which] = fleet.start(job)
            else:
                server.kill()
                time.sleep(0.5)
                server.start()
            time.sleep(0.7)


@pytest.mark.parametrize(
    ("calm", "wild"),
    [(4, 10), pytest.param(20, 120, marks=pytest.mark.long)],
    ids=["short", "long"],
)
@pytest.mark.timeout(400)
@pytest.mark.alone
def test_no_host_ever_sees_too_much(
    tmp_path: Path, calm: float, wild: float, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server("valkey", aof="everysec")
    log = tmp_path / "origin.jsonl"
    pages = int((calm + wild + 30) / DELAY)
    try:
        with origin(log) as port:
            fleet = PoliteFleet(tmp_path, server, port, pages)
            try:
                nodes = [fleet.start(job) for job in ("PoliteOne", "PoliteTwo") * 2]
                until_all_hosts(log)
                asyncio.run(until_seeded(server.url))
                began = time.time()
                time.sleep(calm)
                ended = time.time()
                misbehave(fleet, server, nodes, wild)
            finally:
                fleet.end()
    finally:
        server.stop()
    hits = OriginLog.read(log)
    gaps = sorted(
        later - earlier for times in arrivals(hits).values() for earlier, later in pairwise(times)
    )
    at_once = hits.most_at_once()
    in_calm = sum(began <= hit.t < ended for hit in hits)
    with capsys.disabled():
        print(
            f"\npoliteness: {len(hits)} requests at {len(at_once)} hosts, shortest gap "
            f"{gaps[0] * 1000:.1f} ms of {DELAY * 1000:.0f}, at most {max(at_once.values())} at "
            f"once; {in_calm / ((ended - began) / DELAY * HOSTS):.1%} of the allowed rate in calm"
        )
    assert len(at_once) == HOSTS
    assert len(hits) > HOSTS * calm
    assert sum(gap < DELAY - TOLERANCE for gap in gaps) == 0, gaps[:20]
    assert max(at_once.values()) <= CONCURRENCY


def until_all_hosts(log: Path) -> None:
    end = time.monotonic() + 30
    while len({hit.host for hit in OriginLog.read(log)}) < HOSTS:
        assert time.monotonic() < end, "the fleet does not get going"
        time.sleep(0.1)


async def until_seeded(url: str) -> None:
    """Seeding tens of thousands of requests takes what CPU four nodes and the site have here."""
    servers = OneServer(url)
    try:
        end = time.monotonic() + 60
        while any(info.status.seeding for info in await Admin(servers, "orbweb").runs()):
            assert time.monotonic() < end, "the seeding does not end"
            await asyncio.sleep(0.2)
    finally:
        await servers.aclose()


def arrivals(hits: OriginLog) -> dict[str, list[float]]:
    hosts: dict[str, list[float]] = {}
    for hit in hits:
        hosts.setdefault(hit.host, []).append(hit.t)
    return hosts


def test_eight_nodes_fetch_robots_txt_once(tmp_path: Path) -> None:
    with Fleet(tmp_path, "FlatSpider", PAGES=200, latency=0.05) as fleet:
        nodes = [fleet.start() for _ in range(8)]
        assert [node.wait(90) for node in nodes] == [0] * 8
        asked = OriginLog.read(fleet.log).counts()
    assert asked.pop("/robots.txt") == 1
    assert len(asked) == 200
