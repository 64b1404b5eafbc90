"""A frontier of several shards: each host lies in one of them, and any node works on all."""

from __future__ import annotations

import math
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar
from zlib import crc32

from orbweb.errors import StoreUnavailable
from orbweb.frontier.base import (
    SEED_ID,
    SLACK_MS,
    Ack,
    Claim,
    Frontier,
    Held,
    Lease,
    Nack,
    NackResult,
    NewRequest,
    Opened,
    Permit,
    RunConfig,
    RunControl,
    RunState,
    SeedCode,
    SeedReply,
    SettledTask,
    ShardControl,
    Signal,
    Status,
    TaskControl,
    TaskLook,
    TaskVerdict,
    Tunable,
    Tuning,
)
from orbweb.frontier.ends import ending, first_fault, is_over, merged
from orbweb.frontier.routes import routed, seq_in_shard, shard_of, shard_of_lease

T = TypeVar("T")
Outcome = TypeVar("Outcome", Ack, Nack)
Answer = TypeVar("Answer")

IDLE_SECONDS = 0.1
"""A shard in which nothing is in sight is asked again after this time, while others have work."""

LEFT_SECONDS = 0.5
"""What has been in an outbox for so long was left there by a node that died or was cut off."""

FORWARD_BATCH = 500

LOOKED_AT = 200
"""Tasks that are looked at in one call."""


class Shard(Frontier, RunControl, ShardControl, TaskControl, Tunable, Protocol):
    """All that a frontier of one shard offers to one of several."""

    def attach(self, epoch: str) -> None:
        """Work on this incarnation of the run without opening it."""

    async def redrive(self, ids: Sequence[str], *, drop: bool = False) -> int:
        """Let dead letters return to their queues, or drop them; returns how many were found."""


@dataclass(slots=True)
class _Turn:
    """A claim of a node: its number, and the shards that were asked, whether they answered or not.

    A claim that failed half-way is repeated with the same number: what it has got is asked for
    again there, so that no lease is stranded and each is as long as the caller thinks.
    """

    seq: int = 0
    asked: list[int] = field(default_factory=list)
    """The one that was asked last comes last: when a shard fails, the next time begins with those
    that it kept from being asked, as their leases run, too."""


@dataclass(slots=True)
class _View:
    """What a shard said last, and when it is worth asking again."""

    claim: Claim = field(default_factory=lambda: Claim((), RunState.RUNNING, 0, -1))
    ask_at: float = 0.0
    left_since: float | None = None
    """Since when its outbox was never seen empty."""


