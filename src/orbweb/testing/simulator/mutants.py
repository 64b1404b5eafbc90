"""Mutants of the design: most are how somebody's crawler or queue really works.

Each must be caught by the checker within `seeds` runs; so the table says what the checker can see.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orbweb.engine import pacer as pacer_module
from orbweb.engine import step as step_module
from orbweb.engine.outputs import Admission, Outputs
from orbweb.errors import StoreUnavailable
from orbweb.frontier import memory as memory_module
from orbweb.frontier.base import (
    SEED_ID,
    Ack,
    Claim,
    Held,
    Lease,
    Nack,
    NackResult,
    NewRequest,
    Opened,
    RunConfig,
    RunState,
    SeedCode,
    SeedReply,
)
from orbweb.frontier.memory_state import MemoryShard, Place, Run, Task
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.model.item import ItemRecord, Origin
from orbweb.model.request import Request
from orbweb.pipelines.buffer import ItemBuffer, Rejected
from orbweb.testing.simulator.plan import Plan, Weather
from orbweb.testing.simulator.server import LossyFrontier, StoreFrontier
from orbweb.testing.simulator.tasks import TaskSpider


def _as_planned(plan: Plan) -> Plan:
    return plan


def _nothing(old: MemoryShard, new: MemoryShard) -> None:
    return


def _exact(rng: random.Random) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of the design, and how to find it."""

    name: str
    whose: str = ""
    """Who works like this (frontier protocol, c.3)."""
    by: tuple[str, ...] = ()
    """The violations that give it away; one of them must be found."""
    seeds: int = 200
    """It must be caught within so many seeds."""
    weather: Weather | None = Weather.STORM
    server: type[StoreFrontier] = StoreFrontier
    frontier: type[LossyFrontier] = LossyFrontier
    sharded: type[ShardedFrontier] = ShardedFrontier
    shards: int = 1
    buffer: type[ItemBuffer] = ItemBuffer
    tasks: type[TaskSpider] = TaskSpider
    with_tasks: bool = False
    """It shows only in a fleet that works through tasks."""
    patches: tuple[tuple[Any, str, Any], ...] = ()
    """Module or class, name, value: what is replaced in the production code."""
    change: Callable[[Plan], Plan] = _as_planned
    on_rollback: Callable[[MemoryShard, MemoryShard], None] = _nothing
    skew_ms: Callable[[random.Random], int] = _exact


NO_MUTANT = Mutant("none", weather=None)
"""The design as it is, in any weather."""


def _later(work: Any) -> None:
    """Do something beside the engine, in the memory of the node only."""
    asyncio.get_running_loop().create_task(work)


async def _insist(frontier: LossyFrontier, name: str, *args: Any) -> Any:
    while True:
        try:
            return await frontier.call(name, *args)
        except StoreUnavailable:
            await asyncio.sleep(0.5)


class _AckBeforeChildren(LossyFrontier):
    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        children = [child for ack in acks for child in ack.children]
        answer = await super().ack([ack._replace(children=()) for ack in acks])
        if children:
            _later(self._push(children))
        return answer

    async def _push(self, children: list[NewRequest]) -> None:
        await asyncio.sleep(1.0)
        await _insist(self, "add", children)


class _DedupThenPush(LossyFrontier):
    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        for child in (child for ack in acks for child in ack.children):
            if child.fingerprint is None or await self.call("mark_seen", child.fingerprint):
                await self.call("add", [child._replace(fingerprint=None)])
        return await super().ack([ack._replace(children=()) for ack in acks])


class _SeparateSeen(StoreFrontier):
    async def mark_seen(self, fingerprint: int) -> bool:
        run = self._begin()
        is_new = not run.seen.has(fingerprint, "", self._wall)
        if is_new:
            run.seen.put(fingerprint, "")
        return is_new


Popped = list[tuple[str, Task, float]]


