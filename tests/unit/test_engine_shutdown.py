"""Stopping: what is held is finished or given back, soon, and the exit code says which."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest
from tests.unit.engine_world import SITE, Crawler, ListPipeline, Town, links

from orbweb.download.base import DownloadError, Failed
from orbweb.engine.shutdown import Shutdown, install_signals
from orbweb.errors import StoreUnavailable
from orbweb.frontier.base import RunConfig
from orbweb.model.reasons import Reason
from orbweb.model.request import Request

PAGES = {f"{SITE}/{n}": links() for n in range(30)}
SEEDS = tuple(map(str, range(30)))


def stopped_after(
    town: Town, spider: Crawler, seconds: float, *numbers: int, **options: Any
) -> Any:
    """Run a node that gets a signal after that time; its report."""

    async def send(engine: Any) -> None:
        await asyncio.sleep(seconds)
        for number in numbers or (signal.SIGTERM,):
            engine.shutdown.on_signal(number)
            await asyncio.sleep(0.1)

    (report,) = town.drive([town.start(town.node(spider, **options), send)])
    return report


def status_of(town: Town) -> Any:
    (run,) = town.shard.runs.values()
    return town.frontier()._status(run)


def test_running_pages_are_finished_when_there_is_time() -> None:
    town = Town(PAGES, seconds=2.0)
    report = stopped_after(town, Crawler(*SEEDS), 3.0, graceful_seconds=4.0)
    assert report.exit_code == 75
    assert report.elapsed_seconds < 5
    assert len(town.rows) == len(town.chain.asked)
    assert status_of(town).leased == 0


@pytest.mark.parametrize("hook", ["start_callback", "end_callback"])
def test_a_hook_that_does_not_end_holds_up_no_stop(hook: str) -> None:
    async def hang(self: Crawler) -> None:
        await asyncio.sleep(1000)

    town = Town(PAGES)
    spider = type("Hanging", (Crawler,), {hook: hang})(*SEEDS)
    report = stopped_after(town, spider, 30.0, graceful_seconds=4.0)
    assert report.exit_code == (0 if hook == "end_callback" else 75)
    assert report.elapsed_seconds < 36


def test_pages_that_take_too_long_are_given_back_uncounted() -> None:
    town = Town(PAGES, seconds=60.0)
    report = stopped_after(town, Crawler(*SEEDS), 3.0, graceful_seconds=4.0)
    assert report.exit_code == 75
    assert report.elapsed_seconds <= 8
    status = status_of(town)
    assert (status.leased, status.queued, status.retried) == (0, 30, 0)


def test_a_long_retry_after_holds_up_nobody() -> None:
    late = Failed(
        Request(SITE), Reason.HTTP_ERROR, DownloadError(Reason.HTTP_ERROR, "429"), True, 3000.0
    )
    town = Town({url: lambda request: late for url in PAGES})
    report = stopped_after(town, Crawler(*SEEDS), 20.0)
    assert report.exit_code == 75
    assert report.elapsed_seconds <= 20.2
    assert status_of(town).delayed > 0
    assert status_of(town).pending == 30


def test_a_host_that_asks_for_a_pause_is_left_alone_by_all_nodes() -> None:
    late = Failed(
        Request(SITE), Reason.HTTP_ERROR, DownloadError(Reason.HTTP_ERROR, "429"), True, 50.0
    )
    town = Town({url: lambda request: late for url in PAGES}, config=RunConfig(host_concurrency=2))
    nodes = [town.node(Crawler(*SEEDS)) for _ in range(2)]

    async def stop(engine: Any) -> None:
        await asyncio.sleep(40)
        engine.shutdown.on_signal(signal.SIGTERM)

    town.drive([town.start(node, stop) for node in nodes])
    assert 1 <= len(town.chain.asked) <= 2


def test_a_store_that_does_not_answer_cannot_hold_up_the_end() -> None:
    town = Town(PAGES, seconds=1.0)
    store = town.frontier()

    async def down(*args: Any) -> Any:
        raise StoreUnavailable("connection refused")

    async def cut(engine: Any) -> None:
        await asyncio.sleep(2.5)
        for name in ("claim", "ack", "nack", "renew", "fetched", "status", "recover", "seed_push"):
            setattr(store, name, down)
        await asyncio.sleep(5)
        engine.shutdown.on_signal(signal.SIGTERM)

    node = town.node(Crawler(*SEEDS), frontier=store, graceful_seconds=4.0)
    (report,) = town.drive([town.start(node, cut)])
    assert report.exit_code == 75
    assert report.elapsed_seconds <= 2.5 + 5 + 5
    assert report.run is None


def test_a_sink_that_does_not_answer_cannot_hold_up_the_end() -> None:
    class Broken(ListPipeline):
        async def save_items(self, table: str, items: Any) -> bool:
            return False

    town = Town(PAGES, pipelines={"list": Broken()})
    report = stopped_after(town, Crawler(*SEEDS), 5.0, graceful_seconds=4.0)
    assert report.exit_code == 75
    assert report.elapsed_seconds <= 10
    status = status_of(town)
    assert (status.queued, status.leased) == (30, 0), "nothing was acknowledged"


def test_a_slow_sink_slows_claiming() -> None:
    class Slow(ListPipeline):
        async def save_items(self, table: str, items: Any) -> bool:
            await asyncio.sleep(100)
            return await super().save_items(table, items)

    pages = {f"{SITE}/{n}": links() for n in range(300)}
    town = Town(pages, config=RunConfig(host_concurrency=0), pipelines={"list": Slow()})
    most: list[int] = []

    async def watch(engine: Any) -> None:
        while True:
            await asyncio.sleep(1)
            most.append(engine.progress().held)

    node = town.node(Crawler(*map(str, range(300))), max_held=64)
    (report,) = town.drive([town.start(node, watch)])
    assert report.exit_code == 0
    assert len(town.rows) == 300
    assert 50 < max(most) <= 64


def test_draining_has_no_limit() -> None:
    town = Town(PAGES, seconds=100.0)

    async def send(engine: Any) -> None:
        await asyncio.sleep(3)
        engine.shutdown.drain("SIGUSR1")

    (report,) = town.drive([town.start(town.node(Crawler(*SEEDS)), send)])
    assert report.exit_code == 75
    assert report.elapsed_seconds >= 100
    assert len(town.rows) == len(town.chain.asked)


def test_the_second_signal_ends_at_once() -> None:
    town = Town(PAGES, seconds=60.0)
    report = stopped_after(town, Crawler(*SEEDS), 3.0, signal.SIGINT, signal.SIGINT)
    assert (report.exit_code, report.state) == (130, "aborted")
    assert report.elapsed_seconds <= 4


def test_a_signal_after_a_drain_gives_the_usual_time() -> None:
    now = 100.0
    shutdown = Shutdown(4.0, lambda: now)
    shutdown.drain("SIGUSR1")
    assert shutdown.deadline is None
    shutdown.on_signal(signal.SIGTERM)
    assert (shutdown.deadline, shutdown.abort_code) == (104.0, None)
    now = 103.0
    shutdown.request("an operator")
    assert shutdown.deadline == 104.0, "a later request gives no more time"


def test_the_last_page_in_the_time_given_makes_the_run_done() -> None:
    town = Town({f"{SITE}/1": links()}, seconds=2.0)
    report = stopped_after(town, Crawler("1"), 1.0)
    assert (report.exit_code, report.state) == (0, "done")


async def test_signals_reach_the_shutdown_and_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    shutdown, told = Shutdown(4.0, time.monotonic), asyncio.Event()
    shutdown.on_change(told.set)
    uninstall = install_signals(shutdown)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            await told.wait()
    finally:
        uninstall()
    assert (shutdown.requested, shutdown.reason) == (True, "SIGTERM")
    assert signal.getsignal(signal.SIGTERM) is before
