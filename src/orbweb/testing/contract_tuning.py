"""The contract of a run whose rules change while nodes work on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orbweb.frontier.base import SAID_MS, HostPace, Lease, Nack, NackResult, RunConfig, Tuning
from orbweb.testing.contract_store import Node, Store, elapse, page, pages, seeded

GAP_MS = 10_000
SLACK_MS = 5
MANY = 600
"""Hosts: more than the store looks at in one call."""


async def tune(
    node: Node, version: int, hosts: dict[str, HostPace] | None = None, **config: Any
) -> bool:
    wanted = replace(RunConfig(host_concurrency=0), **config)
    return await node.frontier.tune(Tuning(version, wanted, hosts or {}, node.name))


async def say(node: Node, version: int = 0, **others: HostPace) -> None:
    """What other sources of a node say of hosts."""
    config = RunConfig(host_concurrency=0)
    await node.frontier.tune(Tuning(version, config, node=node.name, others=others))


async def take_all(node: Node) -> list[Lease]:
    """All that is handed out now."""
    held: list[Lease] = []
    while more := await node.take(2 * MANY):
        held += more
    return held


class TuningContract:
    """`Tunable`: it acts at once, on hosts that wait too, and never goes back to older values."""

    async def test_a_shorter_delay_counts_from_the_last_fetch(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"), host_delay_ms=GAP_MS)
        (lease,) = await node.take()
        await node.finish(lease)
        store.turn(900)
        assert await tune(node, 1, host_delay_ms=1000)
        assert (await node.claim()).leases == ()
        store.turn(100)
        assert await node.ids() == ["b"]

    async def test_a_longer_delay_counts_from_the_last_fetch_too(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"), host_delay_ms=900)
        await node.finish(*await node.take())
        await tune(node, 1, host_delay_ms=2000)
        store.turn(950)
        assert await node.ids() == []
        store.turn(950)
        assert await node.ids() == []
        store.turn(110)
        assert await node.ids() == ["b"]

    async def test_a_host_without_a_queue_now_has_its_shorter_delay_too(self, store: Store) -> None:
        node = await seeded(store, page("a"), host_delay_ms=GAP_MS, keep_alive=True)
        await node.finish(*await node.take())
        await tune(node, 1, host_delay_ms=100)
        store.turn(200)
        await node.frontier.add([page("b")])
        assert await node.ids() == ["b"]

    async def test_a_longer_delay_holds_for_each_of_many_hosts(self, store: Store) -> None:
        hosts = [f"h{n}" for n in range(MANY)]
        twice = [page(f"{host}/{n}", host) for host in hosts for n in "ab"]
        node = await seeded(store, *twice, host_delay_ms=900)
        await node.finish(*await take_all(node))
        await tune(node, 1, host_delay_ms=1800)
        store.turn(950)
        assert await take_all(node) == []
        store.turn(900)
        assert len(await take_all(node)) == MANY

    async def test_a_shorter_delay_holds_at_once_behind_many_hosts_without_a_queue(
        self, store: Store
    ) -> None:
        once = [page(f"g{n}/a", f"g{n}") for n in range(MANY)]
        twice = [page(f"h{n}/{m}", f"h{n}") for n in range(3) for m in "ab"]
        node = await seeded(store, *once, *twice, host_delay_ms=GAP_MS)
        await node.finish(*await take_all(node))
        await tune(node, 1, host_delay_ms=100)
        store.turn(110)
        assert len(await take_all(node)) == 3

    async def test_hosts_that_another_run_alone_fetches_keep_its_rules(self, store: Store) -> None:
        other = await seeded(store, *pages("ab"), job="other", host_delay_ms=900)
        await other.finish(*await other.take())
        mine = await seeded(store, page("x", host="mine"))
        await tune(mine, 1, host_delay_ms=GAP_MS)
        store.turn(910)
        assert await other.ids() == ["b"]

    async def test_more_fetches_at_once_are_handed_out_at_once(self, store: Store) -> None:
        node = await seeded(store, *pages("abcd"), host_concurrency=1)
        assert await node.ids() == ["a"]
        await tune(node, 1, host_concurrency=3)
        assert await node.ids() == ["b", "c"]

    async def test_fewer_fetches_at_once_let_the_running_ones_end(self, store: Store) -> None:
        node = await seeded(store, *pages("abcd"), host_concurrency=3)
        held = await node.take()
        assert len(held) == 3
        await tune(node, 1, host_concurrency=1)
        await node.finish(held[0])
        assert await node.ids() == []
        await node.finish(*held[1:])
        assert await node.ids() == ["d"]

    async def test_an_older_version_changes_nothing(self, store: Store) -> None:
        node = await seeded(store, *pages("abcd"), host_concurrency=1)
        assert await tune(node, 5, host_concurrency=2)
        assert not await tune(node, 4, host_concurrency=4)
        assert await node.ids() == ["a", "b"]
        assert await tune(node, 5, host_concurrency=3), "the same may be told again"
        assert await node.ids() == ["c"]

    async def test_fewer_retries_end_what_waits_sooner(self, store: Store) -> None:
        node = await seeded(store, page("a"), max_retries=3)
        (lease,) = await node.take()
        await tune(node, 1, max_retries=0)
        assert await node.frontier.nack([Nack(*lease.held)]) == [NackResult.DEAD]

    async def test_a_host_has_values_of_its_own(self, store: Store) -> None:
        node = await seeded(
            store, *pages("ab"), *pages("cd", host="slow"), host_delay_ms=100, host_concurrency=2
        )
        await tune(
            node, 1, {"slow": HostPace(delay_ms=5000)}, host_delay_ms=100, host_concurrency=2
        )
        assert sorted(await node.ids()) == ["a", "c"]
        store.turn(200)
        assert await node.ids() == ["b"]
        store.turn(999)
        assert await node.ids() == []
        await tune(node, 2, {}, host_delay_ms=100)
        assert await node.ids() == ["d"], "nothing is said of the host any more"

    async def test_what_a_host_has_of_its_own_may_be_faster(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"), host_delay_ms=GAP_MS)
        await node.take()
        await tune(node, 1, {"h": HostPace(delay_ms=0)}, host_delay_ms=GAP_MS)
        store.turn(10)
        assert await node.ids() == ["b", "c"]

    async def test_what_a_host_has_of_its_own_ends_by_the_stores_clock(self, store: Store) -> None:
        node = await seeded(store, *pages("abcd"))
        opened_at = (await node.frontier.status()).started_at_ms
        pace = HostPace(concurrency=1, concurrency_until_ms=opened_at + 5000)
        await tune(node, 1, {"h": pace})
        (first,) = await node.take()
        for _ in range(6):
            store.turn(1000)
            await node.frontier.renew("onlooker", 60_000, [])
        await node.finish(first)
        assert await node.ids() == ["b", "c", "d"]

    async def test_a_node_that_knows_nothing_of_a_host_takes_no_word_away(
        self, store: Store
    ) -> None:
        node = await seeded(store, *pages("abc"))
        other = node.peer("other")
        await say(node, h=HostPace(delay_ms=5000, concurrency=1))
        await say(other)
        assert await node.ids() == ["a"]
        store.turn(4900)
        await say(other, 1)
        assert await other.ids() == []
        await say(node, 1)
        store.turn(10)
        assert await node.ids() == ["b", "c"], "nobody says so any more"

    async def test_of_what_nodes_say_of_a_host_the_strictest_holds(self, store: Store) -> None:
        node = await seeded(store, *pages("abcd"))
        other = node.peer("other")
        await say(node, h=HostPace(delay_ms=500, concurrency=0))
        await say(other, h=HostPace(delay_ms=5000))
        assert await node.ids() == ["a"]
        store.turn(600)
        assert await node.ids() == []
        await say(other, h=HostPace(delay_ms=100))
        store.turn(10)
        assert await node.ids() == ["b"]

    async def test_what_the_stores_values_say_counts_in_their_latest_version_only(
        self, store: Store
    ) -> None:
        node = await seeded(store, *pages("ab"))
        other = node.peer("other")
        await tune(other, 1, {"h": HostPace(concurrency=1)})
        await tune(node, 2, {"h": HostPace(concurrency=2)})
        assert await node.ids() == ["a", "b"]

    async def test_the_word_of_a_node_that_is_gone_ends(self, store: Store) -> None:
        node = await seeded(store, *pages("abc"))
        other = node.peer("other")
        await say(other, h=HostPace(concurrency=1))
        (first,) = await node.take()
        await node.finish(first)
        await elapse(store, node, SAID_MS + 1000)
        await say(node)
        assert await node.ids() == ["b", "c"]

    async def test_the_words_of_nodes_that_are_gone_end_when_nobody_else_speaks_of_hosts(
        self, store: Store
    ) -> None:
        node = await seeded(store, *pages("abcd"))
        other = node.peer("other")
        await say(other, h=HostPace(concurrency=1))
        await node.finish(*await node.take())
        await elapse(store, node, SAID_MS - 1000)
        held = await node.take()
        assert [lease.id for lease in held] == ["b"], "it may be said again at any moment"
        await node.finish(*held)
        await elapse(store, node, 2000)
        assert await node.ids() == ["c", "d"]
