"""Start entries leave their key in the step in which they enter the run, and no earlier."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.servers import Server

from orbweb.adapters.scrapy.starts import Starts, StartSource, read_batch
from orbweb.engine.session import Session
from orbweb.errors import RunLost
from orbweb.frontier.base import Ack, RunConfig, RunState, SeedCode
from orbweb.frontier.valkey import ValkeyFrontier


class Taker:
    """A worker that has joined a run whose seeding has ended."""

    def __init__(self, client: Redis, *keys: str, batch: int = 3) -> None:
        self.frontier = ValkeyFrontier(client, prefix="t", job="job")
        self.session = Session(
            self.frontier,
            self.frontier,
            node="A",
            lease_ms=60_000,
            clock=time.monotonic,
            rng=random.Random(1),
        )
        self.starts = Starts(self.session, self.frontier, StartSource(keys or ("k",), batch))

    async def join(self) -> None:
        await self.session.open(RunConfig())
        reply, _ = await self.session.seed_claim()
        if reply.code is SeedCode.OK:
            await self.session.seed_push(reply.token, 1, True, [])

    async def batches(self) -> list[list[bytes]]:
        claim, _ = await self.session.claim(100)
        found = [read_batch(lease) for lease in claim.leases]
        await self.session.ack([Ack(*batch.lease.held, "start_entries") for batch in found])
        return [batch.entries for batch in found]


@pytest.fixture
async def client(store: Server) -> AsyncIterator[Redis]:
    client = Redis(unix_socket_path=str(store.socket))
    yield client
    await client.aclose()


@pytest.fixture
async def taker(client: Redis) -> Taker:
    taker = Taker(client)
    await taker.join()
    return taker


async def push(client: Redis, kind: str, *entries: str) -> None:
    if kind == "list":
        await client.rpush("k", *entries)
    elif kind == "set":
        await client.sadd("k", *entries)
    else:
        await client.zadd("k", {entry: -place for place, entry in enumerate(entries)})


@pytest.mark.parametrize("kind", ["list", "zset", "set"])
async def test_entries_are_taken_in_batches_until_there_are_none(
    client: Redis, taker: Taker, kind: str
) -> None:
    await push(client, kind, *"abcdefgh")
    assert [await taker.starts.take() for _ in range(4)] == [3, 3, 2, 0]
    batches = await taker.batches()
    if kind == "set":
        assert sorted(b"".join(map(b"".join, batches))) == sorted(b"abcdefgh")
    else:
        assert batches == [[b"a", b"b", b"c"], [b"d", b"e", b"f"], [b"g", b"h"]]
    assert not await client.exists("k")


async def test_any_bytes_are_an_entry(client: Redis, taker: Taker) -> None:
    entries = [b"", b"3:abc", b"\x00\xff\n:", b"x" * 70_000]
    await client.rpush("k", *entries)
    while await taker.starts.take():
        pass
    assert [one for batch in await taker.batches() for one in batch] == entries


async def test_entries_let_a_finished_run_run_again(client: Redis, taker: Taker) -> None:
    assert (await taker.session.status()).state is RunState.DONE
    await client.rpush("k", "a")
    await taker.starts.take()
    status = await taker.session.status()
    assert (status.state, status.queued) == (RunState.RUNNING, 1)


async def test_what_a_dead_worker_had_taken_goes_to_another(client: Redis, taker: Taker) -> None:
    await client.rpush("k", "a", "b")
    await taker.starts.take()
    other = Taker(client)
    other.session.node = "B"
    await other.join()
    assert await other.batches() == [[b"a", b"b"]]


async def test_nothing_is_taken_for_a_run_that_is_gone(client: Redis, taker: Taker) -> None:
    await client.rpush("k", "a")
    for key in await client.keys("{t:0}*"):
        await client.delete(key)
    with pytest.raises(RunLost):
        await taker.starts.take()
    assert await client.lrange("k", 0, -1) == [b"a"]


async def test_a_full_server_leaves_entries_where_they_are(client: Redis, taker: Taker) -> None:
    await client.rpush("k", "a")
    await client.config_set("maxmemory", "1")
    taking = asyncio.ensure_future(taker.starts.take())
    await asyncio.sleep(0.2)
    try:
        assert await client.lrange("k", 0, -1) == [b"a"]
    finally:
        await client.config_set("maxmemory", "0")
    assert await taking == 1  # it has waited


async def test_the_first_key_that_has_entries_is_read(client: Redis, store: Server) -> None:
    taker = Taker(client, "high", "low")
    await taker.join()
    await client.rpush("low", "l1", "l2", "l3", "l4")
    await taker.starts.take()
    await client.rpush("high", "h1")
    await taker.starts.take()
    await taker.starts.take()
    assert await taker.batches() == [[b"l1", b"l2", b"l3"], [b"h1"], [b"l4"]]


async def test_waiting_sees_an_entry_and_takes_nothing(client: Redis, store: Server) -> None:
    taker = Taker(client)
    await taker.join()
    nudges: list[float] = []
    waiting = Redis(unix_socket_path=str(store.socket))
    watch = asyncio.ensure_future(
        taker.starts.watch(waiting, lambda: nudges.append(time.monotonic()))
    )
    assert await taker.starts.take() == 0
    await asyncio.sleep(0.1)
    assert not nudges
    pushed = time.monotonic()
    await client.rpush("k", "a", "b")
    await _until(nudges)
    assert nudges[0] - pushed < 1.0
    assert await client.lrange("k", 0, -1) == [b"a", b"b"]
    await asyncio.sleep(0.1)
    assert len(nudges) == 1  # nobody has looked yet: nothing more to say
    watch.cancel()
    await asyncio.wait([watch])
    await waiting.aclose()


async def _until(nudges: list[Any]) -> None:
    async with asyncio.timeout(10):
        while not nudges:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
