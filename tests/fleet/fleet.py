"""A fleet of simulated nodes on one store, and the work that it is given."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.fleet.node import Node, World
from tests.fleet.origin import Origin
from tests.fleet.store import Store
from tests.fleet.timeline import Timeline

from orbweb.frontier.base import Lease, NewRequest, RunConfig


class Work:
    """Requests of a run: some at the start, and a page for each that is done, up to a number.

    So a host that has one request has one until the end. Every request is deduplicated.
    """

    def __init__(self, job: str, total: int = 0) -> None:
        self.job = job
        self.left = total
        """Pages that are still to be linked to."""
        self.made = 0
        self.done = 0

    def requests(self, hosts: Iterable[str]) -> list[NewRequest]:
        """A new request for each host."""
        return [self._new(host) for host in hosts]

    def links(self, lease: Lease) -> Sequence[NewRequest]:
        if self.left <= 0:
            return ()
        self.left -= 1
        return (self._new(lease.host),)

    def _new(self, host: str) -> NewRequest:
        self.made += 1
        name = f"{self.job}{self.made}"
        return NewRequest(name, host, 0, hash((self.job, self.made)) & 0x7FFFFFFFFFFFFFFF, b"x")


class Fleet:
    """Nodes that work on jobs until nothing is left, or for as long as a test likes."""

    def __init__(
        self,
        timeline: Timeline,
        rng: random.Random,
        store: Store,
        origin: Origin,
        config: RunConfig,
        jobs: Sequence[str] = ("a",),
    ) -> None:
        self.timeline = timeline
        self.rng = rng
        self.store = store
        self.origin = origin
        self.works = {job: Work(job) for job in jobs}
        self.nodes: list[Node] = []
        self.counts: Counter[str] = Counter()
        self._births = 0
        self._worlds = {
            job: World(
                timeline, rng, store, origin, config.lease_ms, work.links, self._finisher(work)
            )
            for job, work in self.works.items()
        }
        for job in jobs:
            store.open(job, config)

    def _finisher(self, work: Work):  # type: ignore[no-untyped-def]
        def finished(lease: Lease) -> None:
            work.done += 1

        return finished

    def tune(self, **changes: object) -> None:
        """Change what the nodes that are started from now on share."""
        for job, world in self._worlds.items():
            self._worlds[job] = replace(world, **changes)  # type: ignore[arg-type]

    def add(self, job: str, hosts: Iterable[str]) -> None:
        """One request for each host that is named, at once."""
        self.store.add(job, self.works[job].requests(hosts))

    def start(self, job: str, concurrency: int) -> Node:
        self._births += 1
        node = Node(self._worlds[job], f"n{self._births}", job, concurrency)
        self.nodes.append(node)
        return node

    @property
    def living(self) -> list[Node]:
        return [node for node in self.nodes if node.alive and not node.leaving]

    @property
    def done(self) -> int:
        return sum(work.done for work in self.works.values())

    @property
    def made(self) -> int:
        return sum(work.made for work in self.works.values())

    def run_for(self, seconds: float) -> None:
        self.timeline.run(self.timeline.now + seconds * 1000)

    def finish(self, within_seconds: float) -> float:
        """Run until all work is done; returns how many seconds that took."""
        began = self.timeline.now
        self.timeline.run(began + within_seconds * 1000, lambda: self.done >= self.made)
        assert self.done >= self.made, f"{self.made - self.done} of {self.made} pages are not done"
        return (self.timeline.now - began) / 1000

    def trouble(self, every_seconds: float, concurrency: int) -> None:
        """From now on nodes are killed, stopped, replaced, sent home, and the server restarts."""

        def next_one() -> None:
            self._strike(concurrency)
            self.timeline.after(self.rng.uniform(0.5, 1.5) * every_seconds * 1000, next_one)

        next_one()

    def _strike(self, concurrency: int) -> None:
        node = self.rng.choice(self.living)
        kind = self.rng.choices(
            ("kill", "freeze", "blink", "leave", "outage"), (3, 3, 6, 2, 0.5)
        )[0]
        self.counts[kind] += 1
        if kind == "outage":
            self.store.outage(self.rng.uniform(500, 4_000))
        elif kind == "freeze":
            node.freeze(self.rng.choice((500, 3_000, 15_000, 40_000)))
        elif kind == "blink":
            node.freeze(self.rng.uniform(3, 300))
        else:
            node.kill() if kind == "kill" else node.leave()
            pause = self.rng.uniform(0, 5_000)
            self.timeline.after(pause, self.start, node.job, concurrency)
