"""Faults of a real fleet: each raises its alarm, the fleet tells it once, and its end once.

The thresholds are short here, so that a test takes seconds. The tests marked `long` have those that
a fleet has by default; there an alarm must come within a minute, after what its threshold asks for.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.fleet import Fleet, Node
from tests.receiver import Receiver
from tests.servers import Server

from orbweb.alarms.judge import Docket, decode

SPIDERS = Path(__file__).with_name("alarm_spiders.py")

SHORT = {
    "ORBWEB_ALERTS_INTERVAL": 0.3,
    "ORBWEB_ALERTS_GROUP_WAIT": 0,
    "ORBWEB_ALERTS_CALM": 0.5,
    "ORBWEB_ALERTS_WINDOW": 3,
    "ORBWEB_ALERTS_NODE_SILENT": 2,
    "ORBWEB_ALERTS_NODE_STUCK": 2.5,
    "ORBWEB_ALERTS_SINK_DOWN": 1.5,
    "ORBWEB_ALERTS_STORE_DOWN": 1.5,
    "ORBWEB_ALERTS_CONSUMER_STUCK": 5,
    "ORBWEB_ALERTS_SOURCE_DOWN": 1,
    "ORBWEB_HEARTBEAT_INTERVAL": 0.3,
    "ORBWEB_SPIDER_TASK_LEASE": 2,
    "ORBWEB_STORE_TIMEOUT": 1,
    "ORBWEB_TASK_POLL_INTERVAL": 0.2,
}
USUAL = {
    "ORBWEB_DOWNLOAD_DELAY": 0.05,
    "ORBWEB_RANDOMIZE_DOWNLOAD_DELAY": "false",
    "ORBWEB_ITEM_PIPELINES": "alarm_spiders.FaultyPipeline",
}

ENOUGH = 15.0
"""Seconds in which a short threshold must have told."""


class Scene:
    """A fleet, its store, and somebody who is told."""

    def __init__(self, fleet: Fleet, server: Server, receiver: Receiver, *, short: bool) -> None:
        self.short = short
        self.fleet = fleet
        self.server = server
        self.receiver = receiver

    def switch(self, fault: str, *, on: bool) -> None:
        path = self.fleet.directory / fault
        if on:
            path.touch()
        else:
            path.unlink(missing_ok=True)

    def node(self, spider: str = "Pages", *words: str, **settings: object) -> Node:
        self.fleet.spider = spider
        return self.fleet.start(*words, **settings)

    def command(self, *words: str) -> Node:
        command = [sys.executable, "-m", "orbweb", *words]
        node = Node(command, self.fleet.directory, self.fleet.environment)
        self.fleet.nodes.append(node)
        return node

    def begun(self, pages: int = 5) -> None:
        """Wait until pages are crawled and somebody judges the fleet."""
        self.fleet.until(pages)
        client = self.server.client()
        self.fleet.until_true(
            lambda: bool(client.exists("{orbweb:0}:role:alerts:record")), 15, "judge"
        )

    def holder(self) -> str:
        """Who judges now."""
        found = self.server.client().hget("{orbweb:0}:role:alerts", "holder")
        return found.decode() if isinstance(found, bytes) else ""

    def docket(self) -> Docket:
        """What the judge has put down last."""
        kept = self.server.client().get("{orbweb:0}:role:alerts:record")
        assert isinstance(kept, bytes)
        return decode(kept)

    def told_once(self, rule: str, seconds: float | None = None) -> None:
        """Wait until the alarm has come."""
        began = time.monotonic()
        enough = ENOUGH if self.short else 60.0
        self.receiver.wait(rule, seconds=seconds or enough)
        print(f"{rule} was told after {time.monotonic() - began:.1f} s")

    def over(self, rule: str) -> None:
        """Wait for its end. Then it, and nothing else, must have been told, each once."""
        self.receiver.wait(rule, "resolved", ENOUGH if self.short else 120.0)
        time.sleep(1.2 if self.short else 20.0)
        assert self.receiver.rules() == [rule]
        assert self.receiver.rules("resolved") == [rule]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def make_scene(directory: Path, receiver: Receiver, *, short: bool) -> Iterator[Scene]:
    server = Server("valkey", aof="everysec")
    settings = {
        **USUAL, **(SHORT if short else {"PAGES": 20_000}), "ORBWEB_REDIS_URL": server.url,
        "ORBWEB_ALERTS_CHANNELS": f"people={receiver.url}/hook",
    }  # fmt: skip
    try:
        with Fleet(directory, "Pages", script=SPIDERS, **settings) as fleet:
            yield Scene(fleet, server, receiver, short=short)
    finally:
        server.stop()


pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=["short", pytest.param("default", marks=pytest.mark.long)])
def scene(tmp_path: Path, receiver: Receiver, request: pytest.FixtureRequest) -> Iterator[Scene]:
    yield from make_scene(tmp_path, receiver, short=request.param == "short")


def test_a_killed_node_is_told_once_by_a_fleet_and_a_new_node_ends_that(scene: Scene) -> None:
    nodes = [scene.node() for _ in range(3)]
    scene.begun(30)
    nodes[0].kill()
    scene.told_once("node_silent")
    scene.node()
    scene.over("node_silent")


def test_the_last_node_is_missed_where_a_process_only_watches(scene: Scene) -> None:
    scene.command("alerts", "watch")
    node = scene.node()
    scene.begun(10)
    node.kill()
    scene.told_once("node_silent")
    scene.node()
    scene.over("node_silent")


def test_a_frozen_node_is_told_and_its_waking_too(scene: Scene) -> None:
    nodes = [scene.node() for _ in range(2)]
    scene.begun(20)
    nodes[0].signal(signal.SIGSTOP)
    scene.told_once("node_silent")
    nodes[0].signal(signal.SIGCONT)
    scene.over("node_silent")


def test_a_zombie_speaks_but_its_loop_stands_still(scene: Scene) -> None:
    scene.node(STUCK=6 if scene.short else 50)
    scene.begun()
    scene.switch("loop-stuck", on=True)
    scene.told_once("zombie")
    scene.over("zombie")


def test_a_sink_that_is_down(scene: Scene) -> None:
    scene.node()
    scene.begun()
    scene.switch("sink-down", on=True)
    scene.told_once("sink_down")
    assert "database is away" in scene.receiver.told("sink_down")[0]["wrong"]
    scene.switch("sink-down", on=False)
    scene.over("sink_down")


def test_a_disk_that_is_full(scene: Scene) -> None:
    """The kernel itself says so (/dev/full), and the sink's trouble is no second alarm."""
    scene.node()
    scene.begun()
    scene.switch("disk-full", on=True)
    scene.told_once("disk_full")
    scene.switch("disk-full", on=False)
    scene.over("disk_full")


