"""Where the keeper runs, and the threads for callbacks that are not async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

from orbweb.errors import as_error
from orbweb.log import get_logger

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

STOP_SECONDS = 1.0

log = get_logger("orbweb.engine")


def loop_factory() -> LoopFactory | None:
    """uvloop's event loops, where there is uvloop."""
    try:
        import uvloop
    except ImportError:  # Windows
        return None
    factory: LoopFactory = uvloop.new_event_loop
    return factory


class _Job:
    __slots__ = ("abandoned", "args", "ended", "func", "future", "loop", "replaced", "started")

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.func = func
        self.args = args
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.started = False
        self.ended = False
        self.abandoned = False
        self.replaced = False

    def run(self) -> None:
        try:
            result, error = self.func(*self.args), None
        except BaseException as caught:  # handed to the waiting task
            result, error = None, caught
        try:
            self.loop.call_soon_threadsafe(self._deliver, result, error)
        except RuntimeError:  # the loop has been closed: nobody waits any more
            log.debug("result of %r comes after the end", self.func)

    def _deliver(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(as_error(error))


class CallbackThreads:
    """A pool of daemon threads, so that a callback that never returns cannot hold up an exit.

    When the waiting task is cancelled while its function runs, the function goes on (a thread
    cannot be interrupted), its result is dropped, and a new thread takes its place in the pool.
    """

    def __init__(self, size: int, name: str = "orbweb-callback") -> None:
        self._size = size
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = 0
        self._open = 0  # jobs that wait or run
        self._lock = threading.Lock()

    async def run(self, func: Callable[..., T], /, *args: Any) -> T:
        """Run `func(*args)` in a thread; its exception is raised here (see `as_error`)."""
        job = _Job(func, args)
        with self._lock:
            self._open += 1
            if self._threads < min(self._open, self._size):
                self._start_thread()
        self._jobs.put(job)
        try:
            result: T = await job.future
        except asyncio.CancelledError:
            self._abandon(job)
            raise
        return result

    def close(self) -> None:
        """Let the threads end when they are idle."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)

    def _abandon(self, job: _Job) -> None:
        with self._lock:
            job.abandoned = True
            if job.started and not job.ended:
                job.replaced = True
                self._size += 1
                if self._threads < min(self._open, self._size):
                    self._start_thread()

    def _start_thread(self) -> None:
        self._threads += 1
        name = f"{self._name}-{self._threads}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            with self._lock:
                if job is None:
                    self._threads -= 1
                    return
                job.started = not job.abandoned
            if job.started:
                job.run()
            if self._was_replaced(job):
                return

    def _was_replaced(self, job: _Job) -> bool:
        """The job is over: True when another thread has taken this one's place meanwhile."""
        with self._lock:
            self._open -= 1
            job.ended = True
            if job.replaced:
                self._threads -= 1
                self._size -= 1
            return job.replaced


class KeeperThread:
    """Runs the keeper on a thread and an event loop of its own. See `Background`."""

    def __init__(self, loop_factory: LoopFactory | None = None) -> None:
        self._loop_factory = loop_factory
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = threading.Event()

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._thread = threading.Thread(
            target=self._main, args=(run,), name="orbweb-keeper", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        thread = self._thread
        if thread is None:
            return
        self._ready.wait(STOP_SECONDS)
        if self._loop is not None and self._task is not None and thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._task.cancel)
            except RuntimeError:  # it has just ended by itself
                log.debug("the keeper had ended")
        waited = 0.0
        while thread.is_alive() and waited < STOP_SECONDS:
            await asyncio.sleep(0.005)
            waited += 0.005

    def _main(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            try:
                runner.run(self._body(run))
            except asyncio.CancelledError:
                log.debug("keeper stopped")
            except Exception:
                log.exception("keeper failed: leases are no longer renewed")

    async def _body(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._ready.set()
        await run()


class KeeperTask:
    """Runs the keeper on the engine's own loop, for a frontier in memory. See `Background`."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(run(), name="orbweb-keeper")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
