"""Values of etcd reach the proxy pools of two nodes, and outlive it; the site sees who comes."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.config_servers import EtcdStore
from tests.crash.fleet import Fleet
from tests.proxies import ProxyProcess

from orbweb.testing.origin import OriginLog

NAME = "FlatSpider"
SECRET = "user:hunter2"
NODE = {"ORBWEB_CONCURRENT_REQUESTS": 2}


class Street:
    """A fleet of two nodes behind proxies that change."""

    def __init__(self, fleet: Fleet, stack: ExitStack) -> None:
        self.fleet = fleet
        self.proxies = [
            stack.enter_context(ProxyProcess(f"127.0.0.{50 + n}", SECRET)) for n in range(3)
        ]

    def peers(self, since: float = 0.0) -> set[str]:
        return {hit.peer for hit in OriginLog.read(self.fleet.log) if hit.t >= since}

    def only(self, number: int, since: float) -> bool:
        return self.peers(since) == {self.proxies[number].source}

    def tells(self, word: str) -> bool:
        nodes = json.loads(self.fleet.orbweb("nodes", NAME, "--json"))
        return any(word in node["said"] for node in nodes)


@pytest.mark.skipif(EtcdStore.program() is None, reason="needs etcd: apt-get install etcd-server")
def test_values_of_etcd_hold_on_two_nodes_and_outlive_it(tmp_path: Path) -> None:
    etcd = EtcdStore(tmp_path / "server")
    etcd.directory.parent.mkdir()
    asyncio.run(etcd.start())
    with (
        ExitStack() as stack,
        Fleet(tmp_path, NAME, PAGES=3000, latency=0.1) as fleet,
    ):
        stack.callback(lambda: asyncio.run(etcd.stop()))
        street = Street(fleet, stack)
        put(etcd, street.proxies[0])
        source = {"ORBWEB_CONFIG_SOURCE": etcd.address(), **NODE}
        nodes = [fleet.start(**source) for _ in range(2)]
        fleet.until_true(lambda: len(fleet.origin()) > 20, 15, "pages")
        assert street.only(0, 0.0), "the first document holds before the first request"
        put(etcd, street.proxies[1])
        changed = time.time()
        fleet.until_true(lambda: time.time() > changed + 2.5, 5, "time")
        assert street.only(1, changed + 2)
        asyncio.run(etcd.stop())
        late = fleet.start(**source)
        every = [*nodes, late]
        fleet.until_true(lambda: all("cannot be asked" in n.text() for n in every), 15, "warnings")
        fleet.until_true(lambda: street.tells("config_error"), 15, "heartbeat")
        assert street.only(1, changed + 2), "what it said last holds, from the disk too"
        asyncio.run(etcd.start())
        put(etcd, street.proxies[2])
        fleet.until_true(lambda: street.only(2, time.time() - 1), 15, "the change made since")
        for node in every:
            node.kill()
        assert street.peers() == {proxy.source for proxy in street.proxies}
        assert all("hunter2" not in node.text() for node in every)


def put(etcd: EtcdStore, proxy: ProxyProcess) -> None:
    asyncio.run(etcd.put({f"job:{NAME}/PROXY_LIST": proxy.address}))
