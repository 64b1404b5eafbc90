"""The contract of tasks: how they are taken, what belongs to them, and when each has ended."""

from __future__ import annotations

from typing import Any

from orbweb.frontier.base import TASKS_HOST, Lease, Nack, NewRequest, RunState, SeedCode
from orbweb.frontier.tasks import NewTask, task_request, unpack_end
from orbweb.testing.contract_store import LEASE_MS, Node, Store, done, elapse, opened, page

KEY = "tasks"
TOLD: dict[str, Any] = {"polls": True, "tells_done": True, "tells_failed": True}
FAR_HOSTS = "abcdefgh"
"""Hosts that lie in several shards, where there are several."""


def of(task: str, name: str, host: str = "h") -> NewRequest:
    """A request that belongs to a task."""
    return page(f"{task}.{name}", host)


def everywhere(task: str, name: str = "x") -> list[NewRequest]:
    """One request of the task on each of many hosts."""
    return [of(task, f"{name}{host}", host) for host in FAR_HOSTS]


def ended(lease: Lease) -> tuple[str, Any, str]:
    uid, _, what = lease.id.partition("@")
    assert what == "end"
    return tuple(unpack_end(uid, lease.payload))


async def working(store: Store, *values: Any, **config: Any) -> Node:
    """A node of a run that has taken these tasks, t0 and so on, and whose source goes on."""
    node, _ = await opened(store, **{**TOLD, **config})
    tasks = [NewTask(f"t{number}", value) for number, value in enumerate(values)]
    await node.push(*(task_request(task) for task in tasks), final=False)
    return node


async def take_all(node: Node) -> list[Lease]:
    """What there is, also what comes by way of an outbox."""
    return [*await node.take(), *await node.take()]


async def finish_all(node: Node) -> list[Lease]:
    """Finish whatever there is until nothing comes any more; returns it."""
    found: list[Lease] = []
    while leases := await take_all(node):
        found += leases
        await node.finish(*leases)
    return found


async def kill(node: Node, lease: Lease, reason: str = "timeout") -> None:
    await node.frontier.nack([Nack(*lease.held, fatal=True, reason=reason, error="why")])