class ShardedFrontier:
    """See `Frontier` and `RunControl`. Every shard is a frontier of its own; shard 0 leads.

    A call for several shards goes to each of them, also when one does not answer; then it raises
    `StoreUnavailable`, and its repetition tells what the others have answered.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        clock: Callable[[], float],
        new_name: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """`clock` gives monotonic seconds; `new_name` a name that no call of `add` has had."""
        self.shards = shards
        self._clock = clock
        self._new_name = new_name
        self._turns: dict[str, _Turn] = defaultdict(_Turn)
        self._views = [_View() for _ in shards]
        self._acked: dict[Held, bool] = {}
        self._nacked: dict[Held, NackResult] = {}

    def attach(self, epoch: str) -> None:
        """Work on this incarnation of the run without opening it (a node's second connection)."""
        for shard in self.shards:
            shard.attach(epoch)

    # -- the run

    async def open(self, config: RunConfig) -> Opened:
        whole = await self.shards[0].open(config)
        for shard in self.shards[1:]:
            await shard.open_part(config, whole)
        if not whole.laid:
            await self.shards[0].lay()
        status = await self.status()
        state = whole.state if whole.state is RunState.NEW else status.state
        return replace(whole, state=state, status=status, laid=True)

    async def tune(self, tuning: Tuning) -> bool:
        """See `Tunable`."""
        return all([await shard.tune(tuning) for shard in self.shards])

    async def status(self) -> Status:
        looked = await self._look()
        if ending(looked):
            again = await self._look()
            if ending(looked, again):
                await self.shards[0].close(again[0].version)
                again[0] = await self.shards[0].status()
            looked = again
        elif looked[0].state is RunState.DONE and any(
            each.pending or each.tasks for each in looked
        ):
            await self.shards[0].reopen()  # a shard has lost its last writes, or got more work
            looked[0] = await self.shards[0].status()
        return merged(looked)

    async def _look(self) -> list[Status]:
        """The counts of all shards, one after the other."""
        return [await shard.status() for shard in self.shards]

    async def settled(self) -> bool:
        for shard in self.shards:
            await shard.settled()
        looked, again = await self._look(), await self._look()
        return looked[0].state is RunState.DONE and ending(looked, again, state=RunState.DONE)

    async def recover(self) -> int:
        return sum([await shard.recover() for shard in self.shards])

    async def stop(self) -> None:
        await self.shards[0].stop()
        await self.status()  # it may have been all that the run waited for

    # -- claim

    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        turn = self._turns[node]
        if turn.seq != seq:
            turn = self._turns[node] = _Turn(seq)
        first = (seq + crc32(node.encode())) % len(self.shards)
        order = [*range(first, len(self.shards)), *range(first)]
        leases: list[Lease] = []
        for number in list(turn.asked):
            leases += await self._claim_from(turn, number, node, want - len(leases), lease_ms)
        for number in order:
            if turn.asked and len(leases) >= want:
                break
            if number not in turn.asked and self._is_due(number):
                leases += await self._claim_from(turn, number, node, want - len(leases), lease_ms)
        if not leases:  # only who has asked all may wait
            for number in order:
                if number not in turn.asked:
                    leases += await self._claim_from(
                        turn, number, node, want - len(leases), lease_ms
                    )
        await self._forward_what_was_left()
        await self._look_at_idle_tasks()
        return await self._whole_claim(leases, want)

    async def _claim_from(
        self, turn: _Turn, number: int, node: str, want: int, lease_ms: int
    ) -> Sequence[Lease]:
        if number in turn.asked:
            turn.asked.remove(number)
        turn.asked.append(number)
        view, sent = self._views[number], self._clock()
        claim = await self.shards[number].claim(
            node, seq_in_shard(turn.seq, number), max(want, 0), lease_ms
        )
        view.claim = claim
        if claim.wait_ms >= 0:
            view.ask_at = sent + claim.wait_ms / 1000
        else:
            view.ask_at = sent if len(claim.leases) >= want else sent + IDLE_SECONDS
        if not claim.away:
            view.left_since = None
        elif view.left_since is None:
            view.left_since = sent
        return claim.leases

    def _is_due(self, number: int) -> bool:
        return self._clock() >= self._views[number].ask_at

    async def _whole_claim(self, leases: Sequence[Lease], want: int) -> Claim:
        said, now = [view.claim for view in self._views], self._clock()
        state, pending = said[0].state, sum(claim.pending for claim in said)
        if not leases and (state is RunState.DONE) == (pending > 0):
            status = await self.status()
            state, pending = status.state, status.pending
        away = sum(claim.away for claim in said)
        waits = [view.ask_at - now for view in self._views if view.claim.wait_ms >= 0]
        if away:
            waits.append(LEFT_SECONDS)
        wait = -1
        if waits and len(leases) < want:
            wait = math.ceil(max(0.0, min(waits)) * 1000)
        return Claim(
            tuple(leases),
            state,
            pending,
            wait,
            said[0].stopping,
            paused=said[0].paused,
            away=away,
            at_ms=max(claim.at_ms for claim in said),
        )

    # -- what a holder of leases does

    async def renew(
        self, node: str, lease_ms: int, held: Sequence[Held], beat: bytes = b""
    ) -> tuple[list[Held], bool]:
        groups = self._by_shard(held)
        lost: list[Held] = []
        stopping = False

        async def renew(number: int) -> None:
            nonlocal stopping
            gone, stop = await self.shards[number].renew(
                node, lease_ms, groups.get(number, []), b"" if number else beat
            )
            lost.extend(gone)
            stopping |= stop

        await self._at_each(range(len(self.shards)), renew)
        return lost, stopping

    async def fetched(self, held: Sequence[Held]) -> None:
        groups = self._by_shard(held)
        await self._at_each(groups, lambda number: self.shards[number].fetched(groups[number]))

    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        rows: list[tuple[int, NewRequest]] = []

        async def finish(number: int, group: Sequence[Ack]) -> list[bool]:
            sent = [
                ack._replace(children=self._routed(ack.children, number, ack.token, ack.id))
                for ack in group
            ]
            kept = await self.shards[number].ack(sent)
            for ack in [ack for ack, flag in zip(sent, kept, strict=True) if flag]:
                rows.extend((number, link) for link in ack.children if link.shard is not None)
            return kept

        try:
            answers = await self._answered(acks, self._acked, finish)
        except StoreUnavailable:
            await self._forward(rows)
            raise
        await self._forward(rows)
        return answers

    async def emit(self, id: str, token: str, step: int, children: Sequence[NewRequest]) -> bool:
        number = self._of_lease(id, token)
        links = self._routed(children, number, token, id)
        taken = await self.shards[number].emit(id, token, step, links)
        self._views[number].ask_at = 0
        if taken:
            await self._forward([(number, link) for link in links if link.shard is not None])
        return taken

    async def nack(self, nacks: Sequence[Nack]) -> list[NackResult]:
        return await self._answered(
            nacks, self._nacked, lambda number, group: self.shards[number].nack(group)
        )

    async def permit(self, id: str, token: str, mark: int, slack_ms: int = SLACK_MS) -> Permit:
        return await self.shards[self._of_lease(id, token)].permit(id, token, mark, slack_ms)

    async def visit(self, id: str, token: str, fingerprint: int, host: str = "") -> bool | None:
        return await self.shards[self._of_lease(id, token)].visit(id, token, fingerprint, host)

    async def report(self, signals: Sequence[Signal]) -> None:
        groups = _grouped(signals, lambda signal: shard_of(signal.host, len(self.shards)))
        await self._at_each(groups, lambda number: self.shards[number].report(groups[number]))

    async def hold_off(self, pauses: Sequence[tuple[str, int]]) -> None:
        groups = _grouped(pauses, lambda pause: shard_of(pause[0], len(self.shards)))
        await self._at_each(groups, lambda number: self.shards[number].hold_off(groups[number]))

    # -- seeding, and work from outside

    async def seed_claim(self, node: str, seq: int, lease_ms: int) -> SeedReply:
        return await self.shards[0].seed_claim(node, seq, lease_ms)

    async def seed_push(
        self,
        token: str,
        batch: int,
        final: bool,
        requests: Sequence[NewRequest],
        refused: Sequence[tuple[str, int]] = (),
    ) -> SeedReply:
        seeds = self._routed(requests, 0, token, SEED_ID)
        reply = await self.shards[0].seed_push(token, batch, final, seeds, refused)
        self._views[0].ask_at = 0
        if reply.code is not SeedCode.OK:
            return reply
        added = await self._forward([(0, seed) for seed in seeds if seed.shard is not None])
        if final:
            await self.status()  # there may be no seed at all
        return reply._replace(added=reply.added + added)

    async def take_tasks(
        self, token: str, batch: int, final: bool, most: int, key: str
    ) -> SeedReply:
        reply = await self.shards[0].take_tasks(token, batch, final, most, key)
        self._views[0].ask_at = 0
        if final and reply.code is SeedCode.OK and not reply.added:
            await self.status()
        return reply

    async def open_tasks(self) -> list[tuple[str, bytes]]:
        return await self.shards[0].open_tasks()

    async def add(self, requests: Sequence[NewRequest]) -> int:
        found = self._routed(requests, 0, "add", self._new_name())
        added = await self.shards[0].add(found)
        self._views[0].ask_at = 0
        return added + await self._forward([(0, each) for each in found if each.shard is not None])

    async def redrive(self, ids: Sequence[str], *, drop: bool = False) -> int:
        """Let dead letters return to their queues, or drop them; returns how many were found."""
        found = 0
        for shard in self.shards:
            found += await shard.redrive(ids, drop=drop)
        if found and not drop:
            await self.shards[0].reopen()
        return found

    # -- the end of tasks

    async def _look_at_idle_tasks(self) -> None:
        """Look at the tasks of which shards have said that nothing is left in them."""
        for number, view in enumerate(self._views):
            if view.claim.idle_tasks:
                view.claim = replace(view.claim, idle_tasks=0)
                await self._settle(await self.shards[number].idle_tasks(LOOKED_AT))

    async def _settle(self, tasks: Sequence[str]) -> None:
        """End the tasks of which nothing is left in any shard. Those that two looks cannot tell
        stay as they are and are looked at again.
        """
        if not tasks:
            return
        looked = [await shard.look_at_tasks(tasks) for shard in self.shards]
        again = [await shard.look_at_tasks(tasks) for shard in self.shards]
        ended: dict[str, list[TaskLook]] = {}
        words: list[list[SettledTask]] = [[] for _ in self.shards]
        for task, first, second in zip(
            tasks, zip(*looked, strict=True), zip(*again, strict=True), strict=True
        ):
            if is_over(first, second):
                ended[task] = list(second)
            elif any(each.open for each in second):
                for number, each in enumerate(second):
                    if not each.open:
                        words[number].append(SettledTask(task, each.moved, TaskVerdict.OPEN))
        for task in await self._end(ended):
            for number, each in enumerate(ended[task][1:], 1):
                words[number].append(SettledTask(task, each.moved, TaskVerdict.GONE))
        for number, group in enumerate(words):
            if group:
                await self.shards[number].settle_tasks(group)

    async def _end(self, ended: Mapping[str, Sequence[TaskLook]]) -> list[str]:
        """End them where they are kept, before any shard forgets that they were there."""
        settled = []
        for task, looked in ended.items():
            reason = first_fault(looked)
            known = looked[0].kept == "living" or (looked[0].kept == "failed" and not reason)
            verdict = TaskVerdict.OVER if known else TaskVerdict.GONE
            settled.append(SettledTask(task, looked[0].moved, verdict, reason))
        if not settled:
            return []
        flags = await self.shards[0].settle_tasks(settled)
        leading = self._views[0]  # there may be something to tell
        leading.ask_at, leading.claim = 0, replace(leading.claim, wait_ms=0)
        return [task for task, done in zip(ended, flags, strict=True) if done]

    # -- the outbox

    async def _forward(self, rows: Sequence[tuple[int, NewRequest]]) -> int:
        """Take requests from the outboxes of these shards to theirs; returns how many were new.

        What cannot be taken there now is left for whoever claims later.
        """
        by_target = _grouped(rows, lambda row: row[1].shard or 0)
        delivered: list[tuple[int, NewRequest]] = []
        added = 0
        for target, group in by_target.items():
            for start in range(0, len(group), FORWARD_BATCH):
                batch = group[start : start + FORWARD_BATCH]
                try:
                    added += await self.shards[target].deliver([row for _, row in batch])
                except StoreUnavailable:
                    break
                delivered += batch
            self._views[target].ask_at = 0
        for source, group in _grouped(delivered, lambda row: row[0]).items():
            try:
                await self.shards[source].trim([row for _, row in group])
            except StoreUnavailable:
                continue  # delivered once more, which does nothing
        return added

    async def _forward_what_was_left(self) -> None:
        """Who wrote it has forwarded it long ago, if it lived."""
        now = self._clock()
        for number, view in enumerate(self._views):
            if view.left_since is None or now < view.left_since + LEFT_SECONDS:
                continue
            view.left_since = now
            rows = await self.shards[number].outbox(FORWARD_BATCH)
            await self._forward([(number, row) for row in rows])

    # -- which shard

    def _of_lease(self, id: str, token: str) -> int:
        return shard_of_lease(id, token, len(self.shards))

    def _by_shard(self, held: Iterable[Held]) -> dict[int, list[Held]]:
        return _grouped(held, lambda each: self._of_lease(*each))

    def _routed(
        self, requests: Sequence[NewRequest], here: int, *origin: str
    ) -> tuple[NewRequest, ...]:
        return routed(requests, here, len(self.shards), origin)

    async def _at_each(
        self, numbers: Iterable[int], call: Callable[[int], Awaitable[None]]
    ) -> None:
        """Call at each of these shards, whatever happens at the others; then raise what was."""
        failed: StoreUnavailable | None = None
        for number in numbers:
            self._views[number].ask_at = 0
            try:
                await call(number)
            except StoreUnavailable as error:
                failed = error
        if failed is not None:
            raise failed

    async def _answered(
        self,
        given: Sequence[Outcome],
        known: dict[Held, Answer],
        call: Callable[[int, Sequence[Outcome]], Awaitable[list[Answer]]],
    ) -> list[Answer]:
        """The answers to acks or nacks, from `known` where an earlier attempt has got them."""
        places = [n for n, each in enumerate(given) if Held(each.id, each.token) not in known]
        groups = _grouped(places, lambda n: self._of_lease(given[n].id, given[n].token))
        answers: dict[int, Answer] = {}

        async def ask(number: int) -> None:
            group = groups[number]
            answers.update(zip(group, await call(number, [given[n] for n in group]), strict=True))

        try:
            await self._at_each(groups, ask)
        except StoreUnavailable:
            known.update((Held(given[n].id, given[n].token), got) for n, got in answers.items())
            raise
        for n, each in enumerate(given):
            if n not in answers:
                answers[n] = known.pop(Held(each.id, each.token))
        return [answers[n] for n in range(len(given))]


def _grouped(things: Iterable[T], key: Callable[[T], int]) -> dict[int, list[T]]:
    groups: dict[int, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups
