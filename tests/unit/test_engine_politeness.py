"""Politeness of an engine: turns, signals and pauses as its store sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.engine_world import SITE, Crawler, Town, links

from orbweb.errors import SpiderError
from orbweb.frontier.base import SLACK_MS, Claim, Permit, PermitCode, RunConfig, Signal
from orbweb.frontier.memory import MemoryFrontier

PAGES = {f"{SITE}/{n}": links() for n in range(40)}


class Watched(MemoryFrontier):
    """A memory frontier that notes what it is told, and can refuse permits."""

    later = 0
    signals: list[Signal]
    claims: list[tuple[int, int, int]]

    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        claim = await super().claim(node, seq, want, lease_ms)
        self.claims.append((self.shard.now_ms(), want, len(claim.leases)))
        return claim

    async def permit(self, id: str, token: str, mark: int, slack_ms: int = SLACK_MS) -> Permit:
        if self.later:
            self.later -= 1
            return Permit(PermitCode.LATER)
        return await super().permit(id, token, mark, slack_ms)

    async def report(self, signals: Sequence[Signal]) -> None:
        self.signals += signals
        await super().report(signals)


def watched(town: Town) -> Watched:
    store = Watched(town.shard, "job")
    store.signals, store.claims = [], []
    return store


def test_requests_of_a_host_with_a_delay_are_sent_so_far_apart() -> None:
    town = Town(PAGES, config=RunConfig(lease_ms=10_000, host_delay_ms=200), seconds=0.05)
    at: list[float] = []

    class Stamping(dict[str, Any]):
        def get(self, url: str, default: Any = None) -> Any:
            at.append(town.timeline.seconds())
            return links()

    town.chain.pages = Stamping()
    town.run(town.node(Crawler(*map(str, range(20)))), town.node(Crawler("0")))
    gaps = [round(later - earlier, 3) for earlier, later in pairwise(at)]
    assert len(gaps) == 19
    assert min(gaps) >= 0.2
    assert sum(gaps) <= 19 * 0.2 / 0.95


def test_a_host_whose_turn_is_not_soon_gets_its_request_back_uncounted() -> None:
    town = Town(PAGES)

    class Robotic(type(town.chain)):  # type: ignore[misc]
        async def download(self, request: Any, *, gate: Any, **options: Any) -> Any:
            if not self.asked:
                await gate.ready()
                await gate.enter()  # as for robots.txt
            return await super().download(request, gate=gate, **options)

    town.chain = Robotic(PAGES, 0.1)
    store = watched(town)
    store.later = 1
    (report,) = town.run(town.node(Crawler("1"), frontier=store))
    assert report.run is not None
    assert report.run.reasons == {"done": 1}
    assert (report.run.retried, report.counts["retry"]) == (0, 0)
    assert store.later == 0


def test_what_was_met_is_told_and_the_last_of_it_at_the_end() -> None:
    town = Town({**PAGES, f"{SITE}/bad": 500}, config=RunConfig(lease_ms=10_000, max_retries=0))
    store = watched(town)
    town.run(town.node(Crawler(*map(str, range(9)), "bad"), frontier=store))
    assert sum(signal.good for signal in store.signals) == 9
    assert sum(signal.bad for signal in store.signals) == 1
    latency = sum(signal.latency_ms for signal in store.signals)
    assert latency == 10 * 100
    assert {signal.host for signal in store.signals} == {"site.test"}


def test_a_run_without_a_fetch_tells_nothing() -> None:
    town = Town()
    store = watched(town)

    class Empty(Crawler):
        def start_requests(self) -> Any:
            return []

    town.run(town.node(Empty(), frontier=store))
    assert store.signals == []


def test_a_node_that_wants_more_than_it_gets_does_not_ask_without_a_pause() -> None:
    town = Town(PAGES, config=RunConfig(lease_ms=10_000, host_delay_ms=20), seconds=0.3)
    store = watched(town)
    town.run(town.node(Crawler(*map(str, range(40))), frontier=store))
    assert len(store.claims) < 250


def test_sitemaps_for_both_kinds_of_callbacks() -> None:
    town = Town(PAGES)
    found: list[Any] = []

    async def ask(engine: Any) -> None:
        found.append(await engine.sitemaps(f"{SITE}/x"))
        with pytest.raises(SpiderError, match="await"):
            engine.wait_sitemaps(f"{SITE}/x")
        await asyncio.sleep(3600)

    (report,) = town.drive([town.start(town.node(Crawler("1")), ask)])
    assert report.exit_code == 0
    assert found == [(f"{SITE}/sitemap.xml",)]