class _PopAndLease(StoreFrontier):
    async def pop(self, node: str, seq: int, want: int, lease_ms: int) -> tuple[Claim, Popped]:
        claim = await self.claim(node, seq, want, lease_ms)
        run = self._begin()
        popped: Popped = []
        for lease in claim.leases:
            popped.append((lease.id, run.tasks.pop(lease.id), run.deadline.at[lease.id]))
            run.deadline.drop(lease.id)
        self._finish(run)
        return claim, popped

    async def put(self, popped: Popped) -> None:
        run = self._begin()
        for id, task, deadline in popped:
            if id not in run.tasks:
                run.tasks[id] = task
                run.deadline.set(id, deadline)
        self._reopen(run)


class _PopThenLease(LossyFrontier):
    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        claim, popped = await self.call("pop", node, seq, want, lease_ms)
        if popped:
            await _insist(self, "put", popped)
        return claim


class _AnswersEarly(ItemBuffer):
    def submit(
        self, records: Sequence[ItemRecord], origin: Origin | None = None
    ) -> asyncio.Future[list[Rejected]]:
        super().submit(records, origin).add_done_callback(lambda future: future.exception())
        answer: asyncio.Future[list[Rejected]] = asyncio.get_running_loop().create_future()
        answer.set_result([])
        return answer


class _RetryLocally(LossyFrontier):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._leases: dict[Held, Lease] = {}
        self._tries: dict[str, int] = {}

    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        claim = await super().claim(node, seq, want, lease_ms)
        self._leases.update({lease.held: lease for lease in claim.leases})
        return claim

    async def nack(self, nacks: Sequence[Nack]) -> list[NackResult]:
        return [await self._one(nack) for nack in nacks]

    async def _one(self, nack: Nack) -> NackResult:
        lease = self._leases.get(Held(nack.id, nack.token))
        if lease is None or not nack.backoff_ms or nack.fatal:
            return (await super().nack([nack]))[0]
        tries = self._tries.get(nack.id, 0)
        if tries >= 2:
            return (await super().nack([nack._replace(fatal=True)]))[0]
        if not (await super().ack([Ack(nack.id, nack.token, "retry_wait")]))[0]:
            return NackResult.LOST
        self._tries[nack.id] = tries + 1
        _later(self._push(lease, nack.backoff_ms))
        return NackResult.REQUEUED

    async def _push(self, lease: Lease, backoff_ms: int) -> None:
        await asyncio.sleep(backoff_ms / 1000)
        again = NewRequest(lease.id, lease.host, lease.priority, None, lease.payload)
        await _insist(self, "add", [again])


class _SeedOnce(StoreFrontier):
    async def seed_claim(self, node: str, seq: int, lease_ms: int) -> SeedReply:
        run = self._begin()
        if SEED_ID not in run.tasks and not self._is_holder(run, node):
            return SeedReply(SeedCode.DONE, run.cursor)
        run.tasks.pop(SEED_ID, None)
        run.lock = node  # type: ignore[attr-defined]
        return SeedReply(SeedCode.OK, run.cursor, f"{node}:{seq}")

    async def seed_push(
        self,
        token: str,
        batch: int,
        final: bool,
        requests: Sequence[NewRequest],
        refused: Sequence[tuple[str, int]] = (),
    ) -> SeedReply:
        run = self._begin()
        added = sum(self._push(run, request) for request in requests)
        run.cursor = max(run.cursor, batch)
        self._reopen(run)
        if final:
            run.lock = ""  # type: ignore[attr-defined]
        self._finish(run)
        return SeedReply(SeedCode.OK, batch, "", added)

    def _finish(self, run: Run) -> None:
        if run.cursor:
            super()._finish(run)

    def _is_holder(self, run: Run, node: str) -> bool:
        return getattr(run, "lock", "") == node


class _Counter(StoreFrontier):
    def _push(self, run: Run, request: NewRequest) -> bool:
        is_new = super()._push(run, request)
        run.counters["left"] += is_new
        return is_new

    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        run = self._begin()
        answer = await super().ack(acks)
        run.counters["left"] -= len(acks)
        self._finish(run)
        return answer

    def _bury(self, run: Run, held: Held, task: Task, *facts: Any) -> None:
        super()._bury(run, held, task, *facts)
        if task.place is not Place.IDLE:
            run.counters["left"] -= 1

    def _finish(self, run: Run) -> None:
        seeded = SEED_ID not in run.tasks
        if run.state is RunState.RUNNING and seeded and run.counters["left"] <= 0:
            run.state = RunState.DONE
            run.finished = self._wall


