"""How a node is asked to stop: signals, an operator, a limit; and what it shows when asked."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from enum import IntEnum

from orbweb.log import get_logger

ABORT_SECONDS = 2.0

UNHEARD_SECONDS = 0.5
"""So long after its time a node that has not even heard of the first signal is ended."""

log = get_logger("orbweb.engine")


class ExitCode(IntEnum):
    """Exit codes of a run (DESIGN §5)."""

    DONE = 0
    CRASH = 1
    USAGE = 2
    NOTHING_DONE = 3
    GATE_FAILED = 4
    STOPPED = 75


class Shutdown:
    """Whether the node is to stop, why, and until when running work may go on.

    The first request drains within `graceful_seconds`; `drain` drains without a limit; `abort`
    ends at once. A later request never gives more time than an earlier one.
    """

    def __init__(self, graceful_seconds: float, clock: Callable[[], float]) -> None:
        self.requested = False
        self.signalled = False
        """A signal of the system has asked for it: the process is to end, not only this run."""
        self.reason = ""
        self.deadline: float | None = None
        """When running work is given back, on the engine's clock; None = no limit."""
        self.abort_code: int | None = None
        self.graceful_seconds = graceful_seconds
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._signals = 0

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever something changes, until what is returned is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def request(self, reason: str) -> None:
        """Stop claiming, let running work finish for a while, give the rest back."""
        deadline = self._clock() + self.graceful_seconds
        if self.requested and self.deadline is not None:
            return
        self.deadline = deadline
        self._change(reason)

    def drain(self, reason: str) -> None:
        """Stop claiming and let all running work finish, however long it takes (SIGUSR1)."""
        self.signalled = True
        if not self.requested:
            self._change(reason)

    def abort(self, code: int) -> None:
        """End at once; leases that are held expire by themselves."""
        self.abort_code = code
        self._change(f"aborted ({code})")

    def on_signal(self, number: int) -> None:
        """SIGTERM or SIGINT: stop; the second time: abort."""
        name = signal.Signals(number).name
        self.signalled = True
        self._signals += 1
        if self._signals > 1:
            log.warning("%s again: ending at once, what is held returns by itself", name)
            self.abort(128 + number)
            return
        log.warning("%s: stopping; once more ends at once", name)
        self.request(name)

    def _change(self, reason: str) -> None:
        if not self.requested or self.abort_code is not None:
            self.reason = reason
            log.info("stopping: %s", reason)
        self.requested = True
        for listener in list(self._listeners):
            listener()


def hold_signals(
    stop: Callable[[], None], seconds: float, is_waiting: Callable[[], bool]
) -> Callable[[], None]:
    """While no engine listens, make SIGTERM and SIGINT a `stop`; returns what takes this off again.

    SIGHUP is one when the terminal was closed; else nothing is there yet to be read again.

    So a node that is told to stop while its store starts, or is being left, leaves it in order. One
    that still `is_waiting` for its store after `seconds`, or is told twice, is ended by force.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    received = 0

    def on_signal(number: int, frame: object) -> None:
        nonlocal received
        received += 1
        if received > 1:
            os._exit(128 + number)
        stop()
        timer = threading.Timer(seconds, lambda: is_waiting() and os._exit(128 + number))
        timer.daemon = True
        timer.start()

    hangup = Hangup()

    def on_hangup(number: int, frame: object) -> None:
        if hangup.is_of_terminal():
            on_signal(number, frame)

    before = signal.signal(signal.SIGHUP, on_hangup)
    restore = _set_handlers(on_signal)

    def take_off() -> None:
        signal.signal(signal.SIGHUP, before)
        restore()

    return take_off


class Hangup:
    """What SIGHUP means: the terminal is gone, or settings are to be read again (a daemon's habit).

    Where the process was started with the signal ignored (`nohup`), it never means the first.
    """

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._had_terminal = _has_terminal() and not ignored

    def is_of_terminal(self) -> bool:
        """Whether the terminal of this process was closed."""
        return self._had_terminal and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def install_signals(
    shutdown: Shutdown, reload: Callable[[], None] | None = None
) -> Callable[[], None]:
    """Connect the process's signals to a shutdown; returns what takes them off again.

    SIGTERM and SIGINT stop, SIGUSR1 drains, SIGUSR2 shows what runs, SIGHUP calls `reload`. A
    process that has not ended `ABORT_SECONDS` after the second SIGTERM or SIGINT, because a
    callback blocks its loop or will not be cancelled, is ended by force; after the first one when
    its loop stands still. Does nothing outside of the main thread, where Python cannot receive
    signals.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    loop = asyncio.get_running_loop()
    forced: list[threading.Timer] = []
    received = 0

    def on_signal(number: int, frame: object) -> None:
        nonlocal received
        received += 1
        code = 128 + number
        if received == 1:
            late = shutdown.graceful_seconds + UNHEARD_SECONDS
            timer = threading.Timer(late, lambda: shutdown.requested or os._exit(code))
        elif received == 2:
            timer = threading.Timer(ABORT_SECONDS, os._exit, (code,))
        if received <= 2:
            timer.daemon = True
            timer.start()
            forced.append(timer)
        loop.call_soon_threadsafe(shutdown.on_signal, number)

    restore = _set_handlers(on_signal)
    loop.add_signal_handler(signal.SIGUSR1, shutdown.drain, "SIGUSR1")
    loop.add_signal_handler(signal.SIGUSR2, dump_tasks)
    before_hangup = signal.getsignal(signal.SIGHUP)
    hangup = Hangup()

    def on_hangup() -> None:
        if hangup.is_of_terminal():
            shutdown.on_signal(signal.SIGHUP)
        elif reload is not None:
            reload()

    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    dumps_threads = _dump_threads_on(signal.SIGUSR2)

    def uninstall() -> None:
        if dumps_threads:
            faulthandler.unregister(signal.SIGUSR2)
        loop.remove_signal_handler(signal.SIGUSR1)
        loop.remove_signal_handler(signal.SIGUSR2)
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before_hangup)
        restore()
        for timer in forced:
            timer.cancel()

    return uninstall


def _set_handlers(on_signal: Callable[[int, object], None]) -> Callable[[], None]:
    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)
    }

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


def _dump_threads_on(number: int) -> bool:
    """Write the stacks of all threads on a signal, even when the event loop stands still."""
    try:
        faulthandler.register(number, all_threads=True, chain=True)
    except (AttributeError, ValueError, OSError):  # stderr is no file
        return False
    return True


def dump_tasks() -> None:
    """Write the stacks of all tasks of the running loop to stderr."""
    for task in asyncio.all_tasks():
        print(f"--- task {task.get_name()}", file=sys.stderr)
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()
