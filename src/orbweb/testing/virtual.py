"""Virtual time: event loops that run in a world whose clock jumps from event to event.

A node of a simulation has one loop for each of its threads. The timeline always runs whoever comes
next, so an hour takes a second and the same seed gives the same history.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

STALLED_TURNS = 20_000
"""Turns without progress of the clock after which a simulation counts as livelocked."""


class Livelock(Exception):
    """Something runs for ever at one instant."""


class Timeline:
    """The one clock of a simulated world, in whole milliseconds, and all that waits for it.

    `rng` decides who goes first among those that are due at the same instant.
    """

    def __init__(self, rng: random.Random, start_ms: int = 1_000_000) -> None:
        self.now_ms = start_ms
        self.rng = rng
        self.loops: list[VirtualLoop] = []
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()

    def seconds(self) -> float:
        """The clock in seconds."""
        return self.now_ms / 1000

    def call_in(self, delay_ms: int, callback: Callable[..., None], *args: Any) -> None:
        """Call `callback(*args)`, outside of all loops, after `delay_ms`."""
        at = self.now_ms + max(delay_ms, 0)
        heapq.heappush(self._events, (at, next(self._order), callback, args))

    def run(self, until_ms: int, finished: Callable[[], bool]) -> bool:
        """Run until `finished()`; False when nothing is left to do or `until_ms` has passed.

        Raises `Livelock` when the clock stands still for ever.
        """
        turns = 0
        while not finished():
            at, runners = self._next()
            if at is None or at > until_ms:
                return False
            turns += 1
            if at > self.now_ms:
                self.now_ms, turns = at, 0
            elif turns > STALLED_TURNS:
                raise Livelock(f"the clock stands still at {self.now_ms} ms")
            runner = runners[0] if len(runners) == 1 else self.rng.choice(runners)
            if runner is None:
                _, _, callback, args = heapq.heappop(self._events)
                callback(*args)
            else:
                runner.turn()
        return True

    def _next(self) -> tuple[int | None, list[VirtualLoop | None]]:
        earliest: int | None = None
        runners: list[VirtualLoop | None] = []
        if self._events:
            earliest = max(self._events[0][0], self.now_ms)
            runners.append(None)
        for loop in self.loops:
            at = loop.due_ms()
            if at is None:
                continue
            if earliest is None or at < earliest:
                earliest, runners = at, [loop]
            elif at == earliest:
                runners.append(loop)
        return earliest, runners


class _Task(asyncio.Task[Any]):
    """A task with a hash that is the same in every run: task groups keep tasks in sets."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, loop: VirtualLoop, **kwargs: Any) -> None:
        self._number = loop.next_number()
        super().__init__(coro, loop=loop, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    """A future with a hash that is the same in every run."""

    def __init__(self, *, loop: VirtualLoop) -> None:
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _NoSelector:
    def select(self, timeout: float | None) -> tuple[()]:
        return ()


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio event loop on a timeline. It has timers, tasks and futures, and no I/O.

    Every positive delay is at least one millisecond, so that the clock moves.
    """

    if TYPE_CHECKING:  # what `asyncio.BaseEventLoop` has and its stubs leave out
        _ready: deque[asyncio.Handle]
        _scheduled: list[Any]
        _timer_cancelled_count: int

        def _run_once(self) -> None: ...
        def _asyncgen_firstiter_hook(self, agen: Any) -> None: ...
        def _asyncgen_finalizer_hook(self, agen: Any) -> None: ...

    def __init__(self, timeline: Timeline, name: str = "") -> None:
        super().__init__()
        self.name = name
        self.errors: list[str] = []
        """What would have been logged as an unhandled error."""
        self.paused_until_ms = 0
        """The loop does not run before this: its process is stopped, or its thread is blocked."""
        self._timeline = timeline
        self._selector = _NoSelector()
        self._numbers = itertools.count(1)
        self._born: list[_Task] = []
        self._abandoned = False
        self._clock_resolution = 1e-6
        timeline.loops.append(self)

    # -- what the timeline uses

    def due_ms(self) -> int | None:
        """When there is something to do; None when nothing is in sight."""
        now = self._timeline.now_ms
        if self._ready:
            at = now
        else:
            while self._scheduled and self._scheduled[0]._cancelled:
                self._timer_cancelled_count -= 1
                heapq.heappop(self._scheduled)._scheduled = False
            if not self._scheduled:
                return None
            at = max(now, round(self._scheduled[0]._when * 1000))
        return max(at, self.paused_until_ms)

    def turn(self) -> None:
        """Run all that is due, once."""
        outer = asyncio._get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(
            firstiter=self._asyncgen_firstiter_hook, finalizer=self._finalize_asyncgen
        )
        try:
            self._run_once()
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(outer)

    def abandon(self) -> None:
        """Never run again: the process of this loop is gone. Nothing is unwound yet."""
        self._abandoned = True
        if self in self._timeline.loops:
            self._timeline.loops.remove(self)

    def unwind(self) -> None:
        """Unwind what is left, silently, when the simulation is over; `close` comes after it."""
        self.abandon()
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for task in self._born:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _close(task.get_coro())
            self._born.clear()
        finally:
            asyncio._set_running_loop(outer)

    def next_number(self) -> int:
        return next(self._numbers)

    # -- what asyncio calls

    def time(self) -> float:
        return self._timeline.now_ms / 1000

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        now = self._timeline.now_ms
        at = math.ceil(when * 1000 - 1e-4)
        if at <= now and when > now / 1000:
            at = now + 1
        return super().call_at(at / 1000, callback, *args, context=context)

    def create_task(self, coro: Any, **kwargs: Any) -> Any:
        kwargs.pop("eager_start", None)
        task = _Task(coro, loop=self, **kwargs)
        self._born.append(task)
        if len(self._born) > 200:
            self._born = [each for each in self._born if not each.done()]
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*_Ts], _T],
        *args: *_Ts,
    ) -> asyncio.Future[_T]:
        raise RuntimeError(f"{func!r}: a simulated node has no threads")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._abandoned:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _finalize_asyncgen(self, agen: Any) -> None:
        if not self._abandoned:
            self._asyncgen_finalizer_hook(agen)

    def _process_events(self, event_list: Any) -> None:
        return

    def _write_to_self(self) -> None:
        return


def _close(coro: Any) -> None:
    """Close a coroutine and those that it waits for, the innermost first."""
    chain = []
    while coro is not None and hasattr(coro, "close"):
        chain.append(coro)
        coro = getattr(coro, "cr_await", None)
    for each in reversed(chain):
        for _ in range(50):
            try:
                each.close()
            except RuntimeError:  # it ignored GeneratorExit: it waits in its `finally` now
                continue
            except BaseException:
                break
            break
