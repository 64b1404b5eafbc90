"""What every test leaves as it found it, and what the end of a test run says."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A spider that runs in the test process configures logging; undo it."""
    logger = logging.getLogger("orbweb")
    before, level = (logger.handlers[:], logger.propagate), logger.level
    yield
    logger.handlers[:], logger.propagate = before
    logger.setLevel(level)  # an assignment would leave what loggers remember of it


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which servers were no real ones."""
    standins = sys.modules.get("tests.standins")
    if standins is not None and standins.MET:
        terminalreporter.section("met as stand-ins only", sep="-")
        for server, named in standins.MET.items():
            real = (
                f"{named} runs the same tests on a real server" if named else "no real one is met"
            )
            terminalreporter.line(f"{server}: {real}")
