"""A dead host is asked one request now and then, by the whole fleet, until it lives again."""

from __future__ import annotations

import random
from itertools import pairwise

from tests.fleet.fleet import Fleet
from tests.fleet.origin import Answer, Origin
from tests.fleet.store import MemoryStore
from tests.fleet.timeline import Timeline

from orbweb.frontier.base import RunConfig

COOLDOWN_MS = 10_000
DEAD_SECONDS = 100


def test_a_dead_host_is_left_alone_and_one_trial_brings_it_back() -> None:
    timeline, rng = Timeline(), random.Random(6)
    dies = timeline.now + 10_000
    revives = dies + DEAD_SECONDS * 1000

    def site(host: str, at: float) -> Answer:
        return Answer(1_000, healthy=False) if dies <= at < revives else Answer(100)

    origin = Origin(site, gap_ms=200, most=4, keep=True)
    config = RunConfig(
        host_concurrency=4,
        host_delay_ms=200,
        circuit_threshold=10,
        circuit_cooldown_ms=COOLDOWN_MS,
        max_retries=1_000,
    )
    fleet = Fleet(timeline, rng, MemoryStore(timeline, rng), origin, config, ("a", "b"))
    for job in ("a", "b"):
        fleet.add(job, "h", 10_000, 50)
    fleet.enter()
    for n in range(6):
        fleet.start("ab"[n % 2], 16)
    fleet.run_for(10 + DEAD_SECONDS + 1.25 * 8 * COOLDOWN_MS / 1000 + 10)
    times = origin.times("h")
    dead = [at for at in times if dies <= at < revives]
    until_open = [at for at in dead if at < dies + 5_000]
    trials = dead[len(until_open) :]
    assert 10 <= len(until_open) <= 10 + 8, "ten that fail, and what was sent before they were told"
    assert 1 <= len(trials) <= 4, "one after 10 s, 20 s, 40 s, 80 s"
    assert all(b - a >= COOLDOWN_MS for a, b in pairwise(trials))
    back = [at for at in times if at >= revives]
    assert back[1] - back[0] >= 100, "one trial first"
    after = [at for at in back if back[0] <= at < back[0] + 10_000]
    assert len(after) >= 40, "and then the whole rate again"
    assert origin.short == origin.crowded == []
