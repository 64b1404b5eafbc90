"""Mutants of how a run is spread over shards: what is easily done wrong. See `mutants`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orbweb.errors import StoreUnavailable
from orbweb.frontier import sharded as sharded_module
from orbweb.frontier.base import (
    Ack,
    Claim,
    NewRequest,
    Status,
)
from orbweb.frontier.memory_state import Run
from orbweb.frontier.routes import routed, shard_of
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.testing.simulator.mutants import Mutant
from orbweb.testing.simulator.plan import Plan, Weather
from orbweb.testing.simulator.server import StoreFrontier


class _TrimFirst(ShardedFrontier):
    async def _forward(self, rows: Sequence[tuple[int, NewRequest]]) -> int:
        for source, row in rows:
            try:
                await self.shards[source].trim([row])
            except StoreUnavailable:
                continue
        return await super()._forward(rows)


class _DeliverUndone(ShardedFrontier):
    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        count = len(self.shards)
        away = []
        for n, ack in enumerate(acks):
            here = self._of_lease(ack.id, ack.token)
            away += [each for each in ack.children if shard_of(each.host, count) != here]
            near = [each for each in ack.children if shard_of(each.host, count) == here]
            acks = [*acks[:n], ack._replace(children=near), *acks[n + 1 :]]
        answer = await super().ack(acks)
        for request in away:
            await self.shards[shard_of(request.host, count)].deliver([request])
        return answer


class _TrimByNumber(StoreFrontier):
    async def trim(self, requests: Sequence[NewRequest]) -> None:
        run = self._begin()
        for oldest in sorted(run.outbox, key=run.outbox.__getitem__)[: len(requests)]:
            del run.outbox[oldest]


class _OwnOnly(ShardedFrontier):
    async def _forward_what_was_left(self) -> None:
        return


class _OutboxIsNotPending(StoreFrontier):
    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        claim = await super().claim(node, seq, want, lease_ms)
        return replace(claim, pending=claim.pending - claim.away)

    def _status(self, run: Run) -> Status:
        status = super()._status(run)
        return replace(status, pending=status.pending - status.away)


def _unmarked(
    requests: Sequence[NewRequest], here: int, shards: int, origin: Sequence[str]
) -> tuple[NewRequest, ...]:
    marked = routed(requests, here, shards, origin)
    return tuple(
        mark._replace(fingerprint=each.fingerprint)
        for each, mark in zip(requests, marked, strict=True)
    )


class _ForgetsWhatItAskedFor(ShardedFrontier):
    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        self._turns.pop(node, None)
        return await super().claim(node, seq, want, lease_ms)


class _DropsWhatItGot(ShardedFrontier):
    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        claim = await super().claim(node, seq, want, lease_ms)
        fault = self._turns[node].fault
        if fault is not None:
            raise fault
        return claim


def _slow_network(plan: Plan) -> Plan:
    return replace(plan, nodes=4, faults=replace(plan.faults, latency_ms=300))


def _many_twins(plan: Plan) -> Plan:
    return replace(plan, nodes=4, faults=replace(plan.faults, duplicate=0.3))


SHARD_MUTANTS: dict[str, Mutant] = {
    mutant.name: replace(mutant, shards=4)
    for mutant in (
        Mutant("trim_then_deliver", by=("lost_url", "lost_item"), sharded=_TrimFirst),
        Mutant("no_outbox", by=("lost_url", "early_exit"), sharded=_DeliverUndone),
        Mutant("trim_by_number", "high-water marks", by=("lost_url",), server=_TrimByNumber),
        Mutant("only_the_writer_forwards", by=("not_ended",), sharded=_OwnOnly),
        Mutant(
            "outbox_is_not_pending",
            by=("early_exit", "lost_url"),
            server=_OutboxIsNotPending,
            change=_slow_network,
        ),
        Mutant(
            "delivered_twice",
            by=("fetched_in_calm", "duplicate_item"),
            weather=Weather.CALM,
            patches=((sharded_module, "routed", _unmarked),),
            change=_many_twins,
        ),
        Mutant(
            "half_a_claim_is_forgotten",
            by=("reaped_in_calm",),
            weather=Weather.CALM,
            sharded=_ForgetsWhatItAskedFor,
        ),
        Mutant(
            "half_a_claim_waits_for_the_other",
            "until all shards answer nothing is handed out, and leases may run out meanwhile",
            by=("reaped_in_calm",),
            weather=Weather.CALM,
            seeds=2000,
            sharded=_DropsWhatItGot,
        ),
    )
}
