"""Live values reach two real nodes within two seconds; the origin's log is the judge."""

from __future__ import annotations

import json
import time
from itertools import accumulate, pairwise
from pathlib import Path

from tests.crash.fleet import Fleet

SPIDER = """
import os, time
import orbweb

class Shop(orbweb.Spider):
    live = {"price_v2": False}

    def start_requests(self):
        for n in range(6000):
            yield orbweb.Request(f"{os.environ['SITE']}/about?n={n}")

    def parse(self, request, response):
        yield {"pid": os.getpid(), "t": time.time(), "v2": self.live["price_v2"]}

Shop().start()
"""
WITHIN_SECONDS = 2.0


def change(fleet: Fleet, *words: str) -> float:
    """Change a live value; returns when both nodes had it, which must be in time."""
    said = json.loads(fleet.orbweb("config", *words, "--json"))
    assert len(said["nodes"]) == 2
    for node in said["nodes"]:
        assert node["acknowledged"]
        assert node["error"] is None
        assert node["seconds"] < WITHIN_SECONDS
    return float(said["at_ms"]) / 1000 + max(node["seconds"] for node in said["nodes"])


def rate(fleet: Fleet, since: float, seconds: float) -> float:
    """Pages a second that the site was asked for in that time."""
    while time.time() < since + seconds + 0.1:
        time.sleep(0.05)
    hits = [hit for hit in fleet.origin() if since <= hit.t < since + seconds]
    return len(hits) / seconds


def at_once(fleet: Fleet, since: float) -> int:
    """Most requests that the site was answering at one time."""
    hits = [hit for hit in fleet.origin() if hit.t >= since]
    events = sorted([(hit.t, 1) for hit in hits] + [(hit.end, -1) for hit in hits])
    return max(accumulate(change for _, change in events))


def rows(fleet: Fleet) -> list[dict[str, object]]:
    path = fleet.directory / "items.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n")].splitlines()]


def test_two_nodes_take_live_values_roll_them_back_and_let_them_end(tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text(SPIDER)
    settings = {"ORBWEB_DOWNLOAD_DELAY": 0.05, "ORBWEB_HEARTBEAT_INTERVAL": 0.5}
    with Fleet(tmp_path, "", script=script, latency=0.02, **settings) as fleet:
        nodes = [fleet.start(), fleet.start()]
        fleet.until_true(lambda: fleet.asked() > 10, 20, "pages")
        fleet.until_true(lambda: len({row["pid"] for row in rows(fleet)}) == 2, 20, "two nodes")
        while len(json.loads(fleet.orbweb("nodes", "Shop", "--json"))) < 2:
            pass  # a node that has just begun has not said so yet

        at = change(fleet, "set", "DOWNLOAD_DELAY", "0.5") + 0.2
        assert rate(fleet, at, 2) <= 3.5
        times = [hit.t for hit in fleet.origin() if hit.t >= at]
        assert min(b - a for a, b in pairwise(times)) > 0.3, "over both nodes together"
        at = change(fleet, "rollback")
        assert rate(fleet, at, 1) > 5

        at = change(fleet, "set", "PARSE.price_v2", "on", "--for", "3s")
        fleet.until_true(
            lambda: (
                {row["pid"] for row in rows(fleet) if row["v2"]}
                == {node.process.pid for node in nodes}
            ),
            WITHIN_SECONDS,
            "item of each node by the new switch",
        )
        ended = at + 3 + WITHIN_SECONDS
        fleet.until_true(
            lambda: (
                {row["pid"] for row in rows(fleet) if float(str(row["t"])) > ended}
                == {node.process.pid for node in nodes}
            ),
            12,
            "item of each node after its end",
        )
        assert not [row for row in rows(fleet) if float(str(row["t"])) > ended and row["v2"]]
        history = json.loads(fleet.orbweb("config", "history", "--json"))
        assert [line["verb"] for line in history] == ["expire", "set", "rollback", "set"]

        change(fleet, "set", "DOWNLOAD_DELAY", "0")
        change(fleet, "set", "CONCURRENT_REQUESTS_PER_DOMAIN", "0")
        at = change(fleet, "set", "CONCURRENT_REQUESTS", "1") + 0.5
        assert rate(fleet, at, 1) > 5
        assert at_once(fleet, at) <= 2, "one of each node"
        acks = json.loads(fleet.orbweb("config", "acks", "--json"))
        assert [node["version"] for node in acks["nodes"]] == [acks["version"]] * 2
