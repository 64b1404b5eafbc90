"""Half of all pages lie on one host: the fleet is as fast as politeness lets it be, and fair."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from itertools import groupby

import pytest
from tests.fleet.fleet import Fleet
from tests.fleet.origin import Arrival, Origin, jain, steady
from tests.fleet.store import MemoryStore
from tests.fleet.timeline import Timeline

from orbweb.frontier.base import RunConfig
from orbweb.frontier.memory_turns import hand_of, weight

NODES = 16
DELAY_MS = 200
WINDOW_MS = 20_000


@dataclass(frozen=True, slots=True)
class Zipf:
    """Pages by host: the first host has half of all, the others follow Zipf's law."""

    hosts: int
    pages: int

    def counts(self) -> list[int]:
        tail = [1 / (n + 1) for n in range(self.hosts - 1)]
        part = self.pages / 2 / sum(tail)
        return [self.pages // 2, *(max(1, int(part * each)) for each in tail)]


def crawled(zipf: Zipf) -> tuple[Fleet, float]:
    """A fleet that has crawled all of it, and how many seconds it took."""
    timeline, rng = Timeline(), random.Random(1)
    origin = Origin(steady(rng, 50, 300), gap_ms=DELAY_MS, most=8, keep=True)
    config = RunConfig(host_concurrency=8, host_delay_ms=DELAY_MS)
    fleet = Fleet(timeline, rng, MemoryStore(timeline, rng), origin, config)
    for host, count in enumerate(zipf.counts()):
        fleet.add("a", f"h{host}", 1, count)
    for _ in range(NODES):
        fleet.start("a", 16)
    fleet.run_for(1)
    fleet.enter()
    return fleet, fleet.finish(within_seconds=10_000)


def by_preferred(arrivals: list[Arrival], names: list[str]) -> int:
    """How many fetches were made by a preferred node of their host, off-line: the hosts' rates are
    those of the window, and a host is worth as many nodes as its part of all fetches."""
    found = 0
    for _, group in groupby(arrivals, key=lambda arrival: arrival.at // WINDOW_MS):
        window = list(group)
        fetches = Counter(arrival.host for arrival in window)
        preferred = {}
        for host, count in fetches.items():
            parts = max(1, int(count * NODES / len(window) + 0.5))
            ranked = sorted(names, key=lambda name: -weight(hand_of(host), name))
            preferred[host] = set(ranked[:parts])
        found += sum(arrival.node in preferred[arrival.host] for arrival in window)
    return found


@pytest.mark.parametrize("hosts", [50, 300])
def test_a_skewed_crawl_is_fast_fair_and_mostly_at_home(hosts: int) -> None:
    zipf = Zipf(hosts, 3_000)
    fleet, seconds = crawled(zipf)
    optimum = (zipf.counts()[0] - 1) * DELAY_MS / 1000
    assert optimum / seconds >= 0.95
    assert fleet.origin.short == fleet.origin.crowded == []
    names = [node.name for node in fleet.nodes]
    assert jain([fleet.origin.by_node[name] for name in names]) >= 0.98
    if hosts >= 200:
        arrivals = fleet.origin.arrivals or []
        assert by_preferred(arrivals, names) / len(arrivals) >= 0.8


def test_the_hosts_of_a_dead_node_are_fetched_by_others() -> None:
    timeline, rng = Timeline(), random.Random(4)
    origin = Origin(steady(rng, 50, 300), gap_ms=1_000, most=2, keep=True)
    config = RunConfig(host_concurrency=2, host_delay_ms=1_000)
    fleet = Fleet(timeline, rng, MemoryStore(timeline, rng), origin, config)
    for n in range(200):
        fleet.add("a", f"h{n}", 100, 4)
    fleet.enter()
    for _ in range(8):
        fleet.start("a", 32)
    fleet.run_for(10)
    victim = fleet.nodes[0]
    homes = Counter[str]()
    for (host, name), count in origin.pairs.items():
        if name == victim.name and count >= 5:
            homes[host] = count
    assert len(homes) >= 10
    victim.kill()
    died = timeline.now
    fleet.run_for(30)
    later = {each.host for each in origin.arrivals or () if each.at > died}
    assert homes.keys() <= later
    last = {host: max(origin.times(host)) for host in homes}
    assert min(last.values()) > timeline.now - 3_000, "and they go on"
    assert origin.short == origin.crowded == []
