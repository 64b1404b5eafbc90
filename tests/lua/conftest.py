"""Servers of the tests that tear writes: one logs them, one plays what is left of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lua.direct import DirectClient
from tests.servers import Server


@pytest.fixture(scope="module")
def scratch() -> Iterator[DirectClient]:
    server = Server("valkey")
    client = DirectClient(server.socket)
    yield client
    client.close()
    server.stop()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(getattr(request, "param", "valkey"), aof="always")
    yield server
    server.stop()
