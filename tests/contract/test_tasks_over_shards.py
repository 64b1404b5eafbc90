"""What one look at several shards can miss of a task, and two cannot."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.contract.test_frontier_contract import MemoryStore

from orbweb.frontier import sharded
from orbweb.frontier.base import TaskLook
from orbweb.frontier.routes import shard_of
from orbweb.testing.contract_store import Node, done
from orbweb.testing.contract_tasks import of, take_all, working

HOSTS = {shard_of(f"h{n}", 3): f"h{n}" for n in range(20)}
"""A host of each of three shards."""


async def passing_by() -> Node:
    """A task with one request, in the last shard. While that is looked at, the request ends and
    leaves another in the shard that was looked at before.
    """
    node = await working(MemoryStore(3), "one")
    (task,) = await node.take()
    await node.frontier.ack([done(task, of("t0", "x", HOSTS[2]))])
    (page,) = await take_all(node)
    last = node.frontier.shards[2]  # type: ignore[attr-defined]
    look = last.look_at_tasks

    async def slow_look(tasks: Sequence[str]) -> list[TaskLook]:
        last.look_at_tasks = look
        await node.frontier.ack([done(page, of("t0", "y", HOSTS[1]))])
        return await look(tasks)  # type: ignore[no-any-return]

    last.look_at_tasks = slow_look
    await node.frontier._settle(["t0"])  # type: ignore[attr-defined]
    return node


async def test_a_request_that_passes_the_first_look_is_found_by_the_second() -> None:
    node = await passing_by()
    assert (await node.frontier.status()).tasks == 1
    (page,) = await take_all(node)
    await node.finish(page)
    (end,) = await take_all(node)
    assert end.id == "t0@end"


async def test_one_look_would_end_the_task_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_look(looked: Sequence[TaskLook], again: Sequence[TaskLook]) -> bool:
        return not any(each.open for each in looked)

    monkeypatch.setattr(sharded, "is_over", one_look)
    node = await passing_by()
    assert (await node.frontier.status()).tasks == 0
