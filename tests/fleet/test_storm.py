"""However nodes die, stop, come and go: no host sees a short gap or a fetch too many."""

from __future__ import annotations

import random
import time
from statistics import mean

import pytest
from tests.fleet.fleet import Fleet
from tests.fleet.store import MemoryStore, ServerStore, Store
from tests.fleet.storm import Storm
from tests.fleet.timeline import Timeline

SMALL = Storm(nodes=10, hosts=400, pages=10, delay_ms=1_000, trouble_seconds=1.5)
STEADY = Storm(nodes=10, hosts=300, pages=40, delay_ms=1_000, trouble_seconds=3.0)
LARGE = Storm(nodes=100, hosts=20_000, pages=25, delay_ms=4_000, trouble_seconds=1.0)


def check(fleet: Fleet) -> None:
    """What the origin saw is what was promised, and all of it."""
    origin = fleet.origin
    assert origin.short == []
    assert origin.crowded == []
    assert origin.blind_short <= origin.fetches / 100_000 + 1
    assert len(origin.pages) == fleet.pages


@pytest.mark.parametrize(("kind", "seed"), [(MemoryStore, 1), (MemoryStore, 2), (ServerStore, 3)])
def test_a_fleet_in_trouble_is_polite_and_fetches_everything(kind: type[Store], seed: int) -> None:
    timeline, rng = Timeline(), random.Random(seed)
    store = kind(timeline, rng)
    try:
        fleet = SMALL.fleet(timeline, rng, store)
        fleet.finish(within_seconds=200)
    finally:
        store.close()
    check(fleet)
    assert {"kill", "freeze", "blink"} <= fleet.counts.keys()


def test_a_fleet_in_trouble_uses_what_it_is_allowed() -> None:
    timeline, rng = Timeline(), random.Random(3)
    fleet = STEADY.fleet(timeline, rng, MemoryStore(timeline, rng))
    fleet.run_for(2)
    assert STEADY.share(fleet, 20) >= 0.95
    assert fleet.origin.short == fleet.origin.crowded == []


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_a_million_fetches_of_a_hundred_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    timeline, rng = Timeline(), random.Random(1)
    store = ServerStore(timeline, rng)
    began, shares, outages = time.monotonic(), list[tuple[float, bool]](), [0]
    try:
        fleet = LARGE.fleet(timeline, rng, store)
        seeded = store.cpu_seconds()
        fleet.run_for(LARGE.delay_ms / 1000)
        while fleet.origin.fetches < fleet.pages * 0.9:
            share = LARGE.share(fleet, 5)
            outages.append(fleet.counts["outage"])
            # After an outage nodes come back over some seconds: the next span is none of calm.
            shares.append((share, len(set(outages[-3:])) == 1))
        fleet.finish(within_seconds=600)
        cpu = store.cpu_seconds() - seeded
    finally:
        store.close()
    fetches = fleet.origin.fetches
    share = mean(share for share, _ in shares)
    in_calm = mean(share for share, is_calm in shares if is_calm)
    with capsys.disabled():
        print(
            f"\nfleet: {fetches} fetches in {time.monotonic() - began:.0f} s, "
            f"{dict(fleet.counts)}: "
            f"{len(fleet.origin.short)} short gaps, {len(fleet.origin.crowded)} moments above the "
            f"limit, {fleet.origin.blind_short} short gaps of nodes stopped between look and send, "
            f"{share:.1%} of the allowed rate used, {in_calm:.1%} while the server is up, "
            f"{cpu / fetches * 1e6:.0f} µs of the server and "
            f"{store.calls['claim'] / fetches:.2f} claims a fetch"
        )
    check(fleet)
    assert fetches >= 1_000_000
    assert in_calm >= 0.95
