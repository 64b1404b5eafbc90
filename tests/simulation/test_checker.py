"""The judge of simulated runs finds what is planted, and nothing in a sound history."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from orbweb.testing.simulator.checker import check
from orbweb.testing.simulator.history import DeadPage, Event, Exit, Record, Start, Stored
from orbweb.testing.simulator.plan import Weather
from orbweb.testing.simulator.world import prepared, simulate


def _sound(weather: Weather, fits: Callable[[Record], bool]) -> Record:
    with prepared():
        for seed in range(100):
            record, violations = simulate(seed, weather)
            if not violations and fits(record):
                return record
    raise AssertionError("no seed fits")


@pytest.fixture(scope="module")
def storm() -> Record:
    """Without twins and poison, with a limit on hosts, a crash and all kinds of dead letters."""
    return _sound(
        Weather.STORM,
        lambda record: (
            not any(page.twins or page.leads_to for page in record.site.pages.values())
            and not record.site.twin_seeds
            and not record.plan.poison
            and record.plan.config.host_concurrency > 0
            and record.count("crash") > 0
            and len(record.dead) > 1
        ),
    )


@pytest.fixture(scope="module")
def calm() -> Record:
    return _sound(Weather.CALM, lambda record: True)


def names(record: Record) -> set[str]:
    return {violation.name for violation in check(record)}


def plain_page(record: Record) -> str:
    """A page with items that is nothing special."""
    return next(
        event.subject
        for event in record.of_kind("stored")
        if event.subject not in record.dead and not record.site.pages[event.subject].links
    )


def replace_first(record: Record, kind: str, change: Callable[[Event], Event]) -> None:
    index = next(index for index, event in enumerate(record.events) if event.kind == kind)
    record.events[index] = change(record.events[index])


def lost_url(record: Record) -> None:
    page = plain_page(record)
    record.events = [
        event for event in record.events if event.subject != page or event.kind != "end"
    ]


def lost_item(record: Record) -> None:
    page = plain_page(record)
    record.events = [
        event for event in record.events if event.subject != page or event.kind != "stored"
    ]


def duplicate_item(record: Record) -> None:
    page = plain_page(record)
    record.events.append(Event(record.end_ms, "stored", "n", page, Stored("other key", 0)))


def key_conflict(record: Record) -> None:
    record.events.append(Event(record.end_ms, "key_conflict", "n", "p1", ("p2", 0)))


def unknown_url(record: Record) -> None:
    record.events.append(Event(record.end_ms, "end", "n", "nowhere"))


def early_exit(record: Record) -> None:
    middle = len(record.events) // 2
    record.events.insert(
        middle, Event(record.events[middle].at_ms, "exit", "n9", "", Exit(0, "done", 0, False))
    )


def exit_while_pending(record: Record) -> None:
    replace_first(
        record,
        "exit",
        lambda event: event._replace(detail=Exit(0, "done", 3, joined_done=False)),
    )


def crash_of_the_engine(record: Record) -> None:
    record.events.append(Event(record.end_ms, "exit", "n9", "boom", Exit(1, "failed", 0, False)))


def stopped_by_nobody(record: Record) -> None:
    record.events = [event for event in record.events if not event.kind.startswith("operator")]
    record.events.append(Event(record.end_ms, "exit", "n99", "", Exit(75, "stopped", 0, False)))


def nothing_done_although_it_was(record: Record) -> None:
    record.events.append(Event(record.end_ms, "exit", "n9", "", Exit(3, "done", 0, False)))


def joined_before_the_end(record: Record) -> None:
    record.events.insert(
        0, Event(0, "exit", "n9", "", Exit(3, "joined_finished", 0, joined_done=True))
    )


def slow_stop(record: Record) -> None:
    record.events.append(Event(record.end_ms, "stop_took", "n9", detail=9_000))


def zombie_start(record: Record) -> None:
    replace_first(
        record,
        "start",
        lambda event: event._replace(detail=event.detail._replace(current=False)),
    )


def too_many_on_a_host(record: Record) -> None:
    replace_first(
        record, "start", lambda event: event._replace(detail=Start("n:1", True, overlap=50))
    )


def acked_twice(record: Record) -> None:
    record.events.append(next(record.of_kind("acked")))


def poison_loop(record: Record) -> None:
    record.events += [Event(record.end_ms, "crash", f"n{n}", "p1") for n in range(6)]


def dead_without_reason(record: Record) -> None:
    name = next(iter(record.dead))
    record.dead[name] = DeadPage(record.dead[name].reason, "", 1)


def wrong_dead(record: Record) -> None:
    record.dead[plain_page(record)] = DeadPage("dns", "no such host", 3)


def missing_dead(record: Record) -> None:
    record.dead.clear()


def not_ended(record: Record) -> None:
    record.ended = False


def not_done(record: Record) -> None:
    record.state = "running"


def livelock(record: Record) -> None:
    record.events.append(Event(record.end_ms, "livelock", detail="the clock stands still"))


def loop_error(record: Record) -> None:
    record.events.append(Event(record.end_ms, "loop_error", "n9", detail="Exception in callback"))


def wrong_count(record: Record) -> None:
    record.items += 1


PLANTED = {
    lost_url: "lost_url",
    lost_item: "lost_item",
    duplicate_item: "duplicate_item",
    key_conflict: "key_conflict",
    unknown_url: "unknown_url",
    early_exit: "early_exit",
    exit_while_pending: "early_exit",
    crash_of_the_engine: "wrong_exit",
    stopped_by_nobody: "wrong_exit",
    nothing_done_although_it_was: "wrong_exit",
    joined_before_the_end: "wrong_exit",
    slow_stop: "slow_stop",
    zombie_start: "zombie_start",
    too_many_on_a_host: "slots",
    acked_twice: "acked_twice",
    poison_loop: "poison_loop",
    dead_without_reason: "dead_without_reason",
    wrong_dead: "wrong_dead",
    missing_dead: "missing_dead",
    not_ended: "not_ended",
    not_done: "not_done",
    livelock: "livelock",
    loop_error: "loop_error",
    wrong_count: "wrong_count",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_violation_is_found(storm: Record, plant: Callable[[Record], None]) -> None:
    record = copy.deepcopy(storm)
    plant(record)
    assert PLANTED[plant] in names(record)


def test_a_second_fetch_in_a_healthy_fleet_is_found(calm: Record) -> None:
    record = copy.deepcopy(calm)
    record.events.append(next(record.of_kind("start")))
    assert "fetched_in_calm" in names(record)


def test_a_lost_lease_in_a_healthy_fleet_is_found(calm: Record) -> None:
    record = copy.deepcopy(calm)
    record.reaped = 1
    assert "reaped_in_calm" in names(record)


def test_sound_histories_are_not_accused(storm: Record, calm: Record) -> None:
    assert names(storm) == names(calm) == set()