class TaskContract:
    """Tasks, their requests and their ends."""

    async def test_tasks_wait_in_a_list_before_any_run_and_are_taken_once(
        self, store: Store
    ) -> None:
        waiting = store.task_list(KEY)
        tasks = [NewTask(f"t{number}", {"id": number}) for number in range(3)]
        assert await waiting.push(tasks) == 3
        assert await waiting.first(2) == [{"id": 0}, {"id": 1}]
        node, _ = await opened(store, **TOLD)
        seeding = await node.frontier.seed_claim("A", 1, LEASE_MS)
        take = node.frontier.take_tasks
        assert (await take(seeding.token, 1, False, 2, KEY)).added == 2
        assert (await take(seeding.token, 1, False, 2, KEY)).code is SeedCode.DUPLICATE
        assert (await take(seeding.token, 3, False, 2, KEY)).code is SeedCode.GAP
        assert (await take("other:1", 2, False, 2, KEY)).code is SeedCode.STALE
        assert (await take(seeding.token, 2, False, 2, KEY)).added == 1
        assert await waiting.count() == 0
        assert await node.ids() == ["t0.task", "t1.task", "t2.task"]

    async def test_a_source_is_exhausted_only_in_a_step_that_finds_the_list_empty(
        self, store: Store
    ) -> None:
        node, _ = await opened(store, **TOLD)
        seeding = await node.frontier.seed_claim("A", 1, LEASE_MS)
        await store.task_list(KEY).push([NewTask("t0", 0)])
        assert (await node.frontier.take_tasks(seeding.token, 1, True, 9, KEY)).added == 1
        assert (await node.frontier.status()).seeding
        assert (await node.frontier.take_tasks(seeding.token, 2, True, 9, KEY)).added == 0
        assert not (await node.frontier.status()).seeding

    async def test_each_start_asks_the_source_anew(self, store: Store) -> None:
        node, _ = await opened(store, **TOLD)
        seeding = await node.frontier.seed_claim("A", 1, LEASE_MS)
        await node.frontier.take_tasks(seeding.token, 1, True, 9, KEY)
        assert (await node.frontier.status()).state is RunState.DONE
        _, again = await opened(store, **TOLD)
        assert (again.status.state, again.status.seeding) == (RunState.RUNNING, True)

    async def test_a_task_that_yields_nothing_is_done(self, store: Store) -> None:
        node = await working(store, {"id": 7})
        (task,) = await node.take()
        assert (task.host, task.payload) == (TASKS_HOST, b'{"id":7}')
        await node.finish(task)
        (end,) = await take_all(node)
        assert ended(end) == ("t0", {"id": 7}, "")
        status = await node.frontier.status()
        assert (status.tasks, status.reasons["task_done"]) == (0, 1)

    async def test_a_task_ends_with_the_last_of_all_that_descends_from_it(
        self, store: Store
    ) -> None:
        node = await working(store, "one", "two")
        one, two = await node.take()
        await node.frontier.ack([done(one, *everywhere("t0")), done(two)])
        leases = await take_all(node)
        (end,) = [lease for lease in leases if lease.host == TASKS_HOST]
        assert ended(end) == ("t1", "two", "")
        first, *others = [lease for lease in leases if lease.host != TASKS_HOST]
        await node.frontier.ack([done(first, *everywhere("t0", "y"))])
        await node.finish(end, *others)
        assert (await node.frontier.status()).tasks == 1
        *found, end = await finish_all(node)
        assert len(found) == len(FAR_HOSTS)
        assert ended(end) == ("t0", "one", "")
        assert (await node.frontier.status()).tasks == 0

    async def test_tasks_whose_names_begin_alike_are_not_mixed_up(self, store: Store) -> None:
        node, _ = await opened(store, **TOLD)
        await node.push(*(task_request(NewTask(name, name)) for name in ("t1", "t11")))
        one, eleven = await node.take()
        await node.frontier.ack([done(one), done(eleven, of("t11", "x"))])
        ends = [lease for lease in await take_all(node) if lease.host == TASKS_HOST]
        assert [ended(end)[0] for end in ends] == ["t1"]

    async def test_the_run_does_not_end_before_its_tasks_are_told(self, store: Store) -> None:
        node, _ = await opened(store, **TOLD)
        await node.push(task_request(NewTask("t0", 0)))
        (task,) = await node.take()
        await node.frontier.ack([done(task, *everywhere("t0"))])
        pages = await take_all(node)
        await node.finish(*pages)
        status = await node.frontier.status()
        assert status.state is RunState.RUNNING
        (end,) = await take_all(node)
        assert not await node.frontier.settled()
        await node.finish(end)
        assert (await node.frontier.status()).state is RunState.DONE

    async def test_nobody_is_told_who_does_not_want_it(self, store: Store) -> None:
        node, _ = await opened(store, polls=True)
        await node.push(task_request(NewTask("t0", 0)))
        await finish_all(node)
        status = await node.frontier.status()
        assert (status.state, status.reasons["task_done"]) == (RunState.DONE, 1)

    async def test_a_task_with_a_dead_letter_has_failed_when_all_else_is_done(
        self, store: Store
    ) -> None:
        node = await working(store, "one")
        (task,) = await node.take()
        await node.frontier.ack([done(task, *everywhere("t0"))])
        first, second, *others = await take_all(node)
        await kill(node, first, "dns")
        await elapse(store, node, 1_000)
        await kill(node, second, "timeout")
        assert not [lease for lease in await take_all(node) if lease.host == TASKS_HOST]
        await node.finish(*others)
        (end,) = await take_all(node)
        assert ended(end) == ("t0", "one", "dns")
        assert (await node.frontier.status()).reasons["task_failed"] == 1

    async def test_a_page_that_failed_half_way_fails_its_task(self, store: Store) -> None:
        node = await working(store, "one")
        (task,) = await node.take()
        await node.frontier.ack([done(task)._replace(error="raised", reason="callback_error")])
        (end,) = await take_all(node)
        assert ended(end) == ("t0", "one", "callback_error")

    async def test_an_end_is_told_that_comes_as_the_last_task_is_handed_out(
        self, store: Store
    ) -> None:
        node = await working(store, "one", max_deliveries=2)
        assert await node.ids() == ["t0.task"]
        await elapse(store, node, LEASE_MS)
        await node.frontier.add([task_request(NewTask("t1", "two"))])
        assert sorted(await node.ids()) == ["t0.task", "t1.task"]
        await elapse(store, node, LEASE_MS - 500)
        store.turn(1_000)  # the next claim finds that both have expired, for t0 once too often
        found = await node.ids() + await node.ids()
        assert sorted(found) == ["t0@end", "t1.task"]

    async def test_a_page_that_kills_its_nodes_fails_its_task(self, store: Store) -> None:
        node = await working(store, "one", max_deliveries=1)
        await node.take()
        await elapse(store, node, LEASE_MS + 1_000)
        (end,) = await finish_all(node)
        assert ended(end) == ("t0", "one", "poison")

    async def test_a_retried_dead_letter_opens_its_task_again(self, store: Store) -> None:
        node = await working(store, "one")
        (task,) = await node.take()
        await node.frontier.ack([done(task, *everywhere("t0"))])
        first, second, *others = await take_all(node)
        await kill(node, first)
        await kill(node, second)
        await node.finish(*others)
        assert [ended(end)[2] for end in await finish_all(node)] == ["timeout"]
        await node.frontier.redrive([first.id])
        assert (await node.frontier.status()).tasks == 1
        *_, end = await finish_all(node)
        assert ended(end)[2] == "timeout"  # one of the two is still dead
        await node.frontier.redrive([second.id])
        *_, end = await finish_all(node)
        assert ended(end) == ("t0", "one", "")
        assert not await node.frontier.redrive([first.id, second.id])

    async def test_a_retried_letter_of_a_task_that_was_pushed_again_takes_nothing_from_it(
        self, store: Store
    ) -> None:
        node = await working(store, "one")
        (task,) = await node.take()
        await kill(node, task)
        assert [ended(end)[2] for end in await finish_all(node)] == ["timeout"]
        await node.frontier.add([task_request(NewTask("t0", "again"))])
        await node.frontier.redrive([task.id])
        assert await node.ids() == ["t0.task"]
        assert await node.ids() == []  # its end is not told while it is worked on

    async def test_a_dropped_dead_letter_leaves_its_task_failed(self, store: Store) -> None:
        node = await working(store, "one")
        (task,) = await node.take()
        await kill(node, task)
        await finish_all(node)
        assert await node.frontier.redrive([task.id], drop=True) == 1
        assert await finish_all(node) == []
        assert (await node.frontier.status()).reasons["task_failed"] == 1

    async def test_a_hook_that_fails_is_a_dead_letter_and_can_be_called_again(
        self, store: Store
    ) -> None:
        node = await working(store, "one")
        (task,) = await node.take()
        await node.finish(task)
        (end,) = await take_all(node)
        await kill(node, end, "callback_error")
        (letter,) = await store.dead_letters()
        assert (letter.id, letter.host) == ("t0@end", TASKS_HOST)
        assert await node.frontier.open_tasks() == [("t0", b'"one"')]
        await node.frontier.redrive([letter.id])
        (again,) = await finish_all(node)
        assert ended(again) == ("t0", "one", "")
        assert await node.frontier.open_tasks() == []

    async def test_a_task_that_is_open_is_not_taken_again(self, store: Store) -> None:
        node = await working(store, "one")
        task = task_request(NewTask("t0", "one"))
        (lease,) = await node.take()
        await node.frontier.ack([done(lease, of("t0", "x"))])
        assert await node.frontier.add([task]) == 0
        (page,) = await node.take()
        await node.finish(page)
        (end,) = await take_all(node)
        assert await node.frontier.add([task]) == 0
        await node.finish(end)
        assert await node.frontier.add([task]) == 1

    async def test_work_of_a_dead_node_comes_back_and_is_counted_once(self, store: Store) -> None:
        node = await working(store, "one")
        (task,) = await node.take()
        await node.frontier.ack([done(task, *everywhere("t0"))])
        lost = await take_all(node)
        await elapse(store, node, LEASE_MS + 1_000)
        other = node.peer("B")
        again = await take_all(other)
        assert {lease.id for lease in again} == {lease.id for lease in lost}
        assert await node.finish(*lost) == [False] * len(lost)
        assert (await node.frontier.status()).tasks == 1
        await other.finish(*again)
        (end,) = await take_all(other)
        assert ended(end) == ("t0", "one", "")

    async def test_no_politeness_applies_to_tasks(self, store: Store) -> None:
        values = range(30)
        node = await working(store, *values, host_delay_ms=60_000, host_concurrency=1)
        leases = await node.take()
        assert len(leases) == len(values)
        assert (await node.frontier.status()).hosts == 0
        assert await node.frontier.ack([done(lease) for lease in leases]) == [True] * 30
        assert len(await take_all(node)) == 30

    async def test_tasks_and_pages_both_get_on(self, store: Store) -> None:
        node = await working(store, *range(20))
        await node.push(*(page(f"p{n}", f"h{n}") for n in range(20)))
        leases = await node.take(10)
        if len(leases) < 10:  # of several shards the first may have had fewer
            leases += await node.take(10 - len(leases))
        tasks = sum(lease.host == TASKS_HOST for lease in leases)
        assert 0 < tasks < len(leases) == 10

    async def test_a_page_that_a_redirect_took_stays_with_the_task_that_took_it(
        self, store: Store
    ) -> None:
        node = await working(store, 0, 1)
        behind = of("t1", "x")._replace(fingerprint=7)
        for lease in await take_all(node):
            task = lease.id.partition(".")[0]
            await node.frontier.ack([done(lease, of(task, "p"))])
        first, second = sorted(await take_all(node))
        assert (first.id, second.id) == ("t0.p", "t1.p")
        assert await node.frontier.visit(*first.held, 7, "h") == 1
        await node.frontier.ack([done(second, behind)])
        (end,) = await take_all(node)
        assert ended(end) == ("t1", 1, "")
        await node.finish(end)
        await kill(node, first)
        (late,) = await take_all(node)
        assert late.id == "t0.x", "task t1 was told to be done"
        await node.finish(late)
        (end,) = await take_all(node)
        assert ended(end) == ("t0", 0, "timeout")

    async def test_requests_of_no_task_end_no_task(self, store: Store) -> None:
        node, _ = await opened(store, **TOLD)
        await node.push(page("plain"))
        assert [lease.id for lease in await finish_all(node)] == ["plain"]
        status = await node.frontier.status()
        assert (status.state, status.tasks) == (RunState.DONE, 0)
