"""Mutants of how tasks are taken and how their ends are found. See `mutants`."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from orbweb.engine import errands as errands_module
from orbweb.frontier.base import (
    Ack,
    Lease,
    NewRequest,
    SeedCode,
    SeedReply,
)
from orbweb.frontier.memory_state import Run
from orbweb.frontier.tasks import NewTask, task_of
from orbweb.model.reasons import Reason
from orbweb.testing.simulator.mutants import Mutant
from orbweb.testing.simulator.plan import Plan, TasksFrom
from orbweb.testing.simulator.server import LossyFrontier, StoreFrontier
from orbweb.testing.simulator.tasks import TaskSpider


class _UnfencedCount(StoreFrontier):
    """Each ack counts a request down, also that of a node which has lost it."""

    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        run = self._begin()
        for ack in acks:
            if task_of(ack.id) and ack.id in run.tasks and not self._owned(run, *ack[:2]):
                run.of_tasks.detach(ack.id)
        return await super().ack(acks)


class _ParentFirst(StoreFrontier):
    """A page leaves its task before its links enter."""

    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        run = self._begin()
        for ack in acks:
            if self._owned(run, ack.id, ack.token):
                run.of_tasks.detach(ack.id)
        self._end_tasks(run)
        return await super().ack(acks)


class _RetriesLeave(StoreFrontier):
    """A request that waits for its retry does not count."""

    def _reap(self, run: Run, limit: int = 100) -> None:
        super()._reap(run, limit)
        for id in run.delayed.at:
            run.of_tasks.detach(id)


class _OutboxDoesNotCount(StoreFrontier):
    def _send(self, run: Run, request: NewRequest) -> bool:
        sent = super()._send(run, request)
        run.of_tasks.detach(request.id, f"{request.id}>{run.outbox[request]}")
        run.of_tasks.left.pop(task_of(request.id), None)
        return sent


class _PopsThenPushes(LossyFrontier):
    """Tasks leave their list, and then enter the frontier."""

    async def take_tasks(
        self, token: str, batch: int, final: bool, most: int, key: str
    ) -> SeedReply:
        popped = await self.call("pop", key, most)
        reply = SeedReply(SeedCode.OK)
        if popped or final:
            end = final and not popped
            reply = await self.call("seed_push", token, batch, end, popped)
        return reply._replace(added=len(popped))


class _Poppable(StoreFrontier):
    async def pop(self, key: str, most: int) -> list[NewRequest]:
        waiting = self.shard.task_lists[key]
        rows = waiting[:most]
        del waiting[: len(rows)]
        return [NewRequest(f"{task}.task", "@tasks", 300, None, value) for task, value in rows]


class _NothingRecovered(TaskSpider):
    async def recover(self, open_tasks: Sequence[NewTask]) -> None:
        return


class _TellsLater(errands_module.Errands):
    """The hook runs beside the engine, after its errand has been acknowledged."""

    async def run(self, lease: Lease, *args: object) -> Reason:
        if not lease.id.endswith("@end"):
            return await super().run(lease, *args)  # type: ignore[arg-type]

        async def later() -> None:
            await asyncio.sleep(3.0)
            await super(_TellsLater, self).run(lease, *args)  # type: ignore[arg-type]

        asyncio.get_running_loop().create_task(later())
        return Reason.TASK_TOLD


def _rows(plan: Plan) -> Plan:
    return replace(plan, tasks=TasksFrom.ROWS)


def _list(plan: Plan) -> Plan:
    return replace(plan, tasks=TasksFrom.LIST)


def _slow_network(plan: Plan) -> Plan:
    return replace(plan, nodes=4, faults=replace(plan.faults, latency_ms=300))


TASK_MUTANTS: dict[str, Mutant] = {
    mutant.name: replace(mutant, with_tasks=True)
    for mutant in (
        Mutant("unfenced_count", "Sidekiq batch", by=("early_task",), server=_UnfencedCount),
        Mutant("parent_leaves_first", by=("early_task", "lost_task"), server=_ParentFirst),
        Mutant("retries_do_not_count", by=("early_task",), server=_RetriesLeave),
        Mutant("pop_then_push", "NetSpy", by=("lost_task", "lost_url"), server=_Poppable,
               frontier=_PopsThenPushes, change=_list),
        Mutant("nothing_is_recovered", "NetSpy", by=("lost_task", "lost_url"),
               tasks=_NothingRecovered, change=_rows),
        Mutant("told_after_the_ack", by=("lost_task",),
               patches=((errands_module.Errands, "run", _TellsLater.run),)),
        Mutant("outbox_does_not_count", by=("early_task",), server=_OutboxDoesNotCount, shards=4,
               change=_slow_network),
    )
}  # fmt: skip
