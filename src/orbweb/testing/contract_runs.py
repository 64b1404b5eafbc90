"""The contract of runs: how they begin, are seeded, end, and what they remember."""

from __future__ import annotations

from orbweb.errors import RunLost
from orbweb.frontier.base import Nack, RunState, SeedCode
from orbweb.testing.contract_store import (
    LEASE_MS,
    Node,
    Store,
    elapse,
    opened,
    page,
    pages,
    seeded,
)


class RunContract:
    """Opening, seeding, the exact end, deduplication, operators."""

    async def test_the_first_to_open_makes_the_run_and_others_join_it(self, store: Store) -> None:
        _, first = await opened(store)
        _, second = await opened(store)
        assert (first.state, second.state) == (RunState.NEW, RunState.RUNNING)
        assert first.epoch == second.epoch
        assert second.status.seeding

    async def test_a_run_does_not_end_before_its_seeding(self, store: Store) -> None:
        node, _ = await opened(store)
        assert (await node.claim()).state is RunState.RUNNING
        await node.push(page("a"), final=False)
        (lease,) = await node.take()
        await node.finish(lease)
        status = await node.frontier.status()
        assert (status.state, status.pending, status.seeding) == (RunState.RUNNING, 1, True)

    async def test_a_run_without_seeds_ends_with_its_seeding(self, store: Store) -> None:
        node = await seeded(store)
        assert (await node.frontier.status()).state is RunState.DONE
        assert await node.frontier.settled()

    async def test_the_step_that_leaves_nothing_ends_the_run(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"))
        first, second = await node.take()
        await node.finish(first)
        claim = await node.claim()
        assert (claim.state, claim.pending) == (RunState.RUNNING, 1)
        assert not await node.frontier.settled()
        await node.finish(second)
        claim = await node.claim()
        assert (claim.state, claim.pending) == (RunState.DONE, 0)
        assert (await node.frontier.status()).finished_at_ms > 0
        _, again = await opened(store)
        assert again.state is RunState.DONE
        assert again.status.reasons == {"done": 2}

    async def test_one_node_seeds_at_a_time(self, store: Store) -> None:
        node, _ = await opened(store)
        first = await node.frontier.seed_claim("A", 1, LEASE_MS)
        assert (first.code, first.token) == (SeedCode.OK, "A:1")
        assert (await node.frontier.seed_claim("B", 1, LEASE_MS)).code is SeedCode.BUSY
        assert (await node.frontier.seed_claim("A", 1, LEASE_MS)).code is SeedCode.OK
        await node.frontier.seed_push(first.token, 1, True, pages("a"))
        assert (await node.frontier.seed_claim("B", 2, LEASE_MS)).code is SeedCode.DONE

    async def test_batches_of_seeds_enter_once_and_in_order(self, store: Store) -> None:
        node, _ = await opened(store)
        token = (await node.frontier.seed_claim("A", 1, LEASE_MS)).token
        push = node.frontier.seed_push
        assert (await push(token, 1, False, pages("ab"))).added == 2
        repeated = await push(token, 1, False, pages("ab"))
        assert (repeated.code, repeated.cursor, repeated.added) == (SeedCode.DUPLICATE, 1, 0)
        ahead = await push(token, 3, False, pages("xy"))
        assert (ahead.code, ahead.cursor) == (SeedCode.GAP, 1)
        assert (await push("B:9", 2, False, pages("xy"))).code is SeedCode.STALE
        last = await push(token, 2, True, pages("bc"))
        assert (last.code, last.cursor, last.added) == (SeedCode.OK, 2, 1)
        assert (await push(token, 3, True, pages("xy"))).code is SeedCode.STALE
        status = await node.frontier.status()
        assert (status.seeds, status.queued, status.seeding) == (2, 3, False)

    async def test_seeds_that_were_not_taken_are_counted_once(self, store: Store) -> None:
        node, _ = await opened(store)
        push = node.frontier.seed_push
        token = (await node.frontier.seed_claim("A", 1, LEASE_MS)).token
        for _ in range(2):  # the second is a repeated call
            await push(token, 1, False, pages("a"), [("offsite", 2)])
        await push(token, 3, False, [], [("offsite", 9)])
        await push("B:9", 2, False, [], [("offsite", 9)])
        assert (await node.frontier.status()).reasons == {"offsite": 2}
        await elapse(store, node, LEASE_MS)
        heir = (await node.frontier.seed_claim("B", 1, LEASE_MS)).token
        await push(heir, 2, False, [], [("offsite", 1)])  # it begins anew
        await push(heir, 3, True, pages("b"), [("offsite", 3), ("depth", 1)])
        assert (await node.frontier.status()).reasons == {"offsite": 3, "depth": 1}
        assert await node.ids() == ["a", "b"]

    async def test_another_node_goes_on_where_a_dead_seeder_stopped(self, store: Store) -> None:
        node, _ = await opened(store)
        dead = (await node.frontier.seed_claim("A", 1, LEASE_MS)).token
        await node.frontier.seed_push(dead, 1, False, pages("ab"))
        await elapse(store, node, LEASE_MS)
        heir = await node.frontier.seed_claim("B", 1, LEASE_MS)
        assert (heir.code, heir.cursor) == (SeedCode.OK, 1)
        late = await node.frontier.seed_push(dead, 2, True, pages("xy"))
        assert late.code is SeedCode.STALE
        await node.frontier.seed_push(heir.token, 2, True, pages("c"))
        assert await node.ids() == ["a", "b", "c"]

    async def test_what_is_pending_or_seen_does_not_enter_again(self, store: Store) -> None:
        node = await seeded(store, page("a"), page("a"), page("b", filtered=False))
        assert await node.frontier.add([page("b", filtered=False)]) == 0, "it is pending"
        leases = await node.take()
        await node.finish(*leases)
        assert await node.frontier.add([page("a")]) == 0, "it was seen"
        assert (await node.frontier.status()).reasons["duplicate_request"] == 3
        assert await node.frontier.add([page("b", filtered=False)]) == 1, "not deduplicated"

    async def test_many_fingerprints_are_all_remembered(self, store: Store) -> None:
        many = [page(f"p{n}", f"h{n % 3}") for n in range(3_000)]
        node = await seeded(store, *many)
        leases = await node.take(3_000)
        await node.finish(*leases)
        assert len(leases) == 3_000
        assert await node.frontier.add(many) == 0

    async def test_runs_of_one_job_do_not_know_each_other(self, store: Store) -> None:
        one = await seeded(store, *pages("ab"), run="1")
        two = await seeded(store, *pages("ab"), run="2")
        assert await one.ids() == await two.ids() == ["a", "b"]

    async def test_a_job_may_remember_over_its_runs(self, store: Store) -> None:
        one = await seeded(store, *pages("ab"), run="1", dedup_scope="spider")
        two = await seeded(store, *pages("abc"), run="2", dedup_scope="spider")
        other = await seeded(store, *pages("ab"), job="other", dedup_scope="spider")
        assert await one.ids() == ["a", "b"]
        assert await two.ids() == ["c"]
        assert await other.ids() == ["a", "b"]

    async def test_a_resident_run_ends_when_an_operator_says_so(self, store: Store) -> None:
        node = await seeded(store, page("a"), keep_alive=True)
        (lease,) = await node.take()
        await node.finish(lease)
        status = await node.frontier.status()
        assert (status.state, status.hold, status.queued) == (RunState.RUNNING, True, 0)
        assert await node.frontier.renew("A", LEASE_MS, []) == ([], False)
        await node.frontier.stop()
        claim = await node.claim()
        assert (claim.state, claim.stopping) == (RunState.DONE, True)
        assert await node.frontier.renew("A", LEASE_MS, []) == ([], True)

    async def test_a_resident_run_gives_dead_nodes_leases_back(self, store: Store) -> None:
        node = await seeded(store, page("a"), keep_alive=True)
        await node.take()
        await elapse(store, node, LEASE_MS)
        assert await node.peer("B").ids() == ["a"]

    async def test_who_opens_a_stopped_run_lets_it_run_again(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        await node.frontier.stop()
        assert (await node.claim(0)).stopping
        again, answer = await opened(store)
        assert (answer.state, answer.status.stopping) == (RunState.RUNNING, False)
        assert await again.peer("B").ids() == ["a"]

    async def test_added_requests_reopen_a_finished_run(self, store: Store) -> None:
        node = await seeded(store)
        assert await node.frontier.add([page("a")]) == 1
        assert (await node.frontier.status()).state is RunState.RUNNING
        (lease,) = await node.take()
        await node.finish(lease)
        assert await node.frontier.add([page("a")]) == 0
        assert (await node.frontier.status()).state is RunState.DONE

    async def test_dead_letters_can_be_tried_again(self, store: Store) -> None:
        node = await seeded(store, page("a", payload=b"body"), max_retries=0)
        await self._bury(node)
        assert (await node.frontier.status()).state is RunState.DONE
        assert await node.frontier.redrive(["a", "unknown"]) == 1
        status = await node.frontier.status()
        assert (status.state, status.dead, status.queued) == (RunState.RUNNING, 0, 1)
        (lease,) = await node.take()
        assert (lease.retries, lease.deliveries, lease.payload) == (0, 1, b"body")

    async def test_dead_letters_can_be_dropped(self, store: Store) -> None:
        node = await seeded(store, page("a"), max_retries=0)
        await self._bury(node)
        assert await node.frontier.redrive(["a"], drop=True) == 1
        status = await node.frontier.status()
        assert (status.state, status.dead, status.pending) == (RunState.DONE, 0, 0)
        assert await store.dead_letters() == []

    @staticmethod
    async def _bury(node: Node) -> None:
        (lease,) = await node.take()
        nack = Nack(*lease.held, fatal=True, reason="timeout", error="slow")
        await node.frontier.nack([nack])

    async def test_a_finished_run_counts_as_absent_after_its_time(self, store: Store) -> None:
        _, first = await opened(store)
        await seeded(store, finished_ttl_ms=5_000)
        store.turn(5_000)
        _, young = await opened(store, finished_ttl_ms=5_000)
        store.turn(1)
        node, old = await opened(store, finished_ttl_ms=5_000)
        assert (young.state, old.state) == (RunState.DONE, RunState.NEW)
        assert (young.epoch, old.status.seeding) == (first.epoch, True)
        assert old.epoch != young.epoch
        await node.push(page("a"))
        assert await node.ids() == ["a"]

    async def test_an_unfinished_run_is_never_absent(self, store: Store) -> None:
        await seeded(store, page("a"), finished_ttl_ms=0)
        store.turn(10**9)
        _, again = await opened(store, finished_ttl_ms=0)
        assert again.state is RunState.RUNNING

    async def test_a_run_that_was_flushed_is_lost_not_done(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        await store.lose()
        frontier = node.frontier
        calls = (
            node.claim(),
            node.finish(lease),
            frontier.renew("A", LEASE_MS, []),
            frontier.status(),
            frontier.settled(),
            frontier.add([page("b")]),
        )
        for call in calls:
            try:
                await call
            except RunLost:
                continue
            raise AssertionError(f"{call} did not raise RunLost")

    async def test_the_counts_are_exact(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"), *pages("def", host="other"))
        await node.take(1)
        status = await node.frontier.status()
        assert (status.pending, status.queued, status.leased) == (6, 5, 1)
        assert (status.hosts, status.seeds, status.seeding) == (2, 1, False)

    async def test_repair_changes_nothing_in_a_sound_state(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"))
        await node.take(1)
        before = await node.frontier.status()
        assert await node.frontier.recover() == 0
        assert await node.frontier.status() == before
