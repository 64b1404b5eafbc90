"""A store for the crawls of a test, emptied before each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.ports import free_port
from tests.servers import Server


@pytest.fixture(scope="session")
def store_server() -> Iterator[Server]:
    """One server for all, on a unix socket and on the TCP port `server.port`."""
    port = free_port()
    server = Server("valkey", "--port", str(port), "--bind", "127.0.0.1")
    server.port = port  # type: ignore[attr-defined]
    yield server
    server.stop()


@pytest.fixture
def store(store_server: Server) -> Server:
    """An empty store."""
    store_server.client().flushall()
    return store_server


@pytest.fixture
def tcp_store(store: Server) -> int:
    """The port of an empty store, for programs that know host and port only."""
    port: int = store.port  # type: ignore[attr-defined]
    return port
