"""`-w N`: several processes of one command, watched, and one summary of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from orbweb.engine.report import SUMMARY_PREFIX
from orbweb.log import event, get_logger
from orbweb.spiders.progress import LIVE_SECONDS, LiveLine, Snapshot

RESTARTS = 3
"""How often one worker that crashed is started again."""
FIRST_PAUSE_SECONDS = 0.5
POLL_SECONDS = 0.05

ENDED_WELL = frozenset({0, 3, 75})
MUST_NOT_REPEAT = frozenset({2, 4})
"""Exit codes that another try would only repeat."""

SEVERITY = (0, 75, 4, 2, 1)
"""From the best to the worst; 3 (nothing done) counts only when all workers say so."""

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

logger = get_logger("cli.workers")


@dataclass(slots=True)
class _Worker:
    """One place for a process, and the process that has it now."""

    number: int
    process: subprocess.Popen[str]
    restarts: int = 0
    start_again_at: float | None = None
    code: int | None = None
    """How it ended for good."""
    summary: dict[str, Any] = field(default_factory=dict)
    reader: threading.Thread | None = None


class Workers:
    """N processes of one command. A crashed one is started again a few times; signals go to all.

    The workers are in process groups of their own, so that Ctrl-C reaches them once, through here.
    """

    def __init__(self, command: Sequence[str], count: int) -> None:
        self._command = list(command)
        self._stopping = False
        self._live = False
        self._count = count
        self._workers: list[_Worker] = []

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
            self._workers += [self._spawn(number) for number in range(1, self._count + 1)]
            while any(worker.code is None for worker in self._workers):
                for worker in self._workers:
                    self._look_after(worker)
                if look and line and time.monotonic() >= look_at:
                    look_at = time.monotonic() + LIVE_SECONDS
                    if (now := look()) is not None:
                        line.show(now)
                time.sleep(POLL_SECONDS)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return worst(code for worker in self._workers if (code := worker.code) is not None)

    def summary(self) -> dict[str, Any]:
        """One summary for all workers: their own counts added, the run's counts of the last."""
        found = [worker.summary for worker in self._workers if worker.summary]
        return add_summaries(found, self._count)

    def _spawn(self, number: int) -> _Worker:
        return self._begin(_Worker(number, self._popen()))

    def _begin(self, worker: _Worker) -> _Worker:
        event(logger, "worker_started", worker=worker.number, pid=worker.process.pid)
        worker.reader = threading.Thread(
            target=_read_output, args=(worker, worker.process), daemon=True
        )
        worker.reader.start()
        if worker.process.stderr is not None:
            threading.Thread(target=_pass_logs, args=(worker.process,), daemon=True).start()
        return worker

    def _popen(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if self._live else None,
            text=True,
            errors="replace",
            process_group=0,
        )

    def _look_after(self, worker: _Worker) -> None:
        if worker.code is not None:
            return
        if worker.start_again_at is not None:
            if self._stopping:
                worker.code = 75
            elif time.monotonic() >= worker.start_again_at:
                worker.start_again_at = None
                worker.process = self._popen()
                self._begin(worker)
            return
        code = worker.process.poll()
        if code is None:
            return
        if worker.reader is not None:
            worker.reader.join(timeout=5)
        self._ended(worker, code)

    def _ended(self, worker: _Worker, code: int) -> None:
        if code in ENDED_WELL or code in MUST_NOT_REPEAT or self._stopping:
            worker.code = code if code >= 0 else 128 - code
            return
        if worker.restarts >= RESTARTS:
            event(logger, "worker_given_up", level=40, worker=worker.number, how=how_ended(code))
            worker.code = 1
            return
        pause = FIRST_PAUSE_SECONDS * 2**worker.restarts
        worker.restarts += 1
        worker.start_again_at = time.monotonic() + pause
        event(
            logger,
            "worker_crashed",
            level=30,
            worker=worker.number,
            pid=worker.process.pid,
            how=how_ended(code),
            again_in_seconds=pause,
            restart=f"{worker.restarts} of {RESTARTS}",
        )

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            self._stopping = True
        for worker in self._workers:
            if worker.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.process.pid, number)


def worst(codes: Iterable[int]) -> int:
    """The exit code that says most: a crash before a stop before a good end.

    Workers that found nothing to do (3) do not count when others did something, and those that
    stopped early (75) do not when another one brought the run to its end (0).
    """
    known = set(codes)
    if len(known) > 1:
        known.discard(3)
    if 0 in known:
        known.discard(75)
    return max(known, key=lambda code: SEVERITY.index(code) if code in SEVERITY else 99)


def how_ended(code: int) -> str:
    """`exit code 1` or `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def add_summaries(found: Sequence[dict[str, Any]], workers: int) -> dict[str, Any]:
    """Add the counts of several nodes; what is said of the run is taken from the last one."""
    if not found:
        return {}
    latest: dict[str, Any] = max(found, key=_progress_of)
    total = dict(latest)
    for name, value in total.items():
        if name in _ADDED and isinstance(value, int):
            total[name] = sum(summary.get(name, 0) for summary in found)
    total["rate"] = round(sum(float(summary.get("rate", 0)) for summary in found), 2)
    nodes = [summary.get("node", {}) for summary in found]
    reasons = _added(node.get("reasons", {}) for node in nodes)
    total["reasons"] = {**reasons, **total.get("run", {}).get("reasons", {})}
    total["node"] = {
        "pages": sum(node.get("pages", 0) for node in nodes),
        "items": sum(node.get("items", 0) for node in nodes),
        "reasons": reasons,
    }
    outputs = [output for summary in found for output in summary.get("outputs", ())]
    total["outputs"] = list(dict.fromkeys(outputs))
    total["workers"] = workers
    return total


_ADDED = frozenset(
    {"request_ok", "request_failed", "retry", "dropped", "robots_dropped", "content_type_dropped"}
    | {"parse_error", "items", "item_dedup_dropped", "item_failed", "dedup_degraded"}
)


def _progress_of(summary: Mapping[str, Any]) -> tuple[int, float]:
    """The summary with the most pages of the run was made last."""
    return int(summary.get("run", {}).get("pages", 0)), float(summary.get("elapsed", 0))


def _added(tables: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for table in tables:
        for name, count in table.items():
            total[name] = total.get(name, 0) + count
    return total


def _read_output(worker: _Worker, process: subprocess.Popen[str]) -> None:
    """Keep the worker's summary, and pass on all else that it prints."""
    if process.stdout is None:
        return
    for line in process.stdout:
        if line.startswith(SUMMARY_PREFIX):
            with contextlib.suppress(ValueError):
                worker.summary = json.loads(line.removeprefix(SUMMARY_PREFIX))
        else:
            sys.stdout.write(line)
            sys.stdout.flush()


def _pass_logs(process: subprocess.Popen[str]) -> None:
    """Let a worker's log lines go above the live line."""
    for line in process.stderr or ():
        sys.stderr.write(line)
        sys.stderr.flush()
