"""Leases: kept while their node lives, given up when it does not, and never worked on twice."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.engine_world import SITE, Crawler, Town, end, links

from orbweb.engine.ledger import Ledger
from orbweb.frontier.base import Held, RunConfig

PAGES = {f"{SITE}/{n}": links() for n in range(40)}
SEEDS = tuple(map(str, range(40)))


def test_a_lease_is_valid_from_the_sending_of_its_last_renewal() -> None:
    ledger, held = Ledger(60.0, 7.5), Held("a", "n:1")
    ledger.add(held, sent=100.0)
    assert ledger.valid(held, 152.4)
    assert not ledger.valid(held, 152.6)
    ledger.renewed([held], sent=150.0)
    assert ledger.valid(held, 202.4)
    ledger.renewed([held], sent=120.0)
    assert ledger.valid(held, 202.4), "an answer that comes late takes nothing back"
    assert not ledger.valid(Held("a", "n:2"), 110.0), "another token is another lease"


def test_a_renewal_that_comes_after_the_end_revives_nothing() -> None:
    ledger, held = Ledger(60.0, 7.5), Held("a", "n:1")
    ledger.add(held, sent=0.0)
    ledger.remove(held)
    ledger.renewed([held], sent=1.0)
    assert held not in ledger
    assert ledger.held() == []


def test_only_work_that_goes_on_is_overdue() -> None:
    ledger = Ledger(60.0, 7.5)
    working, storing = Held("a", "n:1"), Held("b", "n:1")
    for held in (working, storing):
        ledger.add(held, sent=0.0)
    ledger.finishing(storing)
    assert ledger.overdue(99.0, 100.0) == []
    assert ledger.overdue(101.0, 100.0) == [working]


def test_a_page_that_takes_longer_than_its_lease_is_not_given_to_another_node() -> None:
    town = Town(PAGES, config=RunConfig(lease_ms=2000), seconds=7.0)
    reports = town.run(*(town.node(Crawler(*SEEDS[:4])) for _ in range(2)))
    assert sorted(town.chain.asked) == sorted(f"{SITE}/{n}" for n in range(4))
    run = reports[0].run
    assert run is not None
    assert (run.reaped, run.fenced) == (0, 0)


def test_what_a_dead_node_held_is_done_by_another() -> None:
    town = Town(PAGES, config=RunConfig(lease_ms=3000), seconds=1.0)
    dead = town.start(town.node(Crawler(*SEEDS)))
    town.timeline.run(town.timeline.now_ms + 2500, dead.done)
    (loop,) = town.timeline.loops
    loop.abandon()
    (report,) = town.run(town.node(Crawler(*SEEDS)))
    end(loop)
    assert report.exit_code == 0
    assert len({row["url"] for row in town.rows}) == 40
    assert len(town.chain.asked) - 40 <= 8


def test_a_node_that_was_stopped_for_longer_than_its_lease_changes_nothing() -> None:
    town = Town(PAGES, config=RunConfig(lease_ms=2000), seconds=0.5)
    sleeper = town.start(town.node(Crawler(*SEEDS)))
    town.timeline.run(town.timeline.now_ms + 1200, sleeper.done)
    (loop,) = town.timeline.loops
    loop.paused_until_ms = town.timeline.now_ms + 30_000
    other = town.start(town.node(Crawler(*SEEDS)))
    reports = town.drive([sleeper, other])
    assert [report.exit_code for report in reports] == [0, 0]
    assert len({row["_key"] for row in town.rows}) == 40
    run = reports[0].run
    assert run is not None
    assert run.reasons["done"] == 40


def test_a_callback_that_never_ends_is_given_back_and_in_the_end_given_up() -> None:
    class Hanging(Crawler):
        async def parse(self, request: Any, response: Any) -> Any:
            if request.url.endswith("/3"):
                await asyncio.sleep(10_000)
            yield {"url": request.url}

    town = Town(PAGES, config=RunConfig(lease_ms=10_000, max_retries=1))
    (report,) = town.run(town.node(Hanging(*SEEDS[:6]), max_hold_seconds=60.0))
    assert report.exit_code == 0
    assert len(town.rows) == 5
    assert report.run is not None
    assert report.run.reasons == {"done": 5, "timeout": 1}
    assert 120 <= report.elapsed_seconds <= 160


def test_a_callback_that_refuses_to_be_cancelled_does_not_hold_its_lease() -> None:
    class Stubborn(Crawler):
        async def parse(self, request: Any, response: Any) -> Any:
            for _ in range(3):
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    continue
            yield {"url": request.url}

    town = Town(PAGES, config=RunConfig(lease_ms=10_000, max_retries=0), seconds=0.1)
    (report,) = town.run(town.node(Stubborn("1"), max_hold_seconds=20.0))
    assert report.run is not None
    assert report.run.reasons == {"timeout": 1}
    assert town.rows == [], "what comes after the outcome counts for nothing"


def test_a_page_that_kills_its_nodes_takes_no_other_page_with_it() -> None:
    class Deadly(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            if request.url.endswith("/7"):
                asyncio.get_running_loop().abandon()  # type: ignore[attr-defined]
                raise asyncio.CancelledError
            yield {"url": request.url}

    town = Town(PAGES, config=RunConfig(lease_ms=1000), seconds=0.2)
    deaths, loops = 0, []
    while True:
        node = town.start(town.node(Deadly(*SEEDS[:12]), concurrency=12))
        (loop,) = town.timeline.loops
        loops.append(loop)
        if town.timeline.run(town.timeline.now_ms + 3_600_000, node.done):
            break
        deaths += 1
        assert deaths < 10
    (report,) = town.drive([node])
    for each in loops[:-1]:
        end(each)
    assert deaths == 5
    assert report.run is not None
    assert report.run.reasons == {"done": 11, "poison": 1}
    assert town.chain.asked.count(f"{SITE}/7") == 5


def test_when_the_loop_stands_still_the_keeper_lets_other_nodes_take_over() -> None:
    from orbweb.engine.keeper import Keeper, KeeperOptions

    renewed: list[list[Held]] = []

    class Store:
        async def renew(self, node: str, lease_ms: int, held: Any, beat: bytes = b"") -> Any:
            renewed.append(list(held))
            return [], False

    class Events:
        def on_lost(self, held: Any) -> None: ...
        def on_overdue(self, held: Any) -> None: ...
        def on_stop(self) -> None: ...

    now, pulse = 0.0, 0
    ledger = Ledger(60.0, 7.5)
    ledger.add(Held("a", "n:1"), 0.0)
    town = Town()
    keeper = Keeper(
        ledger,
        Events(),
        KeeperOptions("n", 60_000, 3.0, watchdog_seconds=30.0, max_hold_seconds=3600.0),
        pulse=lambda: pulse,
        beat=lambda: b"",
        clock=lambda: now,
        rng=town.rng,
    )

    async def beat_at(at: float) -> int:
        nonlocal now
        now = at
        before = len(renewed)
        await keeper.beat(Store())  # type: ignore[arg-type]
        return len(renewed) - before

    assert asyncio.run(beat_at(1.0)) == 1
    assert asyncio.run(beat_at(29.0)) == 1
    assert asyncio.run(beat_at(32.0)) == 0
    pulse = 1
    assert asyncio.run(beat_at(35.0)) == 1
