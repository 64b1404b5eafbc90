"""What an operator says of hosts acts on real claims, and `why it waits` is told as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.servers import Server, redis_binary

from orbweb.errors import ConfigError, RunLost
from orbweb.frontier.base import SAID_MS, HostPace, Nack, NewRequest, RunConfig, Signal, Tuning
from orbweb.frontier.hosts import Live
from orbweb.frontier.hosttable import HostRow, Sort
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.operator import Author
from orbweb.frontier.steering import HostAdmin
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.testing.contract_store import Node, elapse, page, pages, seeded

START_MS = 1_700_000_000_000
ANN = Author("ann", "429s")
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


class Fleet:
    """A server whose clock a test turns, with an operator. See `orbweb.testing.contract.Store`."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self.wall = START_MS
        self.made: list[ValkeyFrontier] = []
        self.admin = HostAdmin(lambda shard: client, "t", now=self.wall)

    def frontier(self, job: str = "job", run: str = "") -> ValkeyFrontier:
        frontier = ValkeyFrontier(self.client, prefix="t", job=job, run=run, now=self.wall)
        self.made.append(frontier)
        return frontier

    def turn(self, ms: int) -> None:
        self.wall += ms
        self.admin.turn(self.wall)
        for frontier in self.made:
            frontier.caller.time = self.wall

    async def why(self, host: str = "h") -> str:
        return str((await self.admin.look(host)).wait.reason)

    async def fetches(self, node: Node, ms: int) -> int:
        """How many requests a busy node gets within the time."""
        got = 0
        for _ in range(0, ms, 100):
            leases = await node.take()
            got += len(leases)
            await node.finish(*leases)
            self.turn(100)
        return got


