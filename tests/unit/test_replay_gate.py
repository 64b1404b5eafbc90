"""Pages that are fetched by hand keep the host's gap, for the fleet too."""

from __future__ import annotations

import pytest

from orbweb.download.base import Meeting
from orbweb.errors import HostBusy
from orbweb.replay.gate import CLEARING_SECONDS, Manners


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += seconds


class KnownFleet:
    """See `Fleet`."""

    def __init__(self, wait: float = 0.0, gap: float = 0.0, *, paused: bool = False) -> None:
        self.wait, self.gap, self.paused = wait, gap, paused
        self.held: list[tuple[str, float]] = []

    async def wait_seconds(self, host: str) -> float:
        if self.paused:
            raise HostBusy(f"{host} is paused")
        return self.wait

    async def gap_seconds(self, host: str) -> float:
        return self.gap

    async def hold_off(self, host: str, seconds: float) -> None:
        self.held.append((host, seconds))


async def fetched(manners: Manners, host: str = "h", retry_after: float | None = None) -> None:
    gate = manners.gate(host)
    await gate.ready()
    await gate.enter()
    gate.sent()
    await gate.met(Meeting(host, healthy=True, retry_after=retry_after))


async def test_without_a_gap_nobody_waits() -> None:
    clock = Clock()
    manners = Manners(0.0, None, clock=clock, sleep=clock.sleep)
    await fetched(manners)
    await fetched(manners)
    assert clock.slept == []


async def test_the_gap_of_the_settings_is_kept_between_fetches_of_a_host() -> None:
    clock = Clock()
    manners = Manners(2.0, None, clock=clock, sleep=clock.sleep)
    await fetched(manners)
    await fetched(manners, "other")
    clock.now += 0.5
    await fetched(manners)
    assert clock.slept == [1.5]


async def test_a_crawl_delay_counts_from_the_next_fetch_on() -> None:
    clock = Clock()
    manners = Manners(1.0, None, clock=clock, sleep=clock.sleep)
    await manners.gate("h").crawl_delay("h", 5.0)
    await fetched(manners)
    await fetched(manners)
    assert clock.slept == [5.0]


async def test_the_fleet_is_held_off_while_a_page_is_fetched() -> None:
    clock, fleet = Clock(), KnownFleet(gap=3.0)
    await fetched(Manners(1.0, fleet, clock=clock, sleep=clock.sleep))
    assert fleet.held == [("h", CLEARING_SECONDS + 3.0)]
    assert clock.slept == [CLEARING_SECONDS]


async def test_the_hosts_next_turn_is_waited_for_but_not_for_ever() -> None:
    clock = Clock()
    await fetched(Manners(0.0, KnownFleet(wait=4.0), clock=clock, sleep=clock.sleep))
    assert clock.slept == [4.0]
    with pytest.raises(HostBusy, match="600 s"):
        await fetched(Manners(0.0, KnownFleet(wait=600.0), clock=clock, sleep=clock.sleep))


async def test_a_host_that_an_operator_paused_is_not_fetched_from() -> None:
    clock = Clock()
    with pytest.raises(HostBusy, match="paused"):
        await fetched(Manners(0.0, KnownFleet(paused=True), clock=clock, sleep=clock.sleep))


async def test_a_host_that_asks_for_rest_is_left_alone_by_all() -> None:
    clock, fleet = Clock(), KnownFleet()
    manners = Manners(0.0, fleet, clock=clock, sleep=clock.sleep)
    await fetched(manners, retry_after=30.0)
    assert fleet.held == [("h", 30.0)]
    await fetched(manners)
    assert clock.slept == [30.0]


async def test_robots_of_another_host_has_a_gate_of_its_own() -> None:
    clock = Clock()
    manners = Manners(2.0, None, clock=clock, sleep=clock.sleep)
    await fetched(manners)
    await manners.gate("h").elsewhere("other").ready()
    assert clock.slept == []
