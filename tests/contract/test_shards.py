"""What a frontier of four shards promises besides the contract: outboxes, one run, one end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.contract.test_frontier_contract import (
    MemoryStore,
    ServerStore,
    server_store,
)
from tests.servers import Server

from orbweb.errors import ConfigError, RunLost, StoreUnavailable
from orbweb.frontier.base import Nack, NewRequest, RunConfig, RunState
from orbweb.frontier.routes import shard_of
from orbweb.testing.contract_store import Node, done, opened, page, pages, seeded

SHARDS = 4
HOSTS = {shard_of(f"h{n}", SHARDS): f"h{n}" for n in range(40)}
Stored = MemoryStore | ServerStore


def at(shard: int, name: str, *, filtered: bool = True) -> NewRequest:
    """A page of a host in that shard."""
    return page(name, HOSTS[shard], filtered=filtered)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture(params=["memory", "valkey"])
async def store(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Stored]:
    if request.param == "memory":
        yield MemoryStore(SHARDS)
        return
    async with server_store(server, SHARDS) as made:
        yield made


def failing(times: int, method: Any, *, after: bool = False) -> Any:
    """The method, of which the first calls fail, perhaps after they have happened."""
    left = [times]

    async def call(*args: Any) -> Any:
        if left[0] <= 0:
            return await method(*args)
        left[0] -= 1
        if after:
            await method(*args)
        raise StoreUnavailable("cut")

    return call


def cut_off(node: Node) -> None:
    """The node dies before it has taken anything from an outbox to another shard."""
    for shard in node.frontier.shards:  # type: ignore[attr-defined]
        shard.deliver = failing(10**6, shard.deliver)


async def heir_of(store: Stored, name: str = "B") -> Node:
    return (await opened(store))[0].peer(name)


def test_every_port_of_a_machine_lies_in_one_shard() -> None:
    for host in ("example.com", "127.0.0.1", "[::1]"):
        assert {shard_of(f"{host}:{port}", 1024) for port in (80, 8080)} == {shard_of(host, 1024)}
    assert len({shard_of(f"h{n}.example.com", SHARDS) for n in range(50)}) == SHARDS


async def test_a_link_to_a_host_of_another_shard_enters_there(store: Stored) -> None:
    node = await seeded(store, at(1, "a"))
    (lease,) = await node.take()
    await node.frontier.ack([done(lease, at(2, "b"), at(1, "c"), at(0, "d"))])
    status = await node.frontier.status()
    assert (status.pending, status.queued, status.away) == (3, 3, 0)
    assert sorted(await node.ids()) == ["b", "c", "d"]


async def test_what_a_dead_node_left_in_an_outbox_is_taken_to_its_shard(store: Stored) -> None:
    node = await seeded(store, at(1, "a"))
    (lease,) = await node.take()
    cut_off(node)
    assert await node.frontier.ack([done(lease, at(2, "b"))]) == [True]
    heir = await heir_of(store)
    claim = await heir.claim()
    assert (claim.leases, claim.state, claim.pending, claim.away) == ((), RunState.RUNNING, 1, 1)
    assert 0 < claim.wait_ms <= 500
    store.turn(claim.wait_ms)
    await heir.claim()
    (lease,) = await heir.take()
    assert lease.id == "b"
    await heir.finish(lease)
    assert (await heir.claim()).state is RunState.DONE


async def test_seeds_of_all_shards_enter_although_their_node_dies(store: Stored) -> None:
    node, _ = await opened(store)
    cut_off(node)
    await node.push(*(at(n % SHARDS, f"p{n}") for n in range(8)))
    heir = await heir_of(store)
    await heir.claim()
    store.turn(500)
    await heir.claim()
    found = await heir.ids()
    assert len(found) == len(set(found)) == 6, "two were of shard 0 and went to the first claim"


async def test_what_is_delivered_twice_enters_once(store: Stored) -> None:
    node = await seeded(store, at(1, "a"))
    (lease,) = await node.take()
    source, target = node.frontier.shards[1:3]  # type: ignore[attr-defined]
    source.trim = failing(1, source.trim)
    await node.frontier.ack([done(lease, at(2, "b"), at(2, "twin", filtered=False))])
    leases = await node.take()
    assert sorted(lease.id for lease in leases) == ["b", "twin"]
    await node.finish(*leases)
    rows = await source.outbox(10)
    assert len(rows) == 2, "its trim was lost"
    assert await target.deliver(rows) == 0
    store.turn(500)
    assert await node.ids() == []
    await node.claim()
    assert (await node.frontier.status()).state is RunState.DONE


async def test_a_link_that_is_not_deduplicated_enters_for_each_page_that_has_it(
    store: Stored,
) -> None:
    node = await seeded(store, at(1, "a"), at(1, "b"))
    for _ in "ab":
        (lease,) = await node.take(1)
        await node.frontier.ack([done(lease, at(2, "twin", filtered=False))])
        leases = {each.id: each for each in await node.take()}
        await node.finish(leases.pop("twin"))
        await node.frontier.nack([Nack(*each.held, counted=False) for each in leases.values()])


async def test_a_claim_that_failed_half_way_is_repeated_whole(store: Stored) -> None:
    node = await seeded(store, *(at(n % SHARDS, f"p{n}") for n in range(8)))
    shards = node.frontier.shards  # type: ignore[attr-defined]
    shards[2].claim = failing(1, shards[2].claim, after=True)
    with pytest.raises(StoreUnavailable):
        await node.frontier.claim("A", 7, 100, 60_000)
    claim = await node.frontier.claim("A", 7, 100, 60_000)
    assert sorted(lease.id for lease in claim.leases) == [f"p{n}" for n in range(8)]
    assert (await node.frontier.status()).leased == 8


async def test_a_shard_that_fails_again_and_again_keeps_no_other_from_being_asked(
    store: Stored,
) -> None:
    node = await seeded(store, *(at(n, f"p{n}") for n in range(SHARDS)))
    asked: list[int] = []

    def noting(number: int, method: Any) -> Any:
        async def call(*args: Any) -> Any:
            asked.append(number)
            return await method(*args)

        return call

    shards = node.frontier.shards  # type: ignore[attr-defined]
    await node.frontier.claim("A", 7, 100, 60_000)
    for number, shard in enumerate(shards):
        shard.claim = noting(number, shard.claim)
    await node.frontier.claim("A", 7, 100, 60_000)
    first, *others = asked
    shards[first].claim = noting(first, failing(2, shards[first].claim))
    for _ in range(2):
        asked.clear()
        with pytest.raises(StoreUnavailable):
            await node.frontier.claim("A", 7, 100, 60_000)
    assert asked == [*others, first]
    claim = await node.frontier.claim("A", 7, 100, 60_000)
    assert sorted(lease.id for lease in claim.leases) == [f"p{n}" for n in range(SHARDS)]


async def test_acks_that_were_answered_stay_answered_when_another_shard_fails(
    store: Stored,
) -> None:
    node = await seeded(store, at(1, "a"), at(2, "b"))
    acks = [done(lease) for lease in await node.take()]
    second = node.frontier.shards[2]  # type: ignore[attr-defined]
    second.ack = failing(1, second.ack)
    with pytest.raises(StoreUnavailable):
        await node.frontier.ack(acks)
    assert await node.frontier.ack(acks) == [True, True]
    assert (await node.frontier.status()).fenced == 0


async def test_leases_are_renewed_where_the_store_answers_although_a_shard_does_not(
    store: Stored,
) -> None:
    node = await seeded(store, at(0, "a"), at(3, "b"))
    held = [lease.held for lease in await node.take()]
    first = node.frontier.shards[0]  # type: ignore[attr-defined]
    renew = first.renew
    for _ in range(130):
        store.turn(1_000)
        first.renew = failing(1, renew)
        with pytest.raises(StoreUnavailable):
            await node.frontier.renew("A", 60_000, held)
        await renew("onlooker", 60_000, [])
    assert await node.peer("B").ids() == ["a"]


async def test_another_number_of_shards_is_refused(store: Stored) -> None:
    await seeded(store, page("a"))
    other = MemoryStore(2) if isinstance(store, MemoryStore) else ServerStore(store.servers, 2)
    if isinstance(other, MemoryStore) and isinstance(store, MemoryStore):
        other.shards = store.shards[:2]
    with pytest.raises(ConfigError, match=r"FRONTIER_SHARDS is 2, but .* made with 4"):
        await opened(other)
    single = other.frontier().shards[0]
    single.shards = 1
    with pytest.raises(ConfigError, match=r"FRONTIER_SHARDS is 1, but .* made with 4"):
        await single.open(RunConfig())


async def test_what_a_job_remembers_is_not_read_from_another_number_of_shards(
    store: Stored,
) -> None:
    await seeded(store, *pages("ab"), run="1", dedup_scope="spider")
    single = store.frontier("job", "2").shards[0]
    single.shards = 1
    with pytest.raises(ConfigError, match="made with 4"):
        await single.open(RunConfig(dedup_scope="spider"))
    assert (await single.open(RunConfig(dedup_scope="run"))).state is RunState.NEW


async def test_who_comes_next_finishes_the_making_of_a_run(store: Stored) -> None:
    first = store.frontier()
    first.shards[2].open_part = failing(1, first.shards[2].open_part)
    with pytest.raises(StoreUnavailable):
        await first.open(RunConfig())
    node = await seeded(store, *(at(n, f"p{n}") for n in range(SHARDS)))
    assert len(await node.ids()) == SHARDS


async def test_a_part_that_is_gone_is_a_lost_run_and_is_not_made_anew(store: Stored) -> None:
    node = await seeded(store, at(2, "a"))
    await lose_part(store, 2)
    with pytest.raises(RunLost):
        await node.claim()
    with pytest.raises(RunLost):
        await opened(store)


async def lose_part(store: Stored, shard: int) -> None:
    if isinstance(store, MemoryStore):
        store.shards[shard].runs.clear()
        return
    async for key in store.client.scan_iter(f"{{t:{shard}}}:run:*"):
        await store.client.delete(key)


async def test_a_node_that_slept_puts_no_old_run_in_the_place_of_a_new_one(store: Stored) -> None:
    old = store.frontier()
    whole = await old.shards[0].open(RunConfig())
    for shard in old.shards[1:]:
        await shard.open_part(RunConfig(), whole)
    await old.shards[0].lay()
    await Node(old).push()
    store.turn(10)
    new, answer = await opened(store, finished_ttl_ms=1)
    assert answer.state is RunState.NEW
    await new.push(*(at(n, f"p{n}") for n in range(SHARDS)))
    with pytest.raises(RunLost):
        await old.shards[2].open_part(RunConfig(), whole)
    assert len(await new.ids()) == SHARDS


async def test_a_finished_run_runs_on_when_a_shard_has_lost_its_last_writes(
    store: Stored,
) -> None:
    node = await seeded(store)
    assert (await node.frontier.status()).state is RunState.DONE
    await node.frontier.shards[2].deliver([at(2, "a")])  # type: ignore[attr-defined]
    assert not await node.frontier.settled()
    assert (await opened(store))[1].state is RunState.RUNNING
    (lease,) = await node.take()
    await node.finish(lease)
    assert (await node.claim()).state is RunState.DONE
    assert await node.frontier.settled()


async def test_added_requests_of_other_shards_reopen_a_run_in_one_step(store: Stored) -> None:
    node = await seeded(store)
    cut_off(node)
    assert await node.frontier.add([at(3, "a")]) == 0
    heir, answer = await opened(store)
    assert (answer.state, answer.status.away) == (RunState.RUNNING, 1)
    await heir.claim()
    store.turn(500)
    await heir.claim()
    assert await heir.ids() == ["a"]
    assert await heir.frontier.add([at(1, "b")]) == 1


async def test_dead_letters_of_all_shards_are_found_and_tried_again(store: Stored) -> None:
    node = await seeded(store, *(at(n, f"p{n}") for n in range(SHARDS)), max_retries=0)
    leases = await node.take()
    await node.frontier.nack([Nack(*each.held, reason="timeout", error="x") for each in leases])
    assert (await node.claim()).state is RunState.DONE
    letters = await store.dead_letters()
    assert sorted(each.id for each in letters) == ["p0", "p1", "p2", "p3"]
    assert await node.frontier.redrive(["p0", "p3", "unknown"]) == 2  # type: ignore[attr-defined]
    status = await node.frontier.status()
    assert (status.state, status.queued, status.dead) == (RunState.RUNNING, 2, 2)
