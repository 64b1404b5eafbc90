"""A server for all tests of live values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers import Server


@pytest.fixture(scope="session")
def live_server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()
