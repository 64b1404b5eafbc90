"""What every test leaves as it found it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A spider that runs in the test process configures logging; undo it."""
    logger = logging.getLogger("orbweb")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before