def test_a_filter_of_seen_urls_that_is_nearly_full(scene: Scene) -> None:
    bloom = {"ORBWEB_DEDUP_FILTER": "bloom", "ORBWEB_DEDUP_INITIAL_CAPACITY": 100}
    node = scene.node(PAGES=90, ORBWEB_DEDUP_MAX_LAYERS=1, **bloom)
    scene.command("alerts", "watch")
    scene.told_once("dedup_fill")
    node.signal(signal.SIGTERM)
    node.wait()
    scene.fleet.orbweb("reset", "Pages", "--seen", "--yes")
    scene.over("dedup_fill")


def test_names_that_have_no_address(scene: Scene) -> None:
    scene.node("Nameless", ORBWEB_SPIDER_MAX_RETRY_TIMES=0, ORBWEB_WARNING_FAILED_RATE=0)
    scene.told_once("dns_failure")
    scene.over("dns_failure")


def test_a_run_with_nothing_done_is_told_by_the_node_that_ends_it(scene: Scene) -> None:
    scene.switch("no-seeds", on=True)
    assert scene.node("Nothing").wait() == 3
    scene.told_once("nothing_done", 1.0)
    scene.switch("no-seeds", on=False)
    scene.fleet.orbweb("reset", "Nothing", "--yes")
    scene.node("Nothing")
    scene.over("nothing_done")


def test_a_consumer_that_stands_still(scene: Scene) -> None:
    scene.command("alerts", "watch")
    database = scene.fleet.directory / "rows.db"
    sqlite3.connect(database).close()
    consumer = scene.command("consume", "--to", f"sqlite:///{database}", "--create-tables")
    client = scene.server.client()
    scene.fleet.until_true(lambda: bool(client.exists("{orbweb:0}:alerts:consumers")), 15, "beat")
    consumer.signal(signal.SIGSTOP)
    scene.told_once("consumer_stuck")
    consumer.signal(signal.SIGCONT)
    scene.over("consumer_stuck")


def test_a_source_of_tasks_that_does_not_answer(scene: Scene) -> None:
    scene.node("Tasks", ORBWEB_SPIDER_KEEP_ALIVE="true")
    client = scene.server.client()
    scene.fleet.until_true(lambda: bool(client.exists("{orbweb:0}:role:alerts")), 15, "judge")
    scene.switch("source-away", on=True)
    scene.told_once("source_unreachable")
    scene.switch("source-away", on=False)
    scene.over("source_unreachable")


def test_a_storm_of_429(scene: Scene) -> None:
    """The host is left alone for longer each time, so a storm lasts: it ends with the node here."""
    scene.command("alerts", "watch")
    node = scene.node("Refused", ORBWEB_SPIDER_MAX_RETRY_TIMES=0, ORBWEB_DOWNLOAD_DELAY=0)
    scene.told_once("blocked", 30.0)
    node.signal(signal.SIGTERM)
    assert node.wait() == 75
    scene.over("blocked")


def test_a_store_that_does_not_answer_is_told_by_one_of_three_nodes(scene: Scene) -> None:
    for _ in range(3):
        scene.node()
    scene.begun(20)
    scene.server.pause()
    scene.told_once("store_unreachable")
    scene.server.resume()
    scene.over("store_unreachable")


def test_a_store_that_lost_its_data_is_told_once_by_the_nodes_that_end(scene: Scene) -> None:
    nodes = [scene.node() for _ in range(2)]
    scene.begun(20)
    scene.server.client().flushall()
    assert [node.wait() for node in nodes] == [1, 1]
    scene.told_once("run_lost", 1.0)
    scene.node()
    scene.over("run_lost")


def test_a_judge_that_is_killed_leaves_all_it_knew_to_the_next(scene: Scene) -> None:
    """Nothing is told again, and what fired is ended by whoever has the role then."""
    judge = scene.command("alerts", "watch")
    scene.node()
    scene.begun()
    first = scene.holder()
    scene.switch("sink-down", on=True)
    scene.told_once("sink_down")
    scene.fleet.until_true(lambda: not scene.docket().letters, 5, "note that it was told")
    judge.kill()
    enough = 10 if scene.short else 40
    scene.fleet.until_true(lambda: scene.holder() not in ("", first), enough, "other judge")
    scene.switch("sink-down", on=False)
    scene.over("sink_down")