class _Reports(StoreFrontier):
    async def renew(
        self, node: str, lease_ms: int, held: Sequence[Held], beat: bytes = b""
    ) -> tuple[list[Held], bool]:
        answer = await super().renew(node, lease_ms, held, beat)
        reports = self._begin().__dict__.setdefault("reports", {})
        reports[node] = (self._wall, len(held))
        return answer

    async def count(self, place: Place) -> int:
        return sum(task.place is place for task in self._begin().tasks.values())

    async def all_idle(self) -> bool:
        reports = self._begin().__dict__.get("reports", {})
        return all(held == 0 or self._wall - at > 15_000 for at, held in reports.values())


class _EndByReports(LossyFrontier):
    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        claim = await super().claim(node, seq, want, lease_ms)
        if claim.leases:
            return replace(claim, state=RunState.RUNNING)
        waiting = await self.call("count", Place.QUEUED) + await self.call("count", Place.DELAYED)
        leased = await self.call("count", Place.LEASED)
        idle = await self.call("count", Place.IDLE)
        done = not waiting and not leased and not idle and await self.call("all_idle")
        return replace(claim, state=RunState.DONE if done else RunState.RUNNING)

    async def settled(self) -> bool:
        return True


class _Unfenced(StoreFrontier):
    def _owned(self, run: Run, id: str, token: str) -> Task | None:
        task = run.tasks.get(id)
        return task if task and task.place is Place.LEASED else None


class _NoCap(StoreFrontier):
    async def open(self, config: RunConfig) -> Opened:
        return await super().open(replace(config, max_deliveries=10**9))


class _KeyOfAttempt(Outputs):
    def __init__(
        self, parent: Request, admission: Admission, *, epoch: str, default_table: str
    ) -> None:
        epoch = f"{epoch} {parent.lease_token}"
        super().__init__(parent, admission, epoch=epoch, default_table=default_table)


def _keep_seen(old: MemoryShard, new: MemoryShard) -> None:
    for base, run in new.runs.items():
        if base in old.runs:
            run.seen = old.runs[base].seen


def _no_step(config: RunConfig) -> int:
    return 10**12


class _ClientClocks(StoreFrontier):
    def _begin(self) -> Run:
        run = super()._begin()
        self._now = self.shard.now_ms() + self.caller_skew_ms
        return run


def _wrong_by_seconds(rng: random.Random) -> int:
    return rng.choice([-20_000, 0, 0, 20_000])


class _NoReplay(StoreFrontier):
    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        run = self._begin()
        if run.claims.get(node, (0, []))[0] == seq:
            run.claims[node] = (seq - 1, [])
        return await super().claim(node, seq, want, lease_ms)


def _unchecked(step: Any) -> bool:
    return True


def _never_stale(pacer: Any, turn: Any) -> bool:
    return False


_is_held, _renew = step_module.Step._is_held, step_module.Step._renew


def _held_or_renewed(step: Any) -> bool:
    return step.__dict__.pop("renewed", False) or _is_held(step)


async def _renew_and_believe(step: Any) -> None:
    await _renew(step)
    step.renewed = True


class _Unsettled(LossyFrontier):
    async def settled(self) -> bool:
        return True


def _with_poison(plan: Plan) -> Plan:
    return replace(plan, poison=True, bound_ms=300_000)


def _slow_network(plan: Plan) -> Plan:
    return replace(plan, nodes=4, faults=replace(plan.faults, latency_ms=300))


def _many_pauses(plan: Plan) -> Plan:
    return replace(plan, faults=replace(plan.faults, pause=0.4, crash=0.0, latency_ms=200))


