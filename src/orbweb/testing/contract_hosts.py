"""The contract of politeness: what one host bears, over all nodes and runs together."""

from __future__ import annotations

from orbweb.frontier.base import Nack
from orbweb.testing.contract_store import (
    LEASE_MS,
    Store,
    elapse,
    opened,
    page,
    pages,
    seeded,
)


class HostContract:
    """Concurrency, delay, quarantine."""

    async def test_a_host_bears_so_many_fetches_over_all_nodes(self, store: Store) -> None:
        node = await seeded(store, *pages("abcd"), page("z", "other"), host_concurrency=2)
        first = await node.take()
        assert sorted(lease.id for lease in first) == ["a", "b", "z"]
        assert await node.peer("B").ids() == []
        await node.finish(next(lease for lease in first if lease.id == "a"))
        assert await node.peer("C").ids() == ["c"]

    async def test_a_body_that_has_arrived_frees_its_slot(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"), host_concurrency=1)
        (lease,) = await node.take()
        await node.frontier.fetched([lease.held])
        await node.frontier.fetched([lease.held])
        assert await node.ids() == ["b"], "one slot came back, not two"
        assert await node.finish(lease) == [True], "the lease stays"
        assert await node.ids() == []

    async def test_a_request_given_back_frees_its_slot(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"), host_concurrency=1)
        (lease,) = await node.take()
        await node.frontier.nack([Nack(*lease.held, backoff_ms=1_000)])
        assert await node.ids() == ["b"]

    async def test_a_host_bears_so_many_fetches_over_all_runs(self, store: Store) -> None:
        one = await seeded(store, *pages("ab"), job="one", host_concurrency=1)
        two = await seeded(store, *pages("cd"), job="two", host_concurrency=1)
        (lease,) = await one.take()
        claim = await two.claim()
        assert claim.leases == ()
        assert claim.wait_ms > 0, "the other run is told to wait"
        await one.finish(lease)
        assert await two.ids() == ["c"], "a free slot wakes the run that waits for it"

    async def test_runs_of_one_job_share_a_host_too(self, store: Store) -> None:
        one = await seeded(store, *pages("ab"), run="1", host_concurrency=1)
        two = await seeded(store, *pages("ab"), run="2", host_concurrency=1)
        (lease,) = await one.take()
        assert await two.ids() == []
        await one.frontier.fetched([lease.held])
        assert await two.ids() == ["a"]

    async def test_between_two_fetches_lies_the_delay(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"), host_delay_ms=3_000)
        assert await node.ids() == ["a"]
        await elapse(store, node, 2_000)
        assert await node.peer("B").ids() == []
        await elapse(store, node, 1_000)
        assert await node.peer("C").ids() == ["b"]

    async def test_the_delay_counts_from_start_to_start(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"), host_delay_ms=3_000, host_concurrency=2)
        (lease,) = await node.take()
        await elapse(store, node, 2_000)
        await node.frontier.fetched([lease.held])
        assert await node.ids() == []
        await elapse(store, node, 1_000)
        assert await node.ids() == ["b"]

    async def test_a_delay_of_one_host_holds_up_no_other(self, store: Store) -> None:
        requests = [page(f"{host}{n}", host) for host in "xyz" for n in (1, 2)]
        node = await seeded(store, *requests, host_delay_ms=3_000)
        assert sorted(await node.ids()) == ["x1", "y1", "z1"]

    async def test_the_delay_of_a_host_binds_other_runs(self, store: Store) -> None:
        one = await seeded(store, page("a"), job="one", host_delay_ms=3_000)
        two = await seeded(store, page("b"), job="two")
        (lease,) = await one.take()
        await one.finish(lease)
        assert await two.ids() == []
        await elapse(store, two, 3_000)
        assert await two.ids() == ["b"]

    async def test_the_hint_says_when_the_host_is_allowed_again(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"), host_delay_ms=5_500)
        await node.take()
        waited = 0
        while not (claim := await node.claim()).leases:
            assert 0 < claim.wait_ms <= 5_505 - waited
            waited += claim.wait_ms
            store.turn(claim.wait_ms)
        (lease,) = claim.leases
        assert lease.start_ms > 0, "it is handed out a little before it may be sent"
        assert waited + lease.start_ms == 5_505, "the delay, and a little for a late sender"

    async def test_an_outage_does_not_shorten_the_delay(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"), host_delay_ms=3_000)
        await node.take()
        store.turn(60_000)
        assert await node.ids() == []
        store.turn(-60_000)
        assert await node.ids() == []
        await elapse(store, node, 2_000)
        assert await node.ids() == ["b"]

    async def test_a_lost_fetch_of_a_polite_run_keeps_its_slot_until_it_must_have_ended(
        self, store: Store
    ) -> None:
        polite = {"host_concurrency": 1, "host_delay_ms": 1, "fetch_timeout_ms": 90_000}
        node = await seeded(store, *pages("ab"), **polite)
        await node.take()
        await elapse(store, node, LEASE_MS)
        assert await node.peer("B").ids() == [], "the node may be slow, not dead"
        assert (await node.frontier.status()).queued == 2
        await elapse(store, node, 90_000 - LEASE_MS)
        assert len(await node.peer("C").ids()) == 1

    async def test_a_lost_fetch_keeps_its_slot_where_another_run_is_polite(
        self, store: Store
    ) -> None:
        hasty = await seeded(
            store, *pages("ab"), job="hasty", host_concurrency=1, fetch_timeout_ms=90_000
        )
        await hasty.take()
        polite = await seeded(
            store, *pages("cd"), job="polite", host_concurrency=1, host_delay_ms=1
        )
        await elapse(store, hasty, LEASE_MS)
        assert await hasty.peer("B").ids() == [], "the other run's host is still being fetched"
        assert await polite.ids() == []

    async def test_without_a_delay_an_expired_lease_frees_its_slot(self, store: Store) -> None:
        node = await seeded(store, page("a"), host_concurrency=1, fetch_timeout_ms=900_000)
        await node.take()
        await elapse(store, node, LEASE_MS)
        assert await node.peer("B").ids() == ["a"]

    async def test_no_limit_is_no_limit(self, store: Store) -> None:
        node, _ = await opened(store, host_concurrency=0)
        await node.push(*(page(f"p{n}") for n in range(500)))
        assert len(await node.ids(500)) == 500

    async def test_a_host_that_asks_for_a_pause_gets_it_from_all_runs(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"), page("x", "h2"), host_concurrency=1)
        other = await seeded(store, *pages("stu"), job="other", host_concurrency=1)
        (first,) = [lease for lease in await node.take() if lease.id == "a"]
        await node.frontier.hold_off([(first.host, 5_000)])
        await node.frontier.hold_off([(first.host, 1_000)])
        await node.finish(first)
        assert await node.ids() == []
        assert await other.ids() == []
        await elapse(store, node, 4_900)
        assert await other.ids() == []
        await elapse(store, node, 2_600)
        assert await other.ids() == ["s"], "half of the pause at most is added"

    async def test_nodes_that_ask_share_a_host(self, store: Store) -> None:
        node = await seeded(store, *pages("abcdefghijkl"), host_concurrency=4)
        other = node.peer("B")
        first = await node.take()
        assert len(first) == 4
        assert await other.ids() == []
        await node.finish(*first[:3])
        assert len(await node.take()) == 1, "half of four, of which it holds one"
        assert len(await other.take()) == 2

    async def test_a_node_that_stopped_asking_keeps_nothing_free(self, store: Store) -> None:
        node = await seeded(store, *pages("abcdefgh"), host_concurrency=4)
        first = await node.take()
        assert await node.peer("B").ids() == []
        await elapse(store, node, 1_000)
        await node.finish(*first)
        assert len(await node.take()) == 4

    async def test_runs_that_ask_share_a_host(self, store: Store) -> None:
        node = await seeded(store, *pages("abcdefgh"), host_concurrency=4)
        other = await seeded(store, *pages("stuvwxyz"), job="other", host_concurrency=4)
        first = await node.take()
        assert await other.ids() == []
        await node.finish(*first)
        assert len(await node.take()) == 2
        assert len(await other.take()) == 2

    async def test_every_host_gets_its_turn(self, store: Store) -> None:
        requests = [page(f"{host}{n}", host) for host in "xyz" for n in range(50)]
        node = await seeded(store, *requests, host_concurrency=2)
        hosts = set[str]()
        for _ in range(8):
            store.turn(10)
            leases = await node.take(2)
            hosts |= {lease.host for lease in leases}
            await node.finish(*leases)
        assert hosts == set("xyz")
