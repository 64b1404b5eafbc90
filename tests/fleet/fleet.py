"""A fleet of simulated nodes on one store, and the work that it is given."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tests.fleet.node import Node, World
from tests.fleet.origin import Origin
from tests.fleet.store import Store
from tests.fleet.timeline import Timeline

from orbweb.frontier.base import Lease, NewRequest, RunConfig


class Work:
    """The pages of a job: chains, each of one host, in which every page links to the next.

    What a page links to depends on the page only, so a page that is fetched again adds nothing.
    """

    def __init__(self, job: str) -> None:
        self.job = job
        self.pages = 0
        self._lengths: list[int] = []

    def chains(self, host: str, length: int, number: int = 1) -> list[NewRequest]:
        """The first pages of so many chains."""
        self.pages += length * number
        first = len(self._lengths)
        self._lengths += [length] * number
        return [self._page(host, first + n, 1) for n in range(number)]

    def links(self, lease: Lease) -> Sequence[NewRequest]:
        _, chain, place = lease.id.split(".")
        if int(place) >= self._lengths[int(chain)]:
            return ()
        return (self._page(lease.host, int(chain), int(place) + 1),)

    def cut(self) -> None:
        """No page links to another any more."""
        self._lengths = [0] * len(self._lengths)

    def _page(self, host: str, chain: int, place: int) -> NewRequest:
        fingerprint = (chain * 1_000_003 + place) * 7_046_029_254_386_353_131 % 2**63
        return NewRequest(f"{self.job}.{chain}.{place}", host, 0, fingerprint, b"x")


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
        self._first: list[tuple[str, NewRequest]] = []
        self._worlds = {
            job: World(timeline, rng, store, origin, config.lease_ms, work.links)
            for job, work in self.works.items()
        }
        for job in jobs:
            store.open(job, config)

    def tune(self, **changes: object) -> None:
        """Change what the nodes that are started from now on share."""
        for job, world in self._worlds.items():
            self._worlds[job] = replace(world, **changes)  # type: ignore[arg-type]

    def add(self, job: str, host: str, length: int, number: int = 1) -> None:
        """So many chains of pages for the job."""
        self._first += [(job, page) for page in self.works[job].chains(host, length, number)]

    def enter(self, over_ms: float = 0) -> None:
        """Give the store what was added, at once or spread over a time."""
        parts = 20 if over_ms else 1
        for n in range(parts):
            self.timeline.after(over_ms * n / parts, self._enter, self._first[n::parts])
        self._first = []
        if not over_ms:
            self.run_for(0.001)

    def _enter(self, first: Sequence[tuple[str, NewRequest]]) -> None:
        for job in self.works:
            self.store.add(job, [page for its_job, page in first if its_job == job])

    def start(self, job: str, concurrency: int) -> Node:
        self._births += 1
        node = Node(self._worlds[job], f"n{self._births}", job, concurrency)
        self.nodes.append(node)
        return node

    @property
    def living(self) -> list[Node]:
        return [node for node in self.nodes if node.alive and not node.leaving]

    @property
    def pages(self) -> int:
        return sum(work.pages for work in self.works.values())

    def run_for(self, seconds: float) -> None:
        self.timeline.run(self.timeline.now + seconds * 1000)

    def finish(self, within_seconds: float) -> float:
        """Run until nothing is pending; returns how many seconds that took."""
        began = self.timeline.now
        while any(self.store.pending(job) for job in self.works):
            assert self.timeline.now < began + within_seconds * 1000, "the work does not end"
            self.run_for(0.1)
        return (self.timeline.now - began) / 1000

    def trouble(self, every_seconds: float, concurrency: int) -> None:
        """From now on nodes are killed, stopped, replaced, sent home, and the server restarts."""

        def next_one() -> None:
            self._strike(concurrency)
            self.timeline.after(self.rng.uniform(0.5, 1.5) * every_seconds * 1000, next_one)

        next_one()

    def _strike(self, concurrency: int) -> None:
        node = self.rng.choice(self.living)
        kind = self.rng.choices(("kill", "freeze", "blink", "leave", "outage"), (3, 3, 6, 2, 1))[0]
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
