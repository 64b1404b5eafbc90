"""The throttle finds what a host can bear, and never passes what is configured or approved."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import pytest
from tests.fleet.fleet import Fleet
from tests.fleet.origin import Answer, Capacity, Origin, Site, rate
from tests.fleet.store import MemoryStore
from tests.fleet.timeline import Timeline

from orbweb.frontier.base import RunConfig

SPAN_MS = 5_000
REACTION_SECONDS = 10
"""A host that serves half as much at once is asked for too much until its answers have told."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A host with a hidden capacity. It lets requests wait for so long, then it refuses."""

    per_second: float
    base_ms: float
    patience_ms: float


KINDS = {
    "it gets slower": Kind(20, 200, 10_000),
    "it refuses": Kind(20, 200, 300),
    "it is small": Kind(5, 300, 10_000),
    "it is quick": Kind(40, 100, 2_000),
}


def throttled(site: Site, nodes: int, *, delay_ms: int = 0, ceiling_ms: int = 0) -> Fleet:
    timeline, rng = Timeline(), random.Random(1)
    config = RunConfig(host_concurrency=64, host_delay_ms=delay_ms, autothrottle=True)
    store = MemoryStore(timeline, rng)
    fleet = Fleet(timeline, rng, store, Origin(site, keep=True), config)
    fleet.add("a", "h", 100_000, 200)
    fleet.enter()
    if ceiling_ms:
        store.record("h").update(ceiling=ceiling_ms, ceiling_until=0)
    for _ in range(nodes):
        fleet.start("a", 64 // nodes)
    return fleet


def rates(fleet: Fleet, seconds: int) -> list[float]:
    """Run for so long: pages a second in each span of five seconds, one beginning each second."""
    began = fleet.timeline.now
    fleet.run_for(seconds)
    times = [at for at in fleet.origin.times("h") if at >= began]
    return [
        rate(times, began + second * 1000, began + second * 1000 + SPAN_MS)
        for second in range(seconds - SPAN_MS // 1000 + 1)
    ]


def seconds_to(found: list[float], goal: float) -> int:
    """The end of the first span that reaches the goal."""
    return next((n for n, each in enumerate(found) if each >= goal), len(found)) + SPAN_MS // 1000


@pytest.mark.parametrize("nodes", [1, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_the_fleet_finds_the_capacity_of_a_host_again(kind: str, nodes: int) -> None:
    """Of 5 s: at most a tenth above, and the one fetch that a span may hold more or less."""
    host = KINDS[kind]
    site = Capacity(
        random.Random(5), host.per_second, base_ms=host.base_ms, patience_ms=host.patience_ms
    )
    fleet = throttled(site, nodes)
    one = 1000 / SPAN_MS
    at_first = rates(fleet, 100)
    start = seconds_to(at_first, 0.9 * host.per_second)
    assert start <= 60, "it is found from a fetch a second"
    site.per_second = host.per_second / 2
    halved = rates(fleet, 60)
    assert seconds_to(halved[REACTION_SECONDS:], 0.9 * site.per_second) <= 60 - REACTION_SECONDS
    site.per_second = host.per_second
    again = rates(fleet, 120)
    assert seconds_to(again, 0.9 * host.per_second) <= 60
    assert max(halved[REACTION_SECONDS:]) <= 1.1 * host.per_second / 2 + one
    assert max(again) <= 1.1 * host.per_second + one
    assert max(at_first[start + 5 :]) <= 1.1 * host.per_second + one
    kept = again[seconds_to(again, 0.9 * host.per_second) :]
    assert sum(kept) / len(kept) >= 0.85 * host.per_second


@pytest.mark.parametrize("nodes", [1, 8])
@pytest.mark.parametrize("limit", ["delay_ms", "ceiling_ms"])
def test_a_rate_that_is_set_is_never_passed(limit: str, nodes: int) -> None:
    fleet = throttled(lambda host, at: Answer(50.0), nodes, **{limit: 250})
    found = rates(fleet, 90)
    assert max(found) <= 4 + 1000 / SPAN_MS
    assert min(found[40:]) >= 0.9 * 4
    times = fleet.origin.times("h")
    assert min(b - a for a, b in pairwise(times)) >= 245


def test_a_host_that_is_slow_for_good_is_not_starved() -> None:
    """Its latency does not come from us: after a while the throttle takes it for its speed."""
    slowness = [100.0]
    fleet = throttled(lambda host, at: Answer(slowness[0]), 1)
    assert max(rates(fleet, 50)) >= 15
    slowness[0] = 700.0
    assert min(rates(fleet, 120)) >= 4
