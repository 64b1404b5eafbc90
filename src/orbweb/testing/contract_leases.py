"""The contract of leases: who holds a request, and what becomes of it."""

from __future__ import annotations

from orbweb.frontier.base import (
    SEED_ID,
    Ack,
    Held,
    Lease,
    Nack,
    NackResult,
    RunState,
    SeedCode,
)
from orbweb.testing.contract_store import (
    LEASE_MS,
    Node,
    Store,
    done,
    elapse,
    opened,
    page,
    pages,
    seeded,
)


class LeaseContract:
    """Claims, fences, acks, nacks and expiry."""

    async def test_a_claim_hands_out_what_was_pushed(self, store: Store) -> None:
        node = await seeded(store, page("a", "h1", 3, payload=b"any\nbytes\0"))
        (lease,) = await node.take()
        assert lease.token.startswith("A:")
        assert lease == Lease("a", lease.token, "h1", 3, 0, 1, b"any\nbytes\0")

    async def test_smaller_priority_first_and_in_order_of_arrival_within_one(
        self, store: Store
    ) -> None:
        requests = [page("a", priority=1), page("b"), page("c", priority=-1), page("d"), page("e")]
        node = await seeded(store, *requests)
        assert await node.ids() == ["c", "b", "d", "e", "a"]

    async def test_a_repeated_claim_gives_again_what_is_still_held(self, store: Store) -> None:
        node = await seeded(store, *pages("abcd"))
        first = await node.frontier.claim("A", 1, 3, LEASE_MS)
        await node.finish(first.leases[1])
        again = await node.frontier.claim("A", 1, 3, LEASE_MS)
        kept = (first.leases[0], first.leases[2])
        assert again.leases == tuple(lease._replace(mark=-1) for lease in kept)
        assert await node.peer("B").ids() == ["d"]

    async def test_a_repeated_claim_does_not_give_what_went_to_another_node(
        self, store: Store
    ) -> None:
        node = await seeded(store, *pages("ab"))
        await node.frontier.claim("A", 1, 1, LEASE_MS)
        await elapse(store, node, LEASE_MS)
        assert await node.peer("B").ids() == ["b", "a"]
        assert (await node.frontier.claim("A", 1, 1, LEASE_MS)).leases == ()

    async def test_a_late_claim_gets_nothing(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"))
        await node.frontier.claim("A", 2, 1, LEASE_MS)
        assert (await node.frontier.claim("A", 1, 1, LEASE_MS)).leases == ()
        assert (await node.frontier.status()).leased == 1

    async def test_a_stranger_changes_nothing(self, store: Store) -> None:
        node = await seeded(store, page("a"), host_concurrency=1)
        (lease,) = await node.take()
        before = await node.frontier.status()
        alien = Held("a", "B:1")
        assert await node.frontier.ack([Ack(*alien, "done", 9, pages("xy"))]) == [False]
        assert await node.frontier.nack([Nack(*alien, fatal=True)]) == [NackResult.LOST]
        assert not await node.frontier.emit("a", "B:1", 1, pages("xy"))
        assert (await node.frontier.renew("B", LEASE_MS, [alien]))[0] == [alien]
        await node.frontier.fetched([alien])
        after = await node.frontier.status()
        assert (after.fenced, before.fenced) == (2, 0)
        assert (after.pending, after.leased, after.items) == (1, 1, 0)
        await node.frontier.add([page("b")])
        assert await node.ids() == [], "the stranger's `fetched` gave no slot back"
        assert await node.finish(lease) == [True]

    async def test_an_ack_that_is_repeated_does_nothing(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        assert await node.finish(lease, lease) == [True, False]
        assert (await node.frontier.status()).reasons == {"done": 1}

    async def test_children_enter_with_the_ack(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        await node.frontier.ack([done(lease, *pages("abc"), items=2)])
        status = await node.frontier.status()
        assert (status.state, status.queued, status.items) == (RunState.RUNNING, 2, 2)
        assert status.reasons == {"done": 1, "duplicate_request": 1}
        assert await node.ids() == ["b", "c"]

    async def test_children_of_a_long_page_may_come_before_its_ack(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        assert await node.frontier.emit(*lease.held, 1, pages("bc"))
        assert await node.frontier.emit(*lease.held, 1, pages("bc")), "a repeated call adds nothing"
        assert await node.peer("B").ids() == ["b", "c"]
        assert await node.finish(lease) == [True]

    async def test_a_page_with_thousands_of_links_is_one_step(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        links = [page(f"p{n:04}", f"h{n % 7}") for n in range(9_000)]
        await node.frontier.ack([done(lease, *links)])
        assert (await node.frontier.status()).queued == 9_000
        assert len(await node.ids(2_000)) == 2_000

    async def test_an_expired_lease_goes_to_the_next_node(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (late,) = await node.take()
        await elapse(store, node, LEASE_MS - 1_000)
        assert await node.peer("B").ids() == []
        await elapse(store, node, 1_000)
        (lease,) = await node.peer("C").take()
        assert (lease.token[:2], lease.retries, lease.deliveries) == ("C:", 0, 2)
        assert await node.frontier.ack([done(late, *pages("xy"))]) == [False]
        status = await node.frontier.status()
        assert (status.pending, status.reaped, status.fenced) == (1, 1, 1)

    async def test_an_expired_request_keeps_its_priority(self, store: Store) -> None:
        node = await seeded(store, page("a", priority=-5), page("b"), page("c"))
        assert await node.ids(1) == ["a"]
        await elapse(store, node, LEASE_MS)
        assert await node.ids() == ["a", "b", "c"]

    async def test_a_renewed_lease_stays(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        for _ in range(3):
            await elapse(store, node, LEASE_MS - 1_000)
            assert await node.frontier.renew("A", LEASE_MS, [lease.held]) == ([], False)
        assert await node.peer("B").ids() == []
        assert await node.finish(lease) == [True]

    async def test_renewing_does_not_bring_back_what_is_lost(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        await elapse(store, node, LEASE_MS)
        (other,) = await node.peer("B").take()
        assert (await node.frontier.renew("A", LEASE_MS, [lease.held]))[0] == [lease.held]
        assert await node.finish(lease, other) == [False, True]

    async def test_a_node_that_lost_a_request_and_got_it_again_keeps_the_new_lease(
        self, store: Store
    ) -> None:
        node = await seeded(store, page("a"))
        (old,) = await node.take()
        await elapse(store, node, LEASE_MS)
        (new,) = await node.take()
        both = [old.held, new.held]
        assert (await node.frontier.renew("A", LEASE_MS, both))[0] == [old.held]
        assert await node.finish(old, new) == [False, True]

    async def test_a_request_that_kills_its_nodes_is_given_up(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"), max_deliveries=5)
        for times in range(1, 6):
            leases = await node.peer(f"N{times}").take()
            assert [lease.deliveries for lease in leases if lease.id == "a"] == [times]
            await node.finish(*(lease for lease in leases if lease.id == "b"))
            await elapse(store, node, LEASE_MS)
        assert (await node.claim()).state is RunState.DONE
        (letter,) = await store.dead_letters()
        assert (letter.id, letter.reason, letter.tries) == ("a", "poison", 5)
        assert letter.payload == b"a"
        assert "5 times" in letter.error

    async def test_nothing_is_lost_when_a_node_never_comes_back(self, store: Store) -> None:
        names = [f"p{n:03}" for n in range(250)]
        node = await seeded(store, *(page(name, f"h{name[-1]}") for name in names))
        lost = await node.take(250)
        await elapse(store, node, LEASE_MS)
        heir, found = node.peer("B"), list[str]()
        while (claim := await heir.claim()).leases:
            found += [lease.id for lease in claim.leases]
            await heir.finish(*claim.leases)
        assert sorted(found) == names
        assert claim.state is RunState.DONE
        assert not any(await node.finish(*lost))

    async def test_a_clean_release_is_not_counted(self, store: Store) -> None:
        node = await seeded(store, page("a"), max_retries=0, max_deliveries=2)
        for _ in range(5):
            (lease,) = await node.take()
            assert (lease.retries, lease.deliveries) == (0, 1)
            answer = await node.frontier.nack([Nack(*lease.held, counted=False)])
            assert answer == [NackResult.REQUEUED]
        assert (await node.frontier.status()).retried == 0

    async def test_a_retry_waits_its_backoff(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        await node.frontier.nack([Nack(*lease.held, backoff_ms=5_000, payload=b"new")])
        status = await node.frontier.status()
        assert (status.delayed, status.retried, status.state) == (1, 1, RunState.RUNNING)
        await elapse(store, node, 4_000)
        assert await node.ids() == []
        await elapse(store, node, 1_000)
        (lease,) = await node.take()
        assert (lease.retries, lease.deliveries, lease.payload) == (1, 1, b"new")

    async def test_used_up_retries_make_a_dead_letter(self, store: Store) -> None:
        node = await seeded(store, page("a", "h1", 7), max_retries=2)
        results = []
        for n in range(3):
            (lease,) = await node.take()
            nack = Nack(*lease.held, reason="timeout", error=f"try {n}\nslow")
            results += await node.frontier.nack([nack])
        assert results == [NackResult.REQUEUED, NackResult.REQUEUED, NackResult.DEAD]
        (letter,) = await store.dead_letters()
        assert (letter.reason, letter.error, letter.tries) == ("timeout", "try 2\nslow", 3)
        assert (letter.host, letter.priority, letter.payload) == ("h1", 7, b"a")
        status = await node.frontier.status()
        assert (status.state, status.dead) == (RunState.DONE, 1)
        assert status.reasons == {"timeout": 1}

    async def test_a_fatal_failure_is_not_retried(self, store: Store) -> None:
        node = await seeded(store, page("a"), max_retries=9)
        (lease,) = await node.take()
        nack = Nack(*lease.held, fatal=True, reason="not_retry", error="gone")
        assert await node.frontier.nack([nack]) == [NackResult.DEAD]
        (letter,) = await store.dead_letters()
        assert (letter.reason, letter.tries) == ("not_retry", 1)

    async def test_a_page_that_fails_half_way_keeps_what_it_found(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        ack = Ack(*lease.held, "callback_error", 1, pages("bc"), "KeyError: 'x'")
        assert await node.frontier.ack([ack]) == [True]
        (letter,) = await store.dead_letters()
        assert (letter.reason, letter.error) == ("callback_error", "KeyError: 'x'")
        assert (letter.tries, letter.payload) == (1, b"a")
        assert await node.ids() == ["b", "c"]
        assert (await node.frontier.status()).items == 1

    async def test_a_dead_letter_says_who_held_it(self, store: Store) -> None:
        node = await seeded(store, page("a"), page("b"), max_deliveries=1)
        one, _ = await node.peer("N1").take()
        await node.frontier.nack([Nack(*one.held, fatal=True, reason="dns")])
        await elapse(store, node, LEASE_MS + 5_000)
        await node.claim()
        letters = {letter.reason: letter for letter in await store.dead_letters()}
        assert {letter.node for letter in letters.values()} == {"N1"}
        assert set(letters) == {"dns", "poison"}

    async def test_what_was_answered_last_is_kept_with_a_dead_letter(self, store: Store) -> None:
        node = await seeded(store, *pages("abcd"), kept_responses=2, max_retries=0)
        leases = await node.take()
        acks = [
            Ack(*lease.held, "antibot", error="blocked", response=b"\x00<p>" + lease.payload)
            for lease in leases[:3]
        ]
        assert await node.frontier.ack([*acks, done(leases[3])]) == [True] * 4
        kept = await store.responses()
        assert kept == {"a": b"\x00<p>a", "b": b"\x00<p>b"}, "there is room for two"
        await node.frontier.redrive(["a"], drop=True)
        await node.frontier.redrive(["b"])
        assert await store.responses() == {}
        (again,) = await node.take()
        await node.frontier.ack([Ack(*again.held, "timeout", error="slow")])
        assert await store.responses() == {}, "this time nothing was answered"

    async def test_what_an_earlier_death_left_is_not_taken_for_the_last_answer(
        self, store: Store
    ) -> None:
        node = await seeded(store, page("a", filtered=False))
        (first,) = await node.take()
        await node.frontier.ack([Ack(*first.held, "antibot", error="blocked", response=b"old")])
        await node.frontier.add([page("a", filtered=False)])
        (second,) = await node.take()
        await node.frontier.ack([Ack(*second.held, "timeout", error="slow")])
        (letter,) = await store.dead_letters()
        assert (letter.reason, await store.responses()) == ("timeout", {})

    async def test_what_was_answered_to_a_lost_lease_is_not_kept(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        late = Ack("a", f"{lease.token}9", "antibot", error="blocked", response=b"late")
        assert await node.frontier.ack([late]) == [False]
        await node.frontier.nack([Nack(*lease.held, fatal=True, reason="dns")])
        assert await store.responses() == {}

    async def test_an_ack_whose_emitted_links_are_forgotten_is_refused(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        assert await node.frontier.emit(*lease.held, 1, pages("b"))
        assert await node.frontier.emit(*lease.held, 2, pages("c"))
        ack = Ack(*lease.held, "done", 0, pages("d"), emitted=3)
        assert await node.frontier.ack([ack]) == [False]
        assert (await node.frontier.status()).reasons == {}
        ack = ack._replace(emitted=2, skipped=[("offsite", 4)])
        assert await node.frontier.ack([ack]) == [True]
        assert await node.ids() == ["b", "c", "d"]
        assert (await node.frontier.status()).reasons == {"done": 1, "offsite": 4}

    async def test_the_seeding_can_be_given_back(self, store: Store) -> None:
        node, _ = await opened(store)
        first = await node.frontier.seed_claim("n1", 1, LEASE_MS)
        assert (await node.frontier.seed_claim("n2", 1, LEASE_MS)).code is SeedCode.BUSY
        release = Nack(SEED_ID, first.token, counted=False)
        assert await node.frontier.nack([release]) == [NackResult.REQUEUED]
        assert (await node.frontier.seed_claim("n2", 2, LEASE_MS)).code is SeedCode.OK

    async def test_where_a_redirect_leads_is_taken_once(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"))
        first, second = await node.take()
        (target, other) = pages("cd")
        visits = [(first, target), (second, target), (first, target)]
        answers = [
            await node.frontier.visit(*lease.held, page.fingerprint or 0) for lease, page in visits
        ]
        assert answers == [True, False, True]
        await node.finish(first)
        assert await node.frontier.visit(*first.held, other.fingerprint or 0) is None
        await node.finish(second)
        await node.frontier.add([target, other])
        assert await node.ids() == ["d"]

    async def test_a_page_taken_by_a_redirect_enters_when_the_request_dies(
        self, store: Store
    ) -> None:
        node = await seeded(store, *pages("ab"))
        first, second = await node.take()
        (target, later) = pages("cd")
        assert await node.frontier.visit(*first.held, target.fingerprint or 0)
        assert await node.frontier.visit(*first.held, later.fingerprint or 0)
        await node.frontier.ack([done(second, target)])
        assert await node.ids() == []
        await node.frontier.nack([Nack(*first.held, fatal=True, reason="not_retry")])
        (held_back,) = await node.take()
        assert (held_back.id, held_back.payload) == (target.id, target.payload)
        await node.frontier.ack([done(held_back, later)])
        assert await node.ids() == [later.id], "free for the first link to it"

    async def test_another_attempt_may_go_where_the_first_went(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        (target,) = pages("b")
        assert await node.frontier.visit(*lease.held, target.fingerprint or 0)
        await node.frontier.nack([Nack(*lease.held, reason="timeout")])
        (lease,) = await node.take()
        assert await node.frontier.visit(*lease.held, target.fingerprint or 0)

    async def test_the_clock_never_goes_back(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        await node.take()
        await elapse(store, node, LEASE_MS - 1_000)
        store.turn(-3_600_000)
        assert await node.ids() == []
        await elapse(store, node, 1_000)
        assert await node.ids() == ["a"], "after the jump back a second is a second again"

    async def test_an_outage_expires_no_lease(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"))
        leases = await node.take()
        store.turn(LEASE_MS)
        assert await node.peer("B").ids() == []
        assert (await node.frontier.renew("A", LEASE_MS, [lease.held for lease in leases]))[0] == []
        assert await node.finish(*leases) == [True] * 3

    async def test_the_hint_leads_to_an_expired_lease_in_time(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        await node.take()
        assert await _ask_by_hints(store, node.peer("B")) == LEASE_MS

    async def test_the_hint_leads_to_a_retry_in_time(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        (lease,) = await node.take()
        await node.frontier.nack([Nack(*lease.held, backoff_ms=45_678)])
        assert await _ask_by_hints(store, node) == 45_678

    async def test_without_anything_in_sight_there_is_no_hint(self, store: Store) -> None:
        node = await seeded(store, keep_alive=True)
        claim = await node.claim()
        assert (claim.wait_ms, claim.pending, claim.state) == (-1, 1, RunState.RUNNING)

    async def test_the_seeding_is_a_lease_like_others(self, store: Store) -> None:
        node = await seeded(store, page("a"), keep_alive=True)
        assert (await node.frontier.renew("A", LEASE_MS, [Held(SEED_ID, "A:1")]))[0]


async def _ask_by_hints(store: Store, node: Node) -> int:
    """Ask again when the frontier says so; returns after how many ms something was handed out."""
    waited = 0
    for _ in range(200):
        claim = await node.claim()
        if claim.leases:
            return waited
        assert claim.wait_ms > 0, "a hint that makes nodes ask without a pause"
        waited += claim.wait_ms
        store.turn(claim.wait_ms)
    raise AssertionError(f"nothing after {waited} ms")
