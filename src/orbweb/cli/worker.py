"""One process of `orbweb run -w N`: how it is started, heard and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any

from orbweb.engine.report import SUMMARY_PREFIX

SUMMARY_OPTION = "--summary-fd"
"""Names the pipe on which a worker gives its summary."""

LAST_WORDS_SECONDS = 5.0


class WorkerProcess:
    """A running worker, in a process group of its own, so that Ctrl-C does not reach it directly.

    It prints to our own stdout and stderr, so it does not depend on us: if we are killed, it goes
    on. When `captured` its output comes through us instead, because a live line is shown.
    """

    def __init__(self, command: Sequence[str], *, captured: bool) -> None:
        ours, its = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*command, SUMMARY_OPTION, str(its)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if captured else None,
                stderr=subprocess.PIPE if captured else None,
                text=True,
                errors="replace",
                process_group=0,
                pass_fds=(its,),
            )
        finally:
            os.close(its)
        self._summary = ""
        self._readers = [threading.Thread(target=self._read_summary, args=(ours,), daemon=True)]
        if captured:
            streams = (self._process.stdout, "stdout"), (self._process.stderr, "stderr")
            self._readers += [
                threading.Thread(target=_pass_on, args=pair, daemon=True) for pair in streams
            ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """How it ended (negative: by that signal); None while it runs."""
        code = self._process.poll()
        if code is not None:
            for reader in self._readers:
                reader.join(LAST_WORDS_SECONDS)
        return code

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def summary(self) -> dict[str, Any]:
        """The summary that it gave; empty when it died before."""
        with contextlib.suppress(ValueError):
            found: dict[str, Any] = json.loads(self._summary.removeprefix(SUMMARY_PREFIX))
            return found
        return {}

    def _read_summary(self, descriptor: int) -> None:
        with open(descriptor, encoding="utf-8", errors="replace") as pipe:
            self._summary = pipe.read()


def how_ended(code: int) -> str:
    """`exit code 1` or `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def give_summary(descriptor: int, line: str) -> None:
    """What a worker does at its end: tell the parent, if that is still there."""
    with contextlib.suppress(OSError), open(descriptor, "w", encoding="utf-8") as pipe:
        pipe.write(line)


def _pass_on(stream: IO[str] | None, name: str) -> None:
    """Print what a worker prints to what `sys.stdout` or `sys.stderr` is now."""
    for line in stream or ():
        out = getattr(sys, name)
        out.write(line)
        out.flush()
