"""Mutants of how a run is spread over shards: what is easily done wrong. See `mutants`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orbweb.errors import StoreUnavailable
from orbweb.frontier import sharded as sharded_module
from orbweb.frontier.base import (
    Ack,
    Claim,
    Lease,
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


class _ForgetsWhatItGot(ShardedFrontier):
    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        self._turns.pop(node, None)
        return await super().claim(node, seq, want, lease_ms)


class _KeepsWhatItGot(ShardedFrontier):
    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        kept = self.__dict__.setdefault("kept", {})
        turn = self._turns[node]
        if turn.seq != seq:
            kept.clear()
        turn.asked[:] = [number for number in turn.asked if number not in kept]
        claim = await super().claim(node, seq, want, lease_ms)
        old = [lease for leases in kept.values() for lease in leases]
        return replace(claim, leases=(*old, *claim.leases))

    async def _claim_from(
        self, turn: object, number: int, node: str, want: int, lease_ms: int
    ) -> Sequence[Lease]:
        kept = self.__dict__["kept"]
        if number in kept:
            return ()
        kept[number] = await super()._claim_from(turn, number, node, want, lease_ms)  # type: ignore[arg-type]
        return kept[number]  # type: ignore[no-any-return]


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
            sharded=_ForgetsWhatItGot,
        ),
        Mutant(
            "half_a_claim_is_kept",
            "our first thought: what was answered need not be asked again",
            by=("zombie_start",),
            seeds=2000,
            sharded=_KeepsWhatItGot,
            change=_slow_network,
        ),
    )
}
