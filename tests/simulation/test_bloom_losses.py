"""A fleet with a Bloom filter that errs loses what the filter takes for seen, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from orbweb.frontier.memory_seen import BloomMarks
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.model.fingerprint import fingerprint
from orbweb.model.request import Request
from orbweb.testing.simulator.checker import SILENT, check
from orbweb.testing.simulator.history import Record
from orbweb.testing.simulator.plan import Weather, make_plan
from orbweb.testing.simulator.site import SiteMap
from orbweb.testing.simulator.world import Simulation, prepared

ERRING = SeenConfig(SeenKind.BLOOM, capacity=40, error_rate=0.05, max_layers=1)


@pytest.fixture
def mistaken(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Marks that a filter took for seen although they had never been put into it."""
    mistaken: set[int] = set()

    class Watched(BloomMarks):
        def __init__(self, blocks: int) -> None:
            super().__init__(blocks)
            self.members: set[int] = set()

        def has(self, mark: int) -> bool:
            found = super().has(mark)
            if found and mark not in self.members:
                mistaken.add(mark)
            return found

        def put(self, mark: int) -> bool:
            self.members.add(mark)
            return super().put(mark)

    monkeypatch.setattr("orbweb.frontier.memory_seen.BloomMarks", Watched)
    return mistaken


def crawl(seed: int, weather: Weather) -> Record:
    rng = random.Random(seed)
    plan = make_plan(seed, rng, weather)
    plan = replace(plan, config=replace(plan.config, seen=ERRING))
    return Simulation(plan, rng).run()


@dataclass(slots=True)
class Remaining(SiteMap):
    """What a crawl finds that never gets to some pages."""

    lost: frozenset[str] = frozenset()

    def expected(self, dead_silent: set[str], max_retries: int) -> Counter[str]:
        found = SiteMap.expected(self, dead_silent | self.lost, max_retries)
        return Counter({name: times for name, times in found.items() if name not in self.lost})


def silent_pages(record: Record) -> set[str]:
    """Dead pages that nobody has an answer of: what they link to is unknown."""
    return {name for name, dead in record.dead.items() if dead.reason in SILENT}


def lost_pages(record: Record) -> set[str]:
    found = {event.subject for event in record.of_kind("end")} | set(record.dead)
    retries = record.plan.config.max_retries
    return set(record.site.expected(silent_pages(record), retries)) - found


def only_behind(record: Record, wrong: set[str]) -> set[str]:
    """These pages, and those that only they lead to."""
    site, silent, retries = record.site, silent_pages(record), record.plan.config.max_retries
    return set(site.expected(silent, retries)) - (
        set(site.expected(wrong | silent, retries)) - wrong
    )


@pytest.mark.parametrize("weather", [Weather.CALM, Weather.STORM])
def test_losses_are_false_positives_and_what_only_they_link_to(
    weather: Weather, mistaken: set[int]
) -> None:
    errors = losses = 0
    with prepared():
        for seed in range(20):
            mistaken.clear()
            record = crawl(seed, weather)
            site = record.site
            wrong = {
                name
                for name, page in site.pages.items()
                if fingerprint(Request(page.url), frozenset()) in mistaken
            }
            lost = lost_pages(record)
            assert lost <= only_behind(record, wrong), f"seed {seed}"
            record.site = Remaining(site.pages, site.seeds, site.twin_seeds, lost=frozenset(lost))
            assert check(record) == [], f"seed {seed}"
            errors += len(wrong)
            losses += len(lost)
    assert losses >= errors > 0