@pytest.fixture(
    scope="module",
    params=[
        "valkey",
        pytest.param(
            "redis", marks=pytest.mark.skipif(redis_binary() is None, reason="no redis-server")
        ),
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(request.param)
    yield server
    server.stop()


@pytest.fixture
async def fleet(server: Server) -> AsyncIterator[Fleet]:
    client = Redis(unix_socket_path=str(server.socket))
    await client.flushall()
    yield Fleet(client)
    await client.aclose()


async def busy(fleet: Fleet, **config: Any) -> Node:
    """A node of a run with many requests for one host."""
    return await seeded(fleet, *(page(f"p{n}") for n in range(400)), **config)


async def test_a_limit_slows_down_every_node_and_job_until_it_ends(fleet: Fleet) -> None:
    one = await busy(fleet)
    two = await busy(fleet, job="two")
    assert len(await one.take(3)) == 3
    change = await fleet.admin.limit("h", 1000, ANN, for_ms=10_000)
    assert (change.before, change.clamped) == (None, False)
    got = 0
    for _ in range(5):
        got += await fleet.fetches(one, 500) + await fleet.fetches(two, 500)
    assert got in (5, 6)
    assert await fleet.why() in ("limit", "ready")
    await elapse(fleet, one, 5_000)
    assert (await fleet.admin.look("h")).host.limit is None
    assert len(await one.take(5)) > 1, "the limit has ended by itself"


async def test_a_live_value_of_the_host_is_what_people_are_told(fleet: Fleet) -> None:
    node = await busy(fleet, host_delay_ms=9000)
    alone = HostPace(500, fleet.wall + 5000, 1, fleet.wall + 5000)
    await node.frontier.tune(Tuning(1, RunConfig(host_delay_ms=9000), {"h": alone}))
    assert len(await node.take()) == 1
    row = await fleet.admin.look("h")
    assert (row.gap.ms, str(row.wait.reason)) == (500, "delay")
    assert "of the host (orbweb config)" in row.wait.text
    fleet.turn(600)
    assert await fleet.why() == "slots"
    fleet.turn(5000)
    assert (await fleet.admin.look("h")).gap.ms == 9000


async def test_what_a_source_says_of_a_host_is_named_and_ends_with_the_nodes_that_say_it(
    fleet: Fleet,
) -> None:
    node = await busy(fleet, host_delay_ms=1000)
    says = Tuning(0, RunConfig(host_delay_ms=1000), node="n", others={"h": HostPace(9000, 0, 2, 0)})
    await node.frontier.tune(says)
    assert len(await node.take()) == 1
    row = await fleet.admin.look("h")
    assert "of the host (CONFIG_SOURCE)" in row.wait.text
    assert row.host.live == Live(9000, "CONFIG_SOURCE", 2, "CONFIG_SOURCE")
    await elapse(fleet, node, SAID_MS + 1000)
    row = await fleet.admin.look("h")
    assert (row.gap.ms, row.host.live) == (1000, Live())


async def test_a_host_that_was_never_fetched_is_forgotten_unless_it_is_steered(
    fleet: Fleet,
) -> None:
    node = await busy(fleet)
    await node.frontier.hold_off([("off", 1000), ("limited", 1000)])
    await node.frontier.report([Signal("slow", crawl_delay_ms=500), Signal("ill", bad=1, streak=1)])
    week = 7 * 86_400
    for host in ("off", "limited", "slow", "ill"):
        assert 0 < await fleet.client.ttl(ShardKeys("t").host(host)) <= week
    await fleet.admin.limit("limited", 1000, ANN)
    await node.frontier.hold_off([("limited", 5000)])
    await node.frontier.report([Signal("limited", good=1)])
    assert await fleet.client.ttl(ShardKeys("t").host("limited")) == -1


async def test_a_limit_is_taken_back_as_it_was(fleet: Fleet) -> None:
    await fleet.admin.limit("h", 500, ANN)
    change = await fleet.admin.limit("h", 2000, Author("bob"))
    assert change.before is not None
    assert (change.before.gap_ms, change.before.by, change.before.why) == (500, "ann", "429s")
    await fleet.admin.limit("h", None, Author("bob"))
    assert (await fleet.admin.look("h")).host.limit is None
    again = await fleet.admin.limit("h", None, Author("bob"))
    assert (again.before, again.after) == (None, None)
    assert [line.after for line in await fleet.admin.trail()] == [
        "no limit",
        "limit 30/m",
        "limit 2/s",
    ]


async def test_a_looser_or_stricter_limit_acts_on_the_gap_that_runs(fleet: Fleet) -> None:
    node = await busy(fleet, host_delay_ms=500)
    await fleet.admin.limit("h", HOUR, ANN)
    await node.take()
    await elapse(fleet, node, 2_000)
    assert await node.ids() == []
    await fleet.admin.limit("h", None, ANN)
    assert len(await node.ids()) == 1, "an hour is not waited for"
    await fleet.admin.limit("h", 10_000, ANN)
    await elapse(fleet, node, 9_000)
    assert await node.ids() == [], "the limit counts from the last fetch"
    await elapse(fleet, node, 1_000)
    assert len(await node.ids()) == 1


async def test_no_word_of_an_operator_shortens_what_the_host_asked_for(fleet: Fleet) -> None:
    node = await busy(fleet, host_delay_ms=500)
    await node.take()
    await node.frontier.hold_off([("h", 20_000)])
    await fleet.admin.limit("h", HOUR, ANN)
    await fleet.admin.limit("h", None, ANN)
    await fleet.admin.pause("h", ANN)
    await fleet.admin.resume("h", ANN)
    await elapse(fleet, node, 19_000)
    assert await node.ids() == []


async def test_a_paused_host_is_left_alone_by_all_jobs_and_resumed_at_once(fleet: Fleet) -> None:
    one, two = await busy(fleet), await busy(fleet, job="two")
    await fleet.admin.pause("h", ANN)
    assert await one.ids() == await two.ids() == []
    await elapse(fleet, one, 20_000)
    assert await one.ids() == await two.ids() == []
    assert await fleet.why() == "host_paused"
    await fleet.admin.resume("h", ANN)
    assert await one.ids(5) != []
    assert await two.ids(5) != []


async def test_a_pause_ends_when_its_time_has_passed(fleet: Fleet) -> None:
    node = await busy(fleet)
    await fleet.admin.pause("h", ANN, for_ms=MINUTE)
    wait = (await fleet.admin.look("h")).wait
    assert wait.until_ms == fleet.wall + MINUTE
    assert "by ann: 429s" in wait.text
    assert await node.ids() == []
    await elapse(fleet, node, MINUTE + 1000)
    assert await node.ids(2) != []


async def test_a_paused_run_gets_nothing_and_others_go_on(fleet: Fleet) -> None:
    one, two = await busy(fleet), await busy(fleet, job="two")
    run = ("job", "", fleet.made[0].run.base.rpartition(":")[2])
    await fleet.admin.pause_run(*run, ANN, for_ms=MINUTE)
    assert await one.ids() == []
    assert await two.ids(3) != []
    assert (await one.frontier.status()).paused
    rows = (await fleet.admin.hosts(job="job"))[1]
    assert rows[0].wait.reason == "run_paused"
    assert rows[0].wait.until_ms == fleet.wall + MINUTE
    change = await fleet.admin.resume_run(*run, ANN)
    assert change.before is not None
    assert change.before.by == "ann"
    assert await one.ids(3) != []


async def test_a_pause_of_a_run_ends_by_itself(fleet: Fleet) -> None:
    node = await busy(fleet)
    run = ("job", "", fleet.made[0].run.base.rpartition(":")[2])
    await fleet.admin.pause_run(*run, ANN, for_ms=MINUTE)
    assert await node.ids() == []
    await elapse(fleet, node, MINUTE)
    assert not (await node.frontier.status()).paused
    assert await node.ids(3) != []
    change = await fleet.admin.resume_run(*run, ANN)
    assert (change.before, change.after) == (None, None)
    with pytest.raises(RunLost):
        await fleet.admin.pause_run("job", "", "unknown", ANN)


async def test_an_approved_ceiling_holds_against_settings_and_counts_what_it_slowed(
    fleet: Fleet,
) -> None:
    node = await busy(fleet, host_delay_ms=100)
    await fleet.admin.rates.request("h", 500, ANN, "ops@h")
    assert (await fleet.admin.look("h")).host.ceiling_ms is None, "asking changes nothing"
    await fleet.admin.rates.approve("h", None, Author("bob"), DAY)
    assert await fleet.fetches(node, 5_000) in (10, 11)
    row = await fleet.admin.look("h")
    assert row.host.clamped in (10, 11)
    assert row.gap.reason == "ceiling"
    await node.take()
    assert await fleet.why() == "ceiling"


async def test_an_expired_approval_counts_as_none(fleet: Fleet) -> None:
    node = await busy(fleet, require_approval=True, unapproved_delay_ms=4000)
    await fleet.admin.rates.approve("h", 500, ANN, 5_000)
    assert await fleet.fetches(node, 3_000) in (6, 7)
    await elapse(fleet, node, 4_000)
    row = await fleet.admin.look("h")
    assert (row.host.ceiling_ms, row.gap.reason, row.gap.ms) == (None, "unapproved", 4000)
    (rate,) = await fleet.admin.rates.all()
    assert rate.state(row.host.at_ms) == "expired"
    assert await fleet.fetches(node, 8_000) in (2, 3)


async def test_a_limit_above_the_approved_ceiling_is_clamped(fleet: Fleet) -> None:
    await fleet.admin.rates.approve("h", 500, ANN, DAY)
    change = await fleet.admin.limit("h", 100, ANN)
    assert change.clamped
    assert change.after is not None
    assert change.after.gap_ms == 500
    assert not (await fleet.admin.limit("h", 1000, ANN)).clamped


async def test_the_register_goes_from_request_to_revocation(fleet: Fleet) -> None:
    rates = fleet.admin.rates
    with pytest.raises(ConfigError, match="nobody has asked"):
        await rates.approve("h", None, ANN, DAY)
    with pytest.raises(ConfigError, match="no rate"):
        await rates.revoke("h", ANN)
    first = await rates.request("h", 500, ANN, "ops@h")
    assert (first.before, first.after.state(fleet.wall)) == (None, "requested")
    second = await rates.approve("h", None, Author("bob"), DAY)
    assert (second.after.ceiling_ms, second.after.asked_ms) == (500, None)
    assert second.after.expires_ms == fleet.wall + DAY
    with pytest.raises(ConfigError, match="approved for h already"):
        await rates.request("h", 500, ANN, "")
    third = await rates.request("h", 250, ANN, "")
    assert third.after.state(fleet.wall) == "approved", "the old approval holds meanwhile"
    assert third.after.contact == "ops@h"
    assert (await fleet.admin.look("h")).host.ceiling_ms == 500
    last = await rates.revoke("h", Author("bob", "a letter came"))
    assert last.after.state(fleet.wall) == "revoked"
    assert (await fleet.admin.look("h")).host.ceiling_ms is None
    trail = await fleet.admin.trail("h")
    assert [(line.verb, line.by, line.before, line.after) for line in reversed(trail)] == [
        ("request", "ann", "", "requested 2/s"),
        ("approve", "bob", "requested 2/s", "approved 2/s"),
        ("request", "ann", "approved 2/s", "requested 4/s"),
        ("revoke", "bob", "approved 2/s", "revoked"),
    ]
    assert await fleet.admin.trail("other") == []


async def test_two_who_decide_at_once_do_not_overwrite_each_other(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = HostAdmin(lambda shard: fleet.client, "t")
    await fleet.admin.rates.request("h", 500, ANN, "c")
    steer = fleet.admin._store.steer

    async def late(*args: Any) -> None:
        await other.rates.request("h", 1, Author("eve"), "c")
        await steer(*args)

    monkeypatch.setattr(fleet.admin._store, "steer", late)
    with pytest.raises(ConfigError, match="changed by someone else"):
        await fleet.admin.rates.approve("h", None, Author("bob"), DAY)
    entry = await other.rates.find("h")
    assert entry is not None
    assert (entry.asked_ms, entry.ceiling_ms) == (1, None)
    assert [line.verb for line in await other.trail()] == ["request", "request"]


async def test_the_trail_keeps_the_last_ten_thousand_acts(fleet: Fleet) -> None:
    await fleet.client.rpush("{t:0}:audit", *(b"{}" for _ in range(10_000)))
    await fleet.admin.pause("h", ANN)
    assert await fleet.client.llen("{t:0}:audit") == 10_000


class TestWhyAHostWaits:
    """Each reason is met in a real store."""

    async def test_ready(self, fleet: Fleet) -> None:
        await busy(fleet)
        assert await fleet.why() == "ready"

    async def test_nothing_is_queued(self, fleet: Fleet) -> None:
        assert await fleet.why("nobody.example") == "no_queue"
        assert not await fleet.admin.knows("nobody.example")

    async def test_the_delay_of_the_settings(self, fleet: Fleet) -> None:
        node = await busy(fleet, host_delay_ms=3_000)
        await node.take()
        wait = (await fleet.admin.look("h")).wait
        assert wait.reason == "delay"
        assert 3_000 <= wait.until_ms - fleet.wall <= 3_010
        assert wait.text == "20/m: DOWNLOAD_DELAY"

    async def test_a_random_delay_is_a_delay_still(self, fleet: Fleet) -> None:
        node = await busy(fleet, host_delay_ms=3_000, randomize_delay=True)
        await node.take()
        assert await fleet.why() == "delay"

    async def test_a_limit(self, fleet: Fleet) -> None:
        node = await busy(fleet, host_delay_ms=500)
        await fleet.admin.limit("h", 5_000, ANN)
        await node.take()
        wait = (await fleet.admin.look("h")).wait
        assert (wait.reason, wait.text) == ("limit", "12/m: limit by ann")

    async def test_the_crawl_delay(self, fleet: Fleet) -> None:
        node = await busy(fleet)
        await node.frontier.report([Signal("h", crawl_delay_ms=7_000)])
        await node.take()
        assert await fleet.why() == "crawl_delay"

    async def test_no_approval(self, fleet: Fleet) -> None:
        node = await busy(fleet, require_approval=True, unapproved_delay_ms=2_000)
        await node.take()
        assert await fleet.why() == "unapproved"

    async def test_the_adaptive_throttle(self, fleet: Fleet) -> None:
        node = await busy(fleet, autothrottle=True, autothrottle_start_ms=1_500)
        await node.take()
        row = await fleet.admin.look("h")
        assert (row.wait.reason, row.gap.ms) == ("throttle", 1_500)

    async def test_the_host_asked_for_a_pause(self, fleet: Fleet) -> None:
        node = await busy(fleet, host_delay_ms=1_000)
        await node.frontier.hold_off([("h", 30_000)])
        wait = (await fleet.admin.look("h")).wait
        assert wait.reason == "held_off"
        assert 30_000 <= wait.until_ms - fleet.wall <= 45_000

    async def test_a_short_pause_is_told_from_a_long_delay(self, fleet: Fleet) -> None:
        node = await busy(fleet, host_delay_ms=60_000)
        await node.frontier.hold_off([("h", 30_000)])
        assert await fleet.why() == "held_off"

    async def test_the_host_refused(self, fleet: Fleet) -> None:
        node = await busy(fleet, refused_pause_ms=20_000)
        await node.frontier.report([Signal("h", bad=1, streak=1, refused=1)])
        assert await fleet.why() == "held_off"

    async def test_the_circuit_is_open_and_then_tried(self, fleet: Fleet) -> None:
        node = await busy(fleet, circuit_threshold=3, circuit_cooldown_ms=10_000)
        await node.frontier.report([Signal("h", bad=3, streak=3)])
        row = await fleet.admin.look("h")
        assert row.wait.reason == "circuit_open"
        assert row.wait.text == "circuit open after 3 bad answers in a row"
        assert 10_000 <= row.wait.until_ms - fleet.wall <= 12_500
        assert await node.ids() == []
        await elapse(fleet, node, 13_000)
        assert len(await node.take()) == 1, "one request tries"
        assert await fleet.why() == "trial"
        await node.frontier.report([Signal("h", bad=1, streak=1)])
        assert (await fleet.admin.look("h")).wait.text == "circuit open for the 2nd time"

    async def test_all_slots_are_in_use(self, fleet: Fleet) -> None:
        node = await busy(fleet, host_concurrency=2)
        await node.take()
        wait = (await fleet.admin.look("h")).wait
        assert (wait.reason, wait.text) == ("slots", "2 of 2 slots in use")

    async def test_no_node_is_at_work(self, fleet: Fleet) -> None:
        await busy(fleet)
        fleet.turn(40_000)
        assert await fleet.why() == "no_node"

    async def test_the_last_requests_are_in_work_or_wait_for_a_retry(self, fleet: Fleet) -> None:
        node = await seeded(fleet, *pages("ab"))
        one, other = await node.take()
        await node.frontier.nack([Nack(*one.held, backoff_ms=MINUTE)])
        _, (row,) = await fleet.admin.hosts()
        assert (row.wait.reason, row.delayed, row.in_work) == ("retry", 1, 1)
        await node.frontier.nack([Nack(*one.held, backoff_ms=MINUTE)])
        await node.finish(other)
        await elapse(fleet, node, MINUTE)
        await node.take()
        _, (row,) = await fleet.admin.hosts()
        assert (row.wait.reason, row.in_work) == ("in_work", 1)


class TestTable:
    """Which hosts are shown, and in which order."""

    async def test_the_longest_queues_come_first_over_all_runs(self, fleet: Fleet) -> None:
        await seeded(fleet, *(page(f"a{n}", "a") for n in range(3)), page("b", "b"))
        await seeded(fleet, *(page(f"b{n}", "b") for n in range(3)), page("c", "c"), job="two")
        total, rows = await fleet.admin.hosts(most=2)
        assert total == 3
        assert [(row.host.name, row.waiting) for row in rows] == [("b", 4), ("a", 3)]
        total, rows = await fleet.admin.hosts(job="two")
        assert [(row.host.name, row.waiting) for row in rows] == [("b", 3), ("c", 1)]

    async def test_rate_and_errors_order_too(self, fleet: Fleet) -> None:
        def some(**many: int) -> list[NewRequest]:
            return [page(f"{host}{n}-{m}", host) for host, m in many.items() for n in range(m)]

        node = await seeded(fleet, *some(a=2, b=9, c=4))
        await node.finish(*await node.take())
        await node.frontier.add(some(a=5, b=1, c=3))
        await node.frontier.report([Signal("c", bad=2, streak=2), Signal("a", bad=1, good=2)])
        assert await names(fleet, Sort.BACKLOG) == ["a", "c", "b"]
        assert await names(fleet, Sort.RATE) == ["b", "c", "a"]
        assert await names(fleet, Sort.ERRORS) == ["c", "a", "b"]

    async def test_steered_hosts_are_shown_without_a_queue(self, fleet: Fleet) -> None:
        await fleet.admin.pause("quiet.example", ANN)
        total, (row,) = await fleet.admin.hosts()
        assert (total, row.host.name, row.wait.reason) == (1, "quiet.example", "host_paused")
        await fleet.admin.resume("quiet.example", ANN)
        assert await fleet.admin.hosts() == (0, [])

    async def test_a_finished_run_does_not_count(self, fleet: Fleet) -> None:
        node = await seeded(fleet, page("a", "a"))
        await node.finish(*await node.take())
        assert await fleet.admin.hosts() == (0, [])

    async def test_many_hosts_are_walked_in_pages(self, fleet: Fleet) -> None:
        node = await seeded(fleet, page("first", "host0"))
        hosts = [page(f"{n}-{m}", f"host{n}") for n in range(3000) for m in range(1 + n % 7 // 6)]
        await node.frontier.add(hosts)
        total, rows = await fleet.admin.hosts(most=10)
        assert (total, len(rows)) == (3000, 10)
        assert {row.waiting for row in rows} == {2}
        total, everything = await fleet.admin.hosts(most=0)
        assert len(everything) == total == 3000


async def names(fleet: Fleet, sort: Sort = Sort.BACKLOG) -> list[str]:
    rows: list[HostRow] = (await fleet.admin.hosts(sort))[1]
    return [row.host.name for row in rows]
