"""The whole suite in several pytest processes at once: `python -m tests.processes [options]`.

Each process collects everything, in one order for all, and again and again takes the next module
that nobody has taken. So no module runs twice, none is left out (that is checked at the end), and
the processes end at about the same time, whatever a module costs on this machine. When all others
have ended, the first process runs the tests that are marked `alone`: they measure time.

Tests of real processes and real clocks wait for what must come within seconds, and three pytest
processes on two cores can keep it from coming. So a few of those that failed beside others are run
again with the machine for themselves. Those that pass then are named at the end of the run.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

SLOW_FIRST = ("lua", "crash", "fleet", "e2e", "simulation", "integration", "contract", "unit")
"""Folders by how long their longest module takes: short ones fill what is left at the end."""

REAL_TIME = ("crash", "e2e", "integration", "live", "scrapy")
"""Folders of tests with real processes and real clocks; all others have no excuse."""

MOST_AGAIN = 3
"""If more tests than so many failed, it was not chance."""

MOST_PROCESSES = 4
SHARED = "ORBWEB_TEST_SHARED_RUN"
"""The folder where the processes of a run meet, and the number of this one: `/tmp/x:0`."""

OTHERS_HAVE_ENDED = "others-have-ended"
"""A file that appears when the first process has the machine for itself."""

OUTCOMES = ("passed", "failed", "error", "skipped")


class SharedRun:
    """The plugin of one process: it runs the modules that it takes, and notes what came of them."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=_turn)  # stable: within a folder the order stays random

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Instead of pytest's own loop, which runs all there is."""
        if session.testsfailed or session.config.option.collectonly:
            return None  # it says what could not be collected, or what there is
        alone = [item for item in session.items if item.get_closest_marker("alone")]
        _run(session, self._mine([item for item in session.items if item not in alone]))
        if self._number == 0 and alone:
            self._wait_for_others()
            _run(session, iter(alone))
        return True

    def _mine(self, items: list[pytest.Item]) -> Iterator[pytest.Item]:
        for module, tests in groupby(items, key=_module):
            if self._take(module):
                yield from tests

    def _wait_for_others(self) -> None:
        while not (self._folder / OTHERS_HAVE_ENDED).exists():
            time.sleep(0.1)

    def _take(self, module: str) -> bool:
        try:
            (self._folder / module.replace("/", "+")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        tests = {
            name: [report.nodeid for report in terminalreporter.getreports(name)]
            for name in OUTCOMES
        }
        tests["collected"] = [item.nodeid for item in terminalreporter._session.items]
        (self._folder / f"{self._number}.json").write_text(json.dumps(tests))


def _run(session: pytest.Session, items: Iterator[pytest.Item]) -> None:
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _turn(item: pytest.Item) -> int:
    """Folders that are not known come first: they may be slow."""
    folder = item.nodeid.split("/")[1]
    return SLOW_FIRST.index(folder) if folder in SLOW_FIRST else -1


def pytest_configure(config: pytest.Config) -> None:
    folder, _, number = os.environ[SHARED].rpartition(":")
    config.pluginmanager.register(SharedRun(Path(folder), int(number)))


def main(options: list[str]) -> int:
    """Run all tests; returns the exit code. The first process is seen live, the others after it."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    shared = ["-p", "tests.processes", "-o", "console_output_style=classic"]
    shared += [f"--randomly-seed={random.randrange(2**32)}"]
    with tempfile.TemporaryDirectory(prefix="orbweb-tests-") as name:
        folder = Path(name)
        first, *others = (
            _start([*command, *shared], folder, number) for number in range(_processes())
        )
        codes = [process.wait() for process in others]
        (folder / OTHERS_HAVE_ENDED).touch()
        codes.insert(0, first.wait())
        for number in range(1, len(codes)):
            print((folder / f"{number}.log").read_text(errors="replace"), flush=True)
        processes = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    total = {name: [test for each in processes for test in each[name]] for name in OUTCOMES}
    print(f"\n{len(codes)} processes, {time.monotonic() - began:.0f} s")
    print(", ".join(f"{len(tests)} {name}" for name, tests in total.items()))
    missing = {test for each in processes for test in each["collected"]}.difference(*total.values())
    if missing:
        print("these were collected and did not run:", *sorted(missing), sep="\n  ")
        return 1
    failures = sorted({*total["failed"], *total["error"]})
    if set(codes) <= {0, 1} and _may_run_again(failures):
        return _run_again(command, failures)
    if any(codes):
        print(f"exit codes {codes}: see above", file=sys.stderr)
    return next((code for code in codes if code), 0)


def _run_again(command: list[str], failures: list[str]) -> int:
    print("\nonce more, with the machine for themselves:", *failures, sep="\n  ", flush=True)
    code = subprocess.call([*command, *failures])
    if code == 0:
        print("these failed beside other tests and passed alone:", *failures, sep="\n  ")
    return code


def _may_run_again(failures: list[str]) -> bool:
    return 0 < len(failures) <= MOST_AGAIN and all(
        name.split("/")[1] in REAL_TIME for name in failures
    )


def _processes() -> int:
    known = hasattr(os, "sched_getaffinity")  # not on macOS
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return min(cores + 1, MOST_PROCESSES)  # tests wait, too


def _start(command: list[str], folder: Path, number: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, SHARED: f"{folder}:{number}"}
    if number == 0:
        return subprocess.Popen(command, env=environment)
    with (folder / f"{number}.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
