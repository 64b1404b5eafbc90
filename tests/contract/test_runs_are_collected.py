"""What operators reset and what nobody uses any more leaves the server, and nothing else does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.contract.test_frontier_contract import START_MS, ServerStore, server_store
from tests.servers import Server

from orbweb.errors import ConfigError, RunLost
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import RunState
from orbweb.testing.contract_store import LEASE_MS, opened, page, pages, seeded


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture
async def store(server: Server) -> AsyncIterator[ServerStore]:
    async with server_store(server) as store:
        yield store


async def collect(store: ServerStore, keys: int = 5) -> list[tuple[str, str, int]]:
    """Collect in small pieces until nothing is left to do; returns what was given up unfinished."""
    admin = Admin(store.servers, "t")
    admin.now = store.wall
    unfinished = []
    while True:
        removed, given_up = await admin.collect(keys)
        assert removed <= keys + 1, "a bounded piece a call"
        unfinished += given_up
        if not removed:
            return unfinished


async def run_keys(store: ServerStore) -> list[bytes]:
    return [key async for key in store.client.scan_iter(b"{t:0}:run:*")]


async def test_a_run_with_an_id_is_collected_after_its_time(store: ServerStore) -> None:
    many = [page(f"p{n}", f"h{n % 20}") for n in range(1_000)]
    node = await seeded(store, *many, run="old", run_ttl_ms=1_000)
    await seeded(store, page("a"), run="young", run_ttl_ms=5_000)
    await seeded(store, page("a"), job="other", run_ttl_ms=1_000)
    store.turn(1_001)
    assert await collect(store) == [("job", "old", 1_000)], "it says what was not finished"
    with pytest.raises(RunLost):
        await node.claim()
    assert not [key for key in await run_keys(store) if b":old:" in key]
    assert (await opened(store, run="young"))[1].state is RunState.RUNNING
    assert (await opened(store, job="other"))[1].state is RunState.RUNNING, "no id, no end"


async def test_a_run_that_shows_life_is_not_collected(store: ServerStore) -> None:
    node = await seeded(store, page("a"), run="r", run_ttl_ms=1_000)
    for _ in range(3):
        store.turn(900)
        await node.frontier.renew("A", LEASE_MS, [])
        assert await collect(store) == []
    assert await node.ids() == ["a"]


async def test_a_reset_run_is_lost_at_once_and_its_keys_go(store: ServerStore) -> None:
    node = await seeded(store, *pages("abc"))
    admin = Admin(store.servers, "t")
    await admin.reset(await admin.find("job"), seen=False)
    with pytest.raises(RunLost):
        await node.claim()
    fresh, answer = await opened(store)
    assert answer.state is RunState.NEW
    await fresh.push(*pages("ab"))
    await collect(store)
    assert await fresh.ids() == ["a", "b"], "the new run is not touched"
    assert {key.split(b":")[5] for key in await run_keys(store)} == {answer.epoch.encode()}


async def test_a_reset_job_forgets_at_once_what_it_has_seen(store: ServerStore) -> None:
    await seeded(store, *pages("ab"), dedup_scope="spider")
    admin = Admin(store.servers, "t")
    await admin.reset(await admin.find("job"), seen=True)
    fresh = await seeded(store, *pages("ab"), dedup_scope="spider")
    await collect(store)
    assert await fresh.ids() == ["a", "b"]
    assert await fresh.frontier.add(pages("ab")) == 0, "and remembers what is new"


async def test_a_finished_run_that_was_replaced_is_collected(store: ServerStore) -> None:
    await seeded(store, finished_ttl_ms=0)
    store.turn(1)
    _, answer = await opened(store, finished_ttl_ms=0)
    await collect(store)
    assert {key.split(b":")[5] for key in await run_keys(store)} == {answer.epoch.encode()}
    assert store.wall > START_MS


async def test_who_steers_a_job_means_the_run_that_has_not_ended(store: ServerStore) -> None:
    await seeded(store, page("a"))
    store.turn(1_000)
    await seeded(store, run="young")
    admin = Admin(store.servers, "t")
    assert (await admin.find("job")).run == "young", "the latest"
    assert (await admin.find("job", unfinished=True)).run == ""
    with pytest.raises(ConfigError, match=r"no run 'x' in the store; runs there: young, ''"):
        await admin.find("job", "x")


@pytest.mark.parametrize("delay_ms", [0, 100])
async def test_what_a_node_that_died_has_left_of_a_host_goes_in_time(
    store: ServerStore, delay_ms: int
) -> None:
    many = [page(f"p{n}", "h") for n in range(3)]
    node = await seeded(store, *many, host_concurrency=1, host_delay_ms=delay_ms)
    (lease,) = (await node.claim()).leases
    store.turn(60_000)  # so late that it must ask again
    await node.frontier.permit(*lease.held, 0, 5)
    await node.claim()
    left = {key async for key in store.client.scan_iter(b"{t:0}:*:h") if b":run:" not in key}
    assert left >= {b"{t:0}:slots:h", b"{t:0}:host:h"}
    assert [key for key in left if await store.client.ttl(key) <= 0] == []
    if not delay_ms:
        assert b"{t:0}:waiting:h" in left
