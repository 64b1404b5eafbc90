"""The contract of pace: reserved times, permits, and what a fleet makes of what its nodes meet."""

from __future__ import annotations

from orbweb.frontier.base import Held, Lease, PermitCode, Signal
from orbweb.testing.contract_store import LEASE_MS, Node, Store, elapse, page, pages, seeded

GAP_MS = 1_000
SLACK_MS = 5
"""What is added to a gap, so that a request that is sent a little late comes not too near."""


async def only(node: Node) -> Lease:
    (lease,) = await node.take()
    return lease


async def report(node: Node, **met: int) -> None:
    await node.frontier.report([Signal("h", **met)])


class PaceContract:
    """Gaps, permits, crawl delays, circuit breaker, back-off, adaptive throttle."""

    async def test_a_host_is_handed_out_a_little_before_its_time(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"), host_delay_ms=GAP_MS)
        assert (await only(node)).start_ms == 0
        store.turn(GAP_MS - 40)
        lease = await only(node)
        assert lease.start_ms == 40 + SLACK_MS
        assert await node.peer("B").ids() == [], "the time is reserved"

    async def test_a_late_sender_gets_the_next_time(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"), host_delay_ms=GAP_MS)
        lease = await only(node)
        store.turn(300)
        permit = await node.frontier.permit(*lease.held, lease.mark)
        assert permit.code is PermitCode.GRANTED
        assert permit.start_ms == 0, "nobody has reserved the host since"
        store.turn(GAP_MS - 100)
        assert await node.ids() == [], "the gap counts from the permit on"
        store.turn(100)
        assert await node.ids() == ["b"]

    async def test_a_permit_never_comes_too_near_to_the_next_one(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"), host_delay_ms=400, host_concurrency=2)
        late = await only(node)
        store.turn(400)
        following = await only(node)
        permit = await node.frontier.permit(*late.held, late.mark)
        assert permit.start_ms == following.start_ms + 400 + SLACK_MS
        again = await node.frontier.permit(*late.held, permit.mark)
        assert again.start_ms == 0, "it is the last one now, and may move"

    async def test_one_more_request_under_a_lease_waits_its_turn(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"), host_delay_ms=400)
        lease = await only(node)
        permit = await node.frontier.permit(*lease.held, 0)
        assert (permit.code, permit.start_ms) == (PermitCode.GRANTED, 400 + SLACK_MS)

    async def test_a_slow_sender_asks_for_more_time(self, store: Store) -> None:
        node = await seeded(store, *pages("ab"), host_delay_ms=400)
        lease = await only(node)
        await node.frontier.permit(*lease.held, lease.mark, 80)
        store.turn(400 + 80 - 51)
        assert await node.ids() == []
        store.turn(1)
        assert (await only(node)).start_ms == 50

    async def test_a_permit_needs_the_lease(self, store: Store) -> None:
        node = await seeded(store, page("a"), host_delay_ms=GAP_MS)
        lease = await only(node)
        assert (await node.frontier.permit(lease.id, "X:1", 0)).code is PermitCode.LOST
        await node.finish(lease)
        assert (await node.frontier.permit(*lease.held, 0)).code is PermitCode.LOST

    async def test_no_permit_for_a_host_that_asked_for_a_pause(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        lease = await only(node)
        await node.frontier.hold_off([("h", 5_000)])
        assert (await node.frontier.permit(*lease.held, lease.mark)).code is PermitCode.LATER

    async def test_without_a_gap_a_permit_is_free(self, store: Store) -> None:
        node = await seeded(store, page("a"))
        lease = await only(node)
        assert lease.mark == 0
        assert await node.frontier.permit(*lease.held, 0) == (PermitCode.GRANTED, 0, 0)

    async def test_random_gaps_are_never_shorter(self, store: Store) -> None:
        names = [f"p{n}" for n in range(12)]
        node = await seeded(
            store, *(page(name) for name in names), host_delay_ms=400, randomize_delay=True
        )
        gaps, waited = list[int](), 0
        await only(node)
        while len(gaps) < 11:
            store.turn(1)
            waited += 1
            if leases := await node.take():
                gaps.append(waited + leases[0].start_ms)
                waited = -leases[0].start_ms
        assert all(400 <= gap <= 606 for gap in gaps), gaps
        assert len(set(gaps)) > 5

    async def test_the_strictest_run_decides_for_a_host(self, store: Store) -> None:
        strict = await seeded(store, page("a"), job="strict", host_delay_ms=GAP_MS)
        free = await seeded(store, *pages("xyz"), job="free")
        assert await free.ids() == ["x"]
        store.turn(500)
        assert await free.ids() == []
        store.turn(600)
        await strict.finish(await only(strict))
        await elapse(store, free, GAP_MS + 100)
        assert await free.ids() == ["y", "z"], "it has nothing left to say about this host"

    async def test_a_silent_run_has_no_say(self, store: Store) -> None:
        await seeded(store, page("a"), job="strict", host_delay_ms=600_000)
        free = await seeded(store, *pages("xy"), job="free")
        await elapse(store, free, 31_000)
        assert await free.ids() == ["x", "y"]

    async def test_runs_take_turns_at_a_host_with_a_gap(self, store: Store) -> None:
        names = [f"p{n}" for n in range(20)]
        runs = [
            await seeded(store, *map(page, names), job=job, host_delay_ms=200)
            for job in ("one", "two")
        ]
        taken = dict.fromkeys(runs, 0)
        for _ in range(200):
            for run in runs:
                leases = await run.take()
                taken[run] += len(leases)
                await run.finish(*leases)
            store.turn(10)
        assert sum(taken.values()) >= 9
        assert abs(taken[runs[0]] - taken[runs[1]]) <= 2

    async def test_robots_txt_may_ask_for_a_gap(self, store: Store) -> None:
        node = await seeded(store, *pages("abcd"))
        other = await seeded(store, *pages("xy"), job="other")
        await node.finish(*await node.take(1))
        await report(node, crawl_delay_ms=2_000)
        assert await other.ids() == ["x"]
        assert await node.ids() == []
        await elapse(store, node, 2_100)
        assert await node.ids() == ["b"]
        await report(node, crawl_delay_ms=0)
        await elapse(store, node, 2_100)
        assert await node.ids() == ["c", "d"]

    async def test_an_ill_host_is_left_alone_and_tried_again(self, store: Store) -> None:
        ill = {"circuit_threshold": 3, "circuit_cooldown_ms": 4_000, "refused_pause_ms": 0}
        node = await seeded(store, *pages("abcdef"), **ill)
        other = await seeded(store, *pages("xyz"), job="other", **ill)
        await report(node, good=1, bad=2, streak=2)
        await node.finish(*await node.take(1))
        await report(node, bad=1, streak=1)
        assert await node.ids() == []
        assert await other.ids() == [], "for all runs"
        await elapse(store, node, 4_000)
        assert await node.ids() == []
        await elapse(store, node, 1_000)
        trial = await node.take()
        assert len(trial) == 1, "one request tries"
        assert await other.ids() == []
        await node.finish(*trial)
        await report(node, bad=1, streak=1)
        assert await node.ids() == []
        await elapse(store, node, 7_900)
        assert await node.ids() == [], "twice as long"
        await elapse(store, node, 2_100)
        trial = await node.take()
        await node.finish(*trial)
        await report(node, good=1)
        assert len(await node.ids()) == 3

    async def test_answers_to_what_was_sent_before_change_no_open_circuit(
        self, store: Store
    ) -> None:
        node = await seeded(store, page("a"), circuit_threshold=2, circuit_cooldown_ms=4_000)
        await report(node, bad=2, streak=2)
        await report(node, bad=5, streak=5)
        await report(node, good=1)
        await elapse(store, node, 3_900)
        assert await node.ids() == []
        await elapse(store, node, 1_100)
        assert await node.ids() == ["a"]

    async def test_a_host_that_refuses_is_left_alone_for_longer_each_time(
        self, store: Store
    ) -> None:
        node = await seeded(
            store, *pages("abc"), refused_pause_ms=2_000, circuit_threshold=0, host_concurrency=1
        )
        for pause in (2_000, 4_000):
            (lease,) = await node.take()
            await node.finish(lease)
            await report(node, bad=1, streak=1, refused=1)
            await elapse(store, node, pause - 100)
            assert await node.ids() == []
            await elapse(store, node, pause // 2 + 200)

    async def test_the_throttle_slows_down_and_returns(self, store: Store) -> None:
        node = await seeded(store, page("a"), autothrottle=True, autothrottle_start_ms=100)

        async def gap() -> float:
            """The gap after one more fetch."""
            await node.frontier.add([page(f"p{node.seq}", filtered=False)])
            await elapse(store, node, 3_000)
            lease = await only(node)
            permit = await node.frontier.permit(*lease.held, 0)
            await node.finish(lease)
            return permit.start_ms

        async def second(good: int, bad: int = 0, latency_ms: int = 50) -> None:
            total = (good + bad) * latency_ms
            await report(node, good=good, bad=bad, streak=bad, latency_ms=total)
            await elapse(store, node, 1_000)

        at_first = await gap()
        for _ in range(6):
            await second(60)
        faster = await gap()
        assert faster < at_first
        for _ in range(3):
            await second(6, bad=6)
        slower = await gap()
        assert slower > 1.5 * faster
        for _ in range(20):
            await second(60)
        assert await gap() < slower

    async def test_nodes_have_hosts_of_their_own(self, store: Store) -> None:
        hosts = [f"h{n}" for n in range(40)]
        requests = [page(f"{host}p{n}", host) for host in hosts for n in range(4)]
        node = await seeded(store, *requests, host_delay_ms=GAP_MS)
        nodes = [node, node.peer("B")]
        for each in nodes:
            await each.frontier.renew(each.name, LEASE_MS, [])
        taken: list[set[str]] = []
        for wait in (GAP_MS - 30, *[GAP_MS + SLACK_MS] * 3):
            taken.append(set())
            for each in nodes:
                leases = await each.take()
                await each.finish(*leases)
                taken[-1] |= {f"{each.name} {lease.host}" for lease in leases}
            store.turn(wait)
        assert len(taken[2] & taken[3]) >= 35, "most come back to the node that had them"
        assert all(sum(pair.startswith(each.name) for pair in taken[3]) >= 8 for each in nodes)

    async def test_nobody_waits_long_for_the_node_whose_host_it_is(self, store: Store) -> None:
        requests = [page(f"h{n}p{m}", f"h{n}") for n in range(20) for m in range(2)]
        node = await seeded(store, *requests, host_delay_ms=GAP_MS)
        for name in ("A", "B"):
            await node.frontier.renew(name, LEASE_MS, [])
        store.turn(10)
        found: set[str] = set()
        for _ in range(10):
            leases = await node.take()
            found |= {lease.host for lease in leases}
            store.turn(20)
        assert len(found) == 20, "B does not ask"

    async def test_a_node_that_asks_late_catches_up(self, store: Store) -> None:
        names = [f"p{n:03}" for n in range(300)]
        node = await seeded(store, *map(page, names), host_delay_ms=100)
        nodes = [node, node.peer("B"), node.peer("C")]
        taken = dict.fromkeys("ABC", 0)
        for round in range(1200):
            for each in nodes:
                if round % 150 == 0:
                    await each.frontier.renew(each.name, LEASE_MS, [])
                leases = await each.take(5)
                taken[each.name] += len(leases)
                await each.finish(*leases)
            store.turn(20)
        assert min(taken.values()) >= max(taken.values()) / 2, taken

    async def test_the_slot_of_one_request_is_not_anothers(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"), host_concurrency=1)
        lease = await only(node)
        await node.frontier.fetched([Held(lease.id, "X:1")])
        assert await node.ids() == []
