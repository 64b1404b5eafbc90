"""Fleets of the production engine in virtual time, with every fault, and mutants of the design."""

from __future__ import annotations

import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest

from orbweb.testing.simulator.history import Record
from orbweb.testing.simulator.plan import Faults, Weather, make_plan
from orbweb.testing.simulator.runner import (
    ALL_MUTANTS,
    Tally,
    history_in_new_process,
    hunt,
    run_on_processes,
    run_seeds,
)
from orbweb.testing.simulator.world import Simulation, prepared

MIXED_RUNS = 8_000
ROLLBACK_RUNS = 2_000
SPREAD_RUNS = 2_000
TASK_RUNS = 800

FOUND_SOMETHING = (6, 9, 42, 83, 98, 118, 196, 1259, 2229, 4190, 4620, 4675, 6651, 7195, 7990)
FOUND_AFTER_ROLLBACK = (27,)
FOUND_ON_FOUR_SHARDS = (175, 565, 765, 1222, 1450)

RARE = {"renewal_believed"}
"""Mutants that take hundreds of seeds; they are looked for in the long run only."""


def describe(tally: Tally) -> str:
    return "\n".join(f"seed {seed}: {found}" for seed, found in tally.failures.items())


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_nothing_is_lost_whatever_happens_to_the_nodes(first: int) -> None:
    tally = run_seeds(range(first, first + 40))
    assert not tally.failures, describe(tally)
    assert tally.counts["crash"] > 20
    assert tally.counts["outage"] > 5


def test_nothing_is_lost_when_the_server_forgets_its_last_writes() -> None:
    tally = run_seeds(range(40), Weather.ROLLBACK)
    assert not tally.failures, describe(tally)
    assert tally.counts["rollback"] > 40


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_nothing_is_lost_of_a_run_on_four_shards(first: int) -> None:
    tally = run_seeds(range(first, first + 20), shards=4)
    assert not tally.failures, describe(tally)
    assert tally.counts["crash"] > 10


def test_nothing_is_lost_on_four_shards_when_their_server_forgets_its_last_writes() -> None:
    tally = run_seeds(range(12), Weather.ROLLBACK, shards=4)
    assert not tally.failures, describe(tally)
    assert tally.counts["rollback"] > 12


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_every_task_is_told_to_have_ended_and_none_too_soon(first: int) -> None:
    tally = run_seeds(range(first, first + 8), tasks=True)
    assert not tally.failures, describe(tally)
    assert tally.counts["crash"] > 4
    assert tally.counts["told"] > 80


def test_every_task_is_told_whatever_the_server_forgets() -> None:
    tally = run_seeds(range(6), Weather.ROLLBACK, tasks=True)
    assert not tally.failures, describe(tally)
    assert tally.counts["rollback"] > 6


def test_tasks_over_four_shards_are_told_to_have_ended() -> None:
    tally = run_seeds(range(6), shards=4, tasks=True)
    assert not tally.failures, describe(tally)
    assert tally.counts["told"] > 60


def test_seeds_that_once_found_something_find_nothing_any_more() -> None:
    mixed, rolled = run_seeds(FOUND_SOMETHING), run_seeds(FOUND_AFTER_ROLLBACK, Weather.ROLLBACK)
    spread = run_seeds(FOUND_ON_FOUR_SHARDS, shards=4)
    for tally in (mixed, rolled, spread):
        assert not tally.failures, describe(tally)


@pytest.mark.parametrize("name", [name for name in ALL_MUTANTS if name not in RARE])
def test_a_mutant_of_the_design_is_caught(name: str) -> None:
    tally = hunt(name)
    assert tally.caught(ALL_MUTANTS[name]), tally.line()


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_page_that_kills_its_nodes_takes_no_innocent_page_with_it(nodes: int) -> None:
    with prepared():
        for seed in range(20):
            record = crowd_with_poison(seed, nodes)
            dead = [name for name, letter in record.dead.items() if letter.reason == "poison"]
            assert all(record.site.pages[name].poison for name in dead), f"seed {seed}: {dead}"
            assert record.ended
            assert record.count("crash") == len(dead) * record.plan.config.max_deliveries


def crowd_with_poison(seed: int, nodes: int) -> Record:
    """All pages are seeds and their hosts have no limit, so the poison is held beside many others;
    nothing else goes wrong."""
    rng = random.Random(seed)
    plan = make_plan(seed, rng, Weather.STORM)
    config = replace(plan.config, host_concurrency=0, host_delay_ms=0, keep_alive=False)
    plan = replace(
        plan,
        faults=Faults(outage=0),
        config=config,
        poison=True,
        nodes=nodes,
        concurrency=16,
        max_held=40,
    )
    simulation = Simulation(plan, rng)
    site = simulation.site
    site.seeds = [name for name in site.pages if name != "twin"]
    site.twin_seeds.clear()
    rng.shuffle(site.seeds)
    return simulation.run()


def test_the_same_seed_gives_the_same_history() -> None:
    one, two = (history_in_new_process(7, hash_seed) for hash_seed in ("0", "1"))
    assert len(one.splitlines()) > 100
    assert one == two


def test_other_seeds_give_other_histories() -> None:
    assert history_in_new_process(7, "0") != history_in_new_process(8, "0")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_fleets(capsys: pytest.CaptureFixture[str]) -> None:
    mixed = run_on_processes(range(MIXED_RUNS))
    rolled = run_on_processes(range(ROLLBACK_RUNS), Weather.ROLLBACK)
    with capsys.disabled():
        print(f"\nmixed    {mixed.line()}\nrollback {rolled.line()}")
    assert not mixed.failures, describe(mixed)
    assert not rolled.failures, describe(rolled)
    assert mixed.runs + rolled.runs == MIXED_RUNS + ROLLBACK_RUNS


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_thousands_of_fleets_on_four_shards(capsys: pytest.CaptureFixture[str]) -> None:
    mixed = run_on_processes(range(SPREAD_RUNS), shards=4)
    rolled = run_on_processes(range(SPREAD_RUNS // 4), Weather.ROLLBACK, shards=4)
    with capsys.disabled():
        print(f"\non 4 shards  {mixed.line()}\nrollback     {rolled.line()}")
    assert not mixed.failures, describe(mixed)
    assert not rolled.failures, describe(rolled)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_hundreds_of_fleets_with_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    mixed = run_on_processes(range(TASK_RUNS), tasks=True)
    spread = run_on_processes(range(TASK_RUNS // 4), tasks=True, shards=4)
    rolled = run_on_processes(range(TASK_RUNS // 4), Weather.ROLLBACK, tasks=True)
    with capsys.disabled():
        print(f"\ntasks        {mixed.line()}\non 4 shards  {spread.line()}\n{rolled.line()}")
    for tally in (mixed, spread, rolled):
        assert not tally.failures, describe(tally)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_seeds_until_each_mutant_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        tallies = dict(zip(ALL_MUTANTS, pool.map(hunt, ALL_MUTANTS), strict=True))
    with capsys.disabled():
        for name, tally in tallies.items():
            print(f"\n{name}: caught after {tally.runs} seeds", end="")
        print()
    missed = [name for name, tally in tallies.items() if not tally.caught(ALL_MUTANTS[name])]
    assert not missed
