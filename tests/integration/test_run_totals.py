"""Counts of nodes in a real store: those that left become one sum, none is lost or doubled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.servers import Server, redis_binary

from orbweb.engine.teller import Teller
from orbweb.frontier import totals as module
from orbweb.frontier.base import RunConfig
from orbweb.frontier.server import connect
from orbweb.frontier.totals import RunTotals
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.monitor.counts import Counts, added_up, decode, encode, total

KINDS = [
    "valkey",
    pytest.param(
        "redis",
        marks=pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed"),
    ),
]


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(request.param)
    yield server
    server.stop()


class Run:
    """A run with its totals."""

    def __init__(self, frontier: ValkeyFrontier, totals: RunTotals) -> None:
        self.frontier = frontier
        self.totals = totals

    async def sum(self) -> Counts:
        return total(map(decode, (await self.totals.told()).values()))


@pytest.fixture
async def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    monkeypatch.setattr(module, "FOLD_FROM", 3)
    server.client().flushall()
    client = connect(server.url, 5)
    frontier = ValkeyFrontier(client, prefix="p", job="j", run="")
    opened = await frontier.open(RunConfig())
    totals = RunTotals(client, "p", "j", "")
    totals.attach(opened.epoch)
    yield Run(frontier, totals)
    await client.aclose()


def pages(number: int) -> bytes:
    return encode(Counts(outcomes={"done": number}))


async def test_counts_of_nodes_that_left_become_one_sum(run: Run) -> None:
    for name in ("a", "b", "c", "d"):
        await run.totals.tell(name, pages(10), again=False)
    await run.frontier.renew("d", 60_000, [], b"{}")  # d lives
    assert await run.totals.fold(added_up) == 3
    assert sorted(await run.totals.told()) == ["", "d"]
    assert (await run.sum()).outcomes == {"done": 40}
    assert await run.totals.fold(added_up) == 0


async def test_a_few_nodes_that_left_are_kept_apart(run: Run) -> None:
    for name in ("a", "b"):
        await run.totals.tell(name, pages(10), again=False)
    assert await run.totals.fold(added_up) == 0
    assert sorted(await run.totals.told()) == ["a", "b"]


async def test_what_changes_while_it_is_added_up_is_not_folded(run: Run) -> None:
    for name in ("a", "b", "c", "d"):
        await run.totals.tell(name, pages(10), again=False)

    def add_up(counts: list[bytes]) -> bytes:
        server_side = run.totals._attached.counts
        run_again = connect_sync(run)
        run_again.hset(server_side, "a", pages(11))
        return added_up(counts)

    assert await run.totals.fold(add_up) == 0
    assert (await run.sum()).outcomes == {"done": 41}


def connect_sync(run: Run):
    import redis

    path = run.totals._caller.client.connection_pool.connection_kwargs["path"]
    return redis.Redis(unix_socket_path=path)


async def test_a_node_that_wakes_after_it_was_folded_counts_on(run: Run) -> None:
    counts = Counts()
    teller = Teller(run.totals, "a", lambda: counts)
    counts.ended("done", 10)
    await teller.tell()
    for name in ("b", "c", "d"):
        await run.totals.tell(name, pages(10), again=False)
    assert await run.totals.fold(added_up) == 4
    counts.ended("done", 1)
    await teller.tell()
    counts.ended("done", 1)
    await teller.tell()
    assert sorted(await run.totals.told()) == ["", "a.2"]
    assert (await run.sum()).outcomes == {"done": 42}
