"""Nodes behind real proxy processes: the site sees from where each request comes, and judges."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.crash.fleet import Fleet, Node
from tests.proxies import ProxyProcess

from orbweb.testing.origin import OriginLog

NAME = "FlatSpider"
FOUR = {"ORBWEB_CONCURRENT_REQUESTS": 4, "ORBWEB_LOGSTATS_INTERVAL": 0.3}


def came_from(fleet: Fleet) -> set[str]:
    """All addresses that the site was asked from, robots.txt among it."""
    return {hit.peer for hit in OriginLog.read(fleet.log)}


def one_each(fleet: Fleet, pages: int) -> bool:
    return len(fleet.origin()) == pages and not fleet.origin().repeats()


def test_a_changed_file_holds_on_two_nodes_within_two_seconds(tmp_path: Path) -> None:
    pages = 260
    with (
        Fleet(tmp_path, NAME, PAGES=pages, latency=0.1) as fleet,
        ProxyProcess("127.0.0.51", "user:secret") as old_one,
        ProxyProcess("127.0.0.52") as old_two,
        ProxyProcess("127.0.0.53") as new_one,
        ProxyProcess("127.0.0.54", "user:secret") as new_two,
    ):
        nodes = []
        for name, proxy in (("one", old_one), ("two", old_two)):
            file = tmp_path / f"{name}.txt"
            file.write_text(proxy.address + "\n")
            nodes.append(fleet.start(ORBWEB_PROXY_FILE=file, **FOUR))
        fleet.until_true(lambda: came_from(fleet) == {old_one.source, old_two.source}, 10, "both")
        (tmp_path / "one.txt").write_text(new_one.address + "\n")
        (tmp_path / "two.txt").write_text(new_two.address + "\n")
        changed = time.time()
        assert [node.wait() for node in nodes] == [0, 0]
        assert one_each(fleet, pages)
        assert came_from(fleet) == {
            proxy.source for proxy in (old_one, old_two, new_one, new_two)
        }, "both nodes took the change, and none went past its proxies"
        late = fleet.origin().where(lambda hit: hit.t > changed + 2)
        assert {hit.peer for hit in late} <= {new_one.source, new_two.source}
        assert all("secret" not in node.text() for node in nodes)
        log = fleet.orbweb("log", NAME, "--json")
        assert "secret" not in log
        assert new_one.address.removeprefix("http://") in log, "the log says through which proxy"


def test_without_a_proxy_nothing_is_sent_and_nothing_is_lost(tmp_path: Path) -> None:
    pages = 30
    file = tmp_path / "proxies.txt"
    with (
        Fleet(tmp_path, NAME, PAGES=pages, latency=0.1) as fleet,
        ProxyProcess("127.0.0.51") as first,
        ProxyProcess("127.0.0.52") as second,
    ):
        file.write_text("# none yet\n")
        node = fleet.start(ORBWEB_PROXY_FILE=file, **FOUR)
        fleet.until_true(lambda: lacks(node), 10, "lack of a proxy at the start")
        assert came_from(fleet) == set()
        file.write_text(first.address + "\n")
        fleet.until(10)
        first.kill()
        told = len(node.text())
        fleet.until_true(lambda: lacks(node, told), 10, "lack of a proxy")
        asked = fleet.asked()
        fleet.until_true(lambda: waits(fleet, pages), 5, "verdict no_proxy")
        assert fleet.asked() == asked
        assert node.running
        file.write_text(second.address + "\n")
        assert node.wait() == 0
        assert came_from(fleet) == {first.source, second.source}
        assert {f"/flat?n={n}" for n in range(pages)} == set(fleet.origin().counts())
        assert node.summary()["request_failed"] == 0, "waiting for a proxy is no attempt"


def lacks(node: Node, told: int = 0) -> bool:
    """Whether it has said so after the first so many characters of its log."""
    return "limited_by=proxies" in node.text()[told:]


def waits(fleet: Fleet, pages: int) -> bool:
    asked = fleet.origin().counts()
    left = next(n for n in reversed(range(pages)) if f"/flat?n={n}" not in asked)
    (verdict,) = json.loads(fleet.orbweb("explain", f"{fleet.site.url}/flat?n={left}", "--json"))
    return bool(verdict["reason"] == "no_proxy")
