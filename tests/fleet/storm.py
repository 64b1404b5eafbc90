"""A fleet of two jobs in which nodes die, stop, come and go while the server restarts."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.fleet.fleet import Fleet
from tests.fleet.origin import Origin, steady
from tests.fleet.store import Store
from tests.fleet.timeline import Timeline

from orbweb.frontier.base import RunConfig

JOBS = "a", "b"
MOST = 2


@dataclass(frozen=True, slots=True)
class Storm:
    """How much of it."""

    nodes: int
    hosts: int
    pages: int
    """Of each host and job."""
    delay_ms: int
    trouble_seconds: float
    concurrency: int = 64

    def fleet(self, timeline: Timeline, rng: random.Random, store: Store) -> Fleet:
        """The fleet at its start, with all of its work on the way."""
        config = RunConfig(
            host_concurrency=MOST,
            host_delay_ms=self.delay_ms,
            lease_ms=12_000,
            fetch_timeout_ms=10_000,
            max_deliveries=1_000,
        )
        origin = Origin(steady(rng, 50, 500), gap_ms=self.delay_ms, most=MOST)
        fleet = Fleet(timeline, rng, store, origin, config, JOBS)
        for n in range(self.hosts):
            for job in JOBS:
                fleet.add(job, f"h{n}.test", self.pages)
        fleet.enter(over_ms=self.delay_ms)
        fleet.run_for(0.001)
        for n in range(self.nodes):
            fleet.start(JOBS[n % 2], self.concurrency)
        fleet.trouble(self.trouble_seconds, self.concurrency)
        return fleet

    def share(self, fleet: Fleet, seconds: float) -> float:
        """Run for so long; what part of the allowed fetches was made, as long as all have work."""
        before = fleet.origin.fetches
        fleet.run_for(seconds)
        return (fleet.origin.fetches - before) * self.delay_ms / (self.hosts * seconds * 1000)
