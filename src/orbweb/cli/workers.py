"""`-w N`: several processes of one command, watched, and one summary of them."""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from orbweb.cli.summaries import add_summaries, worst
from orbweb.cli.worker import WorkerProcess, how_ended
from orbweb.engine.shutdown import Hangup
from orbweb.errors import RunLost
from orbweb.log import event, get_logger
from orbweb.spiders.progress import LIVE_SECONDS, LiveLine, Snapshot

RESTARTS = 3
"""How often one worker that crashed is started again."""
FIRST_PAUSE_SECONDS = 0.5
POLL_SECONDS = 0.05

ENDED_WELL = frozenset({0, 3, 75})
MUST_NOT_REPEAT = frozenset({2, 4})
"""Exit codes that another try would only repeat."""

STOPPED_UNREADY = frozenset({-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT})
"""How a worker ends that is told to stop while it still loads the spider: it holds nothing."""

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""SIGHUP reaches the workers as SIGTERM when the terminal was closed."""

logger = get_logger("cli.workers")


@dataclass(slots=True)
class _Worker:
    """One place for a process, and the process that has it now."""

    number: int
    process: WorkerProcess
    restarts: int = 0
    start_again_at: float | None = None
    code: int | None = None
    """How it ended for good."""


class Workers:
    """N processes of one command. A crashed one is started again a few times; signals go to all.

    See `WorkerProcess` for what becomes of them when this process is killed.
    """

    def __init__(self, command: Sequence[str], count: int) -> None:
        self._command = list(command)
        self._stopping = False
        self._live = False
        self._count = count
        self._workers: list[_Worker] = []
        self._hangup = Hangup()

    def run(self, look: Callable[[], Snapshot | None] | None = None) -> int:
        """Start all and wait for them; returns the exit code of the whole.

        `look`: what a live line shows meanwhile; None for no line.
        """
        self._live = look is not None
        with LiveLine() if look else contextlib.nullcontext() as line:
            return self._run(look, line)

    def _run(self, look: Callable[[], Snapshot | None] | None, line: LiveLine | None) -> int:
        look_at = 0.0
        before = {number: signal.signal(number, self._pass_on) for number in PASSED_ON}
        try:
            for number in range(1, self._count + 1):
                self._workers.append(self._begin(number))
            while any(worker.code is None for worker in self._workers):
                for worker in self._workers:
                    self._look_after(worker)
                if look and line and time.monotonic() >= look_at:
                    look_at = time.monotonic() + LIVE_SECONDS
                    if (now := look()) is not None:
                        line.show(now)
                time.sleep(POLL_SECONDS)
        finally:
            for worker in self._workers:
                worker.process.signal(signal.SIGTERM)  # none runs unless an error brought us here
            for number, handler in before.items():
                signal.signal(number, handler)
        return worst(code for worker in self._workers if (code := worker.code) is not None)

    def summary(self) -> dict[str, Any]:
        """One summary for all workers: their own counts added, the run's counts of the last."""
        return add_summaries(self.summaries(), self._count)

    def summaries(self) -> list[dict[str, Any]]:
        """What each worker that came to its end has said of its work."""
        found = (worker.process.summary() for worker in self._workers)
        return [summary for summary in found if summary]

    def _spawn(self) -> WorkerProcess:
        return WorkerProcess(self._command, captured=self._live)

    def _begin(self, number: int) -> _Worker:
        worker = _Worker(number, self._spawn())
        event(logger, "worker_started", worker=number, pid=worker.process.pid)
        return worker

    def _look_after(self, worker: _Worker) -> None:
        if worker.code is not None:
            return
        if worker.start_again_at is not None:
            if self._stopping:
                worker.code = 75
            elif time.monotonic() >= worker.start_again_at:
                worker.start_again_at = None
                worker.process = self._spawn()
                event(logger, "worker_started", worker=worker.number, pid=worker.process.pid)
            return
        code = worker.process.poll()
        if code is not None:
            self._ended(worker, code)

    def _ended(self, worker: _Worker, code: int) -> None:
        if code in ENDED_WELL | MUST_NOT_REPEAT or self._stopping or _run_is_gone(worker):
            worker.code = code if code >= 0 else 128 - code
            if self._stopping and code in STOPPED_UNREADY and not worker.process.summary():
                worker.code = 75
            return
        if worker.restarts >= RESTARTS:
            event(
                logger,
                "worker_given_up",
                level=logging.ERROR,
                worker=worker.number,
                how=how_ended(code),
            )
            worker.code = 1
            return
        pause = FIRST_PAUSE_SECONDS * 2**worker.restarts
        worker.restarts += 1
        worker.start_again_at = time.monotonic() + pause
        event(
            logger,
            "worker_crashed",
            level=logging.WARNING,
            worker=worker.number,
            pid=worker.process.pid,
            how=how_ended(code),
            again_in_seconds=pause,
            restart=f"{worker.restarts} of {RESTARTS}",
        )

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        reload = number == signal.SIGHUP and not self._hangup.is_of_terminal()
        if number != signal.SIGUSR2 and not reload:
            self._stopping = True
        sent = signal.SIGTERM if number == signal.SIGHUP and not reload else number
        for worker in self._workers:
            worker.process.signal(sent)


def _run_is_gone(worker: _Worker) -> bool:
    """Whether the run was taken from the store: another start would make a new one."""
    return str(worker.process.summary().get("why", "")).startswith(RunLost.__name__)