def _stop_and_go(plan: Plan) -> Plan:
    quiet = replace(plan.faults, crash=0.0, wedge=0.0, partition=0.0, terminate=0.0)
    return replace(plan, nodes=4, faults=replace(quiet, pause=0.8, latency_ms=600))


def _long_outages(plan: Plan) -> Plan:
    return replace(plan, faults=replace(plan.faults, outage=0.06))


MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "ack_before_children",
            "netspy",
            by=("early_exit", "lost_url"),
            frontier=_AckBeforeChildren,
        ),
        Mutant(
            "dedup_then_push",
            "scrapy-redis, netspy",
            by=("lost_url",),
            server=_SeparateSeen,
            frontier=_DedupThenPush,
        ),
        Mutant(
            "pop_then_lease",
            "kombu, Faktory, RQ, netspy",
            by=("lost_url", "not_ended"),
            server=_PopAndLease,
            frontier=_PopThenLease,
        ),
        Mutant(
            "ack_before_persist",
            "scrapy-redis",
            by=("lost_item",),
            buffer=_AnswersEarly,
        ),
        Mutant(
            "retry_locally",
            "netspy",
            by=("lost_item", "lost_url", "early_exit"),
            frontier=_RetryLocally,
        ),
        Mutant("seed_once_lock", "netspy", by=("lost_url",), server=_SeedOnce),
        Mutant(
            "pending_counter",
            "Sidekiq batch, crawlee",
            by=("early_exit", "lost_url"),
            server=_Counter,
        ),
        Mutant(
            "end_by_heartbeats",
            "netspy",
            by=("early_exit",),
            seeds=3000,
            server=_Reports,
            frontier=_EndByReports,
            change=_slow_network,
        ),
        Mutant(
            "unfenced",
            "Oban, pg-boss, Faktory, arq, netspy",
            by=("zombie_start", "wrong_dead", "slots", "acked_twice"),
            seeds=500,
            server=_Unfenced,
        ),
        Mutant(
            "no_delivery_cap",
            "netspy, early Faktory",
            by=("poison_loop",),
            server=_NoCap,
            change=_with_poison,
        ),
        Mutant(
            "key_of_attempt",
            "keys with a time stamp",
            by=("duplicate_item",),
            patches=((step_module, "Outputs", _KeyOfAttempt),),
        ),
        Mutant(
            "split_dedup",
            "bloom snapshots restored apart",
            by=("lost_url",),
            weather=Weather.ROLLBACK,
            on_rollback=_keep_seen,
        ),
        Mutant(
            "uncapped_clock",
            "wall clocks",
            by=("reaped_in_calm", "fetched_in_calm"),
            weather=Weather.CALM,
            patches=((memory_module, "clock_step_ms", _no_step),),
            change=_long_outages,
        ),
        Mutant(
            "client_clocks",
            "kombu, dramatiq, crawlee, netspy",
            by=("zombie_start",),
            server=_ClientClocks,
            skew_ms=_wrong_by_seconds,
        ),
        Mutant(
            "no_claim_replay",
            "all but SQS FIFO",
            by=("reaped_in_calm",),
            weather=Weather.CALM,
            server=_NoReplay,
        ),
        Mutant(
            "start_unchecked",
            "who trusts a lease without a look at the clock",
            by=("zombie_start",),
            patches=(
                (step_module.Step, "_is_held", _unchecked),
                (pacer_module.Pacer, "_is_stale", _never_stale),
            ),
            change=_many_pauses,
        ),
        Mutant(
            "renewal_believed",
            "our first version: the answer may be old when it is read",
            by=("zombie_start",),
            seeds=3000,
            patches=(
                (step_module.Step, "_is_held", _held_or_renewed),
                (step_module.Step, "_renew", _renew_and_believe),
            ),
            change=_stop_and_go,
        ),
        Mutant(
            "exit_before_durable",
            "who exits on the first 'done'",
            by=("lost_url", "lost_item", "early_exit"),
            seeds=1000,
            weather=Weather.ROLLBACK,
            frontier=_Unsettled,
        ),
    )
}
