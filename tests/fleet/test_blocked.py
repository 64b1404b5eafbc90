"""A host that asks for a pause gets it from the whole fleet, and no two thousand return at once."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.fleet.fleet import Fleet
from tests.fleet.origin import Answer, Origin
from tests.fleet.store import MemoryStore
from tests.fleet.timeline import Timeline

from orbweb.frontier.base import RunConfig

PAUSE_MS = 20_000
FETCH_MS = 100.0
ON_THE_WAY_MS = 55.0
"""A time that was reserved may lie so far ahead, and be used so much later."""


class Blocking:
    """Hosts answer one fetch each with 429 and Retry-After, from a time on."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.answered: dict[str, float] = {}

    def __call__(self, host: str, at: float) -> Answer:
        if at < self.since or host in self.answered:
            return Answer(FETCH_MS)
        self.answered[host] = at + FETCH_MS
        return Answer(FETCH_MS, healthy=False, refused=True, retry_after_ms=PAUSE_MS)


def blocked(delay_ms: int, hosts: int, nodes: int) -> tuple[Fleet, Blocking]:
    timeline, rng = Timeline(), random.Random(2)
    site = Blocking(timeline.now + 5_000)
    origin = Origin(site, gap_ms=delay_ms, most=4, keep=True)
    config = RunConfig(host_concurrency=4, host_delay_ms=delay_ms)
    fleet = Fleet(timeline, rng, MemoryStore(timeline, rng), origin, config, ("a", "b"))
    for n in range(hosts):
        for job in ("a", "b"):
            fleet.add(job, f"h{n}", 1_000, 8)
    fleet.enter()
    for n in range(nodes):
        fleet.start("ab"[n % 2], 32)
    fleet.run_for(5 + 1.5 * PAUSE_MS / 1000 + 3)
    return fleet, site


@pytest.mark.parametrize("delay_ms", [0, 50, 200, 1_000])
def test_only_what_is_on_the_way_reaches_a_host_that_asked_for_a_pause(delay_ms: int) -> None:
    fleet, site = blocked(delay_ms, hosts=1, nodes=8)
    (answered,) = site.answered.values()
    times = fleet.origin.times("h0")
    pause = [at - answered for at in times if answered < at < answered + PAUSE_MS]
    assert all(after <= 2 * 2.5 + ON_THE_WAY_MS for after in pause)
    assert len(pause) <= 1 + (delay_ms == 0) * 4, "each of the four slots may be on its way"
    assert times[-1] > answered + PAUSE_MS, "it is fetched again afterwards"
    assert fleet.origin.short == fleet.origin.crowded == []


def test_hosts_that_were_blocked_together_do_not_return_together() -> None:
    fleet, site = blocked(1_000, hosts=1_000, nodes=8)
    assert len(site.answered) == 1_000
    returned: dict[str, float] = {}
    for arrival in fleet.origin.arrivals or ():
        after = arrival.at - site.answered[arrival.host]
        if after >= PAUSE_MS:
            returned.setdefault(arrival.host, after - PAUSE_MS)
    assert len(returned) == 1_000
    by_second = Counter(int(after / 1000) for after in returned.values())
    mean = 1_000 / (PAUSE_MS / 2 / 1000)
    assert max(by_second.values()) <= 2 * mean, sorted(by_second.items())
