"""Seeding: streams beside the crawl, and goes on when its node dies or its store is rolled back."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.unit.engine_world import SITE, Crawler, Town, end, links

from orbweb.engine.seeder import FLUSH_SECONDS
from orbweb.frontier.base import SEED_ID, RunConfig, SeedCode, SeedReply
from orbweb.frontier.memory_state import Place, Task
from orbweb.model.request import Request

NUMBERS = {f"{SITE}/{n}": links() for n in range(1000)}


def urls(count: int) -> list[str]:
    return sorted(f"{SITE}/{n}" for n in range(count))


class Slow(Crawler):
    """A seed every ten seconds."""

    async def start_requests(self) -> Any:
        for n in range(6):
            yield Request(f"{SITE}/{n}")
            await asyncio.sleep(10)


def test_pages_are_fetched_while_seeding_goes_on() -> None:
    town = Town(NUMBERS)
    fetched_at: list[float] = []

    async def watch(engine: Any) -> None:
        while True:
            await asyncio.sleep(1)
            if len(town.chain.asked) > len(fetched_at):
                fetched_at.append(engine.progress().elapsed_seconds)

    (report,) = town.drive([town.start(town.node(Slow()), watch)])
    assert report.exit_code == 0
    assert fetched_at[0] <= FLUSH_SECONDS + 1
    assert len(fetched_at) == 6


KINDS = ["generator", "list", "coroutine", "async_generator", "start_urls"]


@pytest.mark.parametrize("kind", KINDS)
def test_start_requests_of_every_kind(kind: str) -> None:
    class Kinds(Crawler):
        if kind == "list":

            def start_requests(self) -> Any:
                return [Request(url) for url in urls(5)]

        elif kind == "coroutine":

            async def start_requests(self) -> Any:
                return [Request(url) for url in urls(5)]

        elif kind == "async_generator":

            async def start_requests(self) -> Any:
                for url in urls(5):
                    yield Request(url)

        elif kind == "generator":

            def start_requests(self) -> Any:
                yield from (Request(url) for url in urls(5))

    class Listed(Crawler):
        start_urls = (*urls(5), "http://[::bad/")
        start_requests = Crawler.__mro__[1].start_requests  # type: ignore[attr-defined]

    town = Town(NUMBERS)
    (report,) = town.run(town.node(Listed() if kind == "start_urls" else Kinds()))
    assert report.exit_code == 0
    assert sorted(town.chain.asked) == urls(5)


def test_bad_seeds_are_counted_and_the_others_enter() -> None:
    class Mixed(Crawler):
        def start_requests(self) -> Any:
            yield Request(f"{SITE}/1")
            yield f"{SITE}/2"
            yield Request(f"{SITE}/{'x' * 9000}")
            yield Request(f"{SITE}/3")

    town = Town(NUMBERS)
    (report,) = town.run(town.node(Mixed()))
    assert sorted(town.chain.asked) == [f"{SITE}/1", f"{SITE}/3"]
    assert report.reasons == {"done": 2, "bad_url": 1, "url_length": 1}
    assert report.run is not None
    assert report.run.reasons == report.reasons


def test_bad_seeds_of_a_seeding_that_begins_anew_are_counted_once() -> None:
    class Flaky(Crawler):
        runs = 0

        def start_requests(self) -> Any:
            self.runs += 1
            yield f"{SITE}/2"
            yield Request(f"{SITE}/1")
            if self.runs == 1:
                raise OSError("no list of shops")
            yield f"{SITE}/3"

    town = Town(NUMBERS)
    (report,) = town.run(town.node(Flaky()))
    assert report.run is not None
    assert (report.run.reasons["bad_url"], report.run.reasons["done"]) == (2, 1)


def test_another_node_finishes_the_seeding_of_a_dead_one() -> None:
    town = Town(NUMBERS)

    class Paced(Crawler):
        async def start_requests(self) -> Any:
            for n in range(500):
                await asyncio.sleep(0.1)
                yield Request(f"{SITE}/{n}", filter_repeat=n % 2 == 0)

    dead = town.start(town.node(Paced(), seed_batch=20))
    town.timeline.run(town.timeline.now_ms + 20_000, dead.done)
    (loop,) = town.timeline.loops
    loop.abandon()
    (report,) = town.run(town.node(Paced(), seed_batch=20))
    assert report.exit_code == 0
    assert report.run is not None
    assert report.run.reasons["done"] == 500
    assert set(town.chain.asked) == set(urls(500))
    assert 500 <= len(town.chain.asked) <= 516, "only what the dead node held is fetched twice"
    end(loop)


def test_seeding_that_raises_is_tried_again_and_then_fails_the_node() -> None:
    class Broken(Crawler):
        runs = 0

        def start_requests(self) -> Any:
            self.runs += 1
            yield Request(f"{SITE}/1")
            yield Request(f"{SITE}/2")
            raise OSError("no list of shops")

    town, spider = Town(NUMBERS), Broken()
    (report,) = town.run(town.node(spider))
    assert (report.exit_code, report.state, spider.runs) == (1, "failed", 3)
    assert "no list of shops" in report.why
    assert sorted(town.chain.asked) == [f"{SITE}/1", f"{SITE}/2"]

    (report,) = town.run(town.node(Crawler("1", "2", "3")))
    assert report.exit_code == 0
    assert town.chain.asked[2:] == [f"{SITE}/3"]


def test_seeding_that_raises_once_loses_nothing() -> None:
    class Flaky(Crawler):
        runs = 0

        def start_requests(self) -> Any:
            self.runs += 1
            for n in range(500):
                if n == 321 and self.runs == 1:
                    raise OSError("no list of shops")
                yield Request(f"{SITE}/{n}")

    town = Town(NUMBERS)
    (report,) = town.run(town.node(Flaky()))
    assert report.exit_code == 0
    assert sorted(town.chain.asked) == urls(500)


def test_a_store_that_was_rolled_back_gets_the_lost_seeds_again() -> None:
    town = Town(NUMBERS)
    store = town.frontier()
    push, lost = store.seed_push, []

    async def forgetful(
        token: str, batch: int, final: bool, requests: Any, refused: Any
    ) -> SeedReply:
        if batch == 4 and not lost:
            lost.append(batch)
            return SeedReply(SeedCode.GAP, 0 if batch == 1 else batch - 1)
        return await push(token, batch, final, requests, refused)

    store.seed_push = forgetful  # type: ignore[method-assign]
    (report,) = town.run(town.node(Crawler(*map(str, range(200))), frontier=store, seed_batch=20))
    assert lost == [4]
    assert report.exit_code == 0
    assert sorted(town.chain.asked) == urls(200)


def test_a_store_that_forgot_the_end_of_the_seeding_is_seeded_again() -> None:
    town = Town(NUMBERS, seconds=100.0)

    async def roll_back(engine: Any) -> None:
        await asyncio.sleep(50)
        (run,) = town.shard.runs.values()
        run.tasks[SEED_ID] = Task(SEED_ID, 0, None, place=Place.IDLE)
        run.cursor = 1

    node = town.node(Crawler("0", "1", "2"), seed_batch=1)
    (report,) = town.drive([town.start(node, roll_back)])
    assert report.exit_code == 0
    assert report.run is not None
    assert report.run.seeds > 3
    assert sorted(town.chain.asked) == urls(3)


def test_only_one_node_runs_start_requests() -> None:
    runs: list[int] = []

    class Counted(Crawler):
        def start_requests(self) -> Any:
            runs.append(1)
            yield from (Request(url) for url in urls(50))

    town = Town(NUMBERS)
    reports = town.run(*(town.node(Counted()) for _ in range(3)))
    assert [report.exit_code for report in reports] == [0, 0, 0]
    assert runs == [1]


def test_an_endless_generator_is_read_only_as_far_as_it_is_needed() -> None:
    read: list[int] = []

    class Endless(Crawler):
        def start_requests(self) -> Any:
            n = 0
            while True:
                read.append(n)
                yield Request(f"{SITE}/{n}")
                n += 1

    town = Town(NUMBERS)
    node = town.node(Endless(), seed_batch=50, seed_pending_limit=100, stop_after_pages=300)
    (report,) = town.run(node)
    assert report.exit_code == 75
    assert len(town.chain.asked) == 300
    assert len(read) <= 300 + 100 + 4 * 50


@pytest.mark.parametrize("limit", [1, 7, 100])
@pytest.mark.parametrize("keep_alive", [False, True])
def test_a_limit_of_pending_requests_slows_seeding_and_never_stops_it(
    limit: int, keep_alive: bool
) -> None:
    town = Town(NUMBERS, config=RunConfig(lease_ms=10_000, keep_alive=keep_alive))
    most, waited = 0, 0

    async def watch(engine: Any) -> None:
        nonlocal most, waited
        while True:
            await asyncio.sleep(0.05)
            progress = engine.progress()
            most = max(most, progress.pending)
            waited += progress.seeding_waits
            if keep_alive and len(town.chain.asked) == 300:
                engine.stop()

    seeds = Crawler(*map(str, range(300)))
    node = town.node(seeds, seed_batch=10, seed_pending_limit=limit)
    (report,) = town.drive([town.start(node, watch)])
    assert report.exit_code == (75 if keep_alive else 0)
    assert sorted(town.chain.asked) == urls(300)
    assert most <= limit + 10 + 2, "one batch and the pseudo-requests"
    assert waited


def test_a_stopped_seeder_lets_the_next_one_begin_at_once() -> None:
    town = Town(NUMBERS)

    async def stop(engine: Any) -> None:
        await asyncio.sleep(15)
        engine.stop()

    (report,) = town.drive([town.start(town.node(Slow()), stop)])
    assert report.exit_code == 75
    (report,) = town.run(town.node(Crawler(*map(str, range(6)))))
    assert report.exit_code == 0
    assert report.elapsed_seconds < 5, "not a whole lease"
    assert sorted(set(town.chain.asked)) == urls(6)


def test_rng_is_the_only_chance_in_a_run() -> None:
    histories = []
    for _ in range(2):
        town = Town(NUMBERS)
        random.seed()
        town.run(*(town.node(Crawler(*map(str, range(40)))) for _ in range(3)))
        histories.append((tuple(town.chain.asked), town.timeline.now_ms))
    assert histories[0] == histories[1]
