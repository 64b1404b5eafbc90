"""Threads: callbacks that block, and the keeper's own loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from orbweb.engine.threads import CallbackThreads, KeeperThread


async def test_functions_run_side_by_side_in_other_threads() -> None:
    threads = CallbackThreads(3)
    together = threading.Barrier(3)

    def meet() -> int:
        together.wait(10)
        return threading.get_ident()

    idents = await asyncio.gather(*(threads.run(meet) for _ in range(3)))
    threads.close()
    assert len({*idents, threading.get_ident()}) == 4


async def test_errors_come_back_as_they_are() -> None:
    threads = CallbackThreads(1)

    def fail(text: str) -> None:
        raise OSError(text)

    with pytest.raises(OSError, match="disk"):
        await threads.run(fail, "disk")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(next, iter(()))
    assert await threads.run(str, 7) == "7"
    threads.close()


@pytest.mark.parametrize("raised", [SystemExit(0), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_would_end_the_process_or_the_task_becomes_an_error(
    raised: BaseException,
) -> None:
    threads = CallbackThreads(1)

    def fail() -> None:
        raise raised

    with pytest.raises(RuntimeError, match=type(raised).__name__) as caught:
        await threads.run(fail)
    assert caught.value.__cause__ is raised
    threads.close()


async def test_a_function_that_never_returns_costs_no_thread_of_the_pool() -> None:
    threads = CallbackThreads(1)
    started, release = threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        release.wait(30)

    task = asyncio.ensure_future(threads.run(hang))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await threads.run(str, 1) == "1"
    release.set()
    threads.close()


async def test_a_function_whose_caller_has_left_before_its_turn_does_not_run() -> None:
    threads = CallbackThreads(1)
    started, release = threading.Event(), threading.Event()
    ran: list[int] = []

    def hang() -> None:
        started.set()
        release.wait(30)

    first = asyncio.ensure_future(threads.run(hang))
    await asyncio.to_thread(started.wait, 10)
    second = asyncio.ensure_future(threads.run(ran.append, 2))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    release.set()
    await first
    assert await threads.run(str, 3) == "3"
    assert ran == []
    threads.close()


async def test_the_keeper_runs_on_a_loop_of_its_own_until_it_is_stopped() -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    ended = threading.Event()
    beating = threading.Event()

    async def keep() -> None:
        loops.append(asyncio.get_running_loop())
        beating.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    keeper = KeeperThread()
    keeper.start(keep)
    assert await asyncio.to_thread(beating.wait, 10)
    assert loops[0] is not asyncio.get_running_loop()
    await keeper.stop()
    assert ended.is_set()
