"""A slow host beside a fast one takes no slot that the fast one needs."""

from __future__ import annotations

import random

import pytest
from tests.fleet.fleet import Fleet
from tests.fleet.origin import Answer, Origin, rate
from tests.fleet.store import MemoryStore
from tests.fleet.timeline import Timeline

from orbweb.frontier.base import RunConfig

SECONDS = 60


def rate_of_the_fast_one(concurrency: int, of_host: int, nodes: int, *, beside: bool) -> float:
    """Pages a second of a host of 0.1 s a page, alone or beside one of 5 s a page."""
    timeline, rng = Timeline(), random.Random(1)

    def site(host: str, at: float) -> Answer:
        return Answer(5_000) if host == "slow" else Answer(rng.uniform(80, 120))

    origin = Origin(site, most=of_host, keep=True)
    config = RunConfig(host_concurrency=of_host)
    fleet = Fleet(timeline, rng, MemoryStore(timeline, rng), origin, config)
    for host in ("fast", "slow")[: 1 + beside]:
        fleet.add("a", host, 10_000, 100)
    fleet.enter()
    for _ in range(nodes):
        fleet.start("a", concurrency)
    fleet.run_for(SECONDS)
    assert origin.crowded == []
    return rate(origin.times("fast"), timeline.now - 45_000, timeline.now)


@pytest.mark.parametrize(("concurrency", "of_host", "nodes"), [(16, 8, 1), (8, 8, 2), (32, 8, 1)])
def test_a_fast_host_keeps_its_rate(concurrency: int, of_host: int, nodes: int) -> None:
    alone = rate_of_the_fast_one(concurrency, of_host, nodes, beside=False)
    assert alone > 60
    beside = rate_of_the_fast_one(concurrency, of_host, nodes, beside=True)
    assert beside >= 0.9 * alone


@pytest.mark.parametrize(("concurrency", "of_host"), [(8, 8), (4, 8), (16, 16)])
def test_a_slow_host_leaves_slots_to_others(concurrency: int, of_host: int) -> None:
    """Each could fill the node alone; first come, first served, the slow one would."""
    alone = rate_of_the_fast_one(concurrency, of_host, 1, beside=False)
    beside = rate_of_the_fast_one(concurrency, of_host, 1, beside=True)
    assert beside >= 0.25 * alone
