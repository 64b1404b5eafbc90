"""A node of a simulated fleet: claims, keeps its turns, sends, tells the store. No engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fleet.origin import Answer, Origin
from tests.fleet.store import Done, Store
from tests.fleet.timeline import Timeline

from orbweb.frontier.base import (
    SLACK_MS,
    Ack,
    Claim,
    Held,
    Lease,
    Nack,
    NewRequest,
    PermitCode,
    Signal,
)

IDLE_MS = 250.0
SLACK_GROWTH = 4
MOST_SLACK_MS = 1000
LEAST_CLAIM_MS = 10.0
IDLE_POLL_MS = 250.0
LINGER_MS = 4.0
FETCHED_LINGER_MS = 5.0
BEAT_MS = 3_000.0
REPORT_MS = 250.0
URGENT_MS = 50.0
BATCH = 200
CLAIM_BATCH = 100


@dataclass(slots=True, eq=False)
class Step:
    """The work on one lease, and its host's turn: may be sent from `start` to `end`."""

    lease: Lease
    asked: float
    start: float
    end: float
    mark: int
    slack: int = SLACK_MS
    state: str = "waiting"
    sent: float = 0.0
    fetched_at: float = 0.0


@dataclass(frozen=True, slots=True)
class World:
    """What all nodes of a fleet share."""

    timeline: Timeline
    rng: random.Random
    store: Store
    origin: Origin
    lease_ms: int
    children: Callable[[Lease], Sequence[NewRequest]]
    slow_share: float = 0.05
    """Pages whose items take long to store."""
    retry_ms: int = 1_000
    """Backoff of what failed."""


class Node:
    """One process. `kill`, `freeze` and `leave` are what happens to it."""

    def __init__(self, world: World, name: str, job: str, concurrency: int) -> None:
        self.name = name
        self.job = job
        self.alive = True
        self.leaving = False
        self.started = world.timeline.now
        self._world = world
        self._timeline = world.timeline
        self._rng = world.rng
        self._concurrency = concurrency
        self._frozen_until = 0.0
        self._seq = 0
        self._busy = False
        self._wake_at = float("inf")
        self._claim_at = 0.0
        self._least_at = 0.0
        self._flush_at = float("inf")
        self._fetching = 0
        self._steps: dict[Held, Step] = {}
        self._acks: list[Ack] = []
        self._nacks: list[Nack] = []
        self._fetched: dict[Held, float] = {}
        self._tallies: dict[str, list[float]] = {}
        self._urgent = False
        self._told_at = float("-inf")
        self._report_due = False
        self._holds: dict[str, int] = {}
        self._void: dict[str, float] = {}
        self.asks = 0
        self.later = 0
        self.lost = 0
        self.late = 0
        self._pump()
        self._after(self._rng.uniform(0, 200), self._beat)

    # -- what happens to it

    def kill(self) -> None:
        self.alive = False

    def freeze(self, ms: float) -> None:
        self._frozen_until = max(self._frozen_until, self._timeline.now + ms)

    def leave(self) -> None:
        """Finish what is sent, give back the rest, and go."""
        self.leaving = True
        for step in [each for each in self._steps.values() if each.state == "waiting"]:
            self._give_back(step)
        self._pump()

    # -- time

    def _after(self, ms: float, act: Callable[..., None], *args: Any) -> None:
        self._timeline.after(ms, self._live, act, args)

    def _live(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        """A dead node does nothing any more, a stopped one all of it when it goes on."""
        if not self.alive:
            return
        if self._frozen_until > self._timeline.now:
            self._timeline.at(self._frozen_until, self._live, act, args)
        else:
            act(*args)

    def _call(self, name: str, args: Sequence[Any], done: Done) -> None:
        """Call the store until it answers."""

        def answered(answer: Any) -> None:
            self._live(done, (answer,))

        def failed() -> None:
            self._live(again, ())

        def again() -> None:
            self._world.store.call(self.job, name, args, answered, failed)

        again()

    # -- the pump: one call at a time

    def _wake(self, at: float) -> None:
        if at < self._wake_at:
            self._wake_at = at
            self._after(at - self._timeline.now, self._woken, at)

    def _woken(self, at: float) -> None:
        if at == self._wake_at:
            self._wake_at = float("inf")
            self._pump()

    def _pump(self) -> None:
        if self._busy:
            return
        now = self._timeline.now
        want = 0 if self.leaving else min(self._concurrency - self._fetching, CLAIM_BATCH)
        full = want * 2 >= self._concurrency
        due = [held for held, at in self._fetched.items() if at <= now] if self._fetched else []
        if due:
            for held in due:
                del self._fetched[held]
            self._tell("fetched", due, lambda answer: None)
        elif self._acks and (now >= self._flush_at or full or len(self._acks) >= BATCH):
            acks, self._acks = self._acks[:BATCH], self._acks[BATCH:]
            self._tell("ack", acks, lambda answer: self._acked(acks, answer))
        elif self._nacks:
            nacks, self._nacks = self._nacks[:BATCH], self._nacks[BATCH:]
            self._tell("nack", nacks, lambda answer: None)
        elif want > 0 and now >= max(self._claim_at, self._least_at):
            self._seq += 1
            args = (self.name, self._seq, want, self._world.lease_ms)
            self._busy = True
            self._call("claim", args, lambda claim: self._claimed(now, want, claim))
        else:
            if want > 0:
                self._wake(max(self._claim_at, self._least_at))
            if self._acks:
                self._wake(self._flush_at)
            if self._fetched:
                self._wake(min(self._fetched.values()))
            if self.leaving and not self._steps and not self._acks:
                self.alive = False

    def _tell(self, name: str, batch: Sequence[Any], then: Done) -> None:
        def told(answer: Any) -> None:
            self._busy = False
            self._claim_at = min(self._claim_at, self._timeline.now)
            then(answer)
            self._pump()

        self._busy = True
        self._call(name, (batch,), told)

    def _claimed(self, sent: float, want: int, claim: Claim) -> None:
        now = self._timeline.now
        self._busy = False
        for lease in claim.leases:
            length = SLACK_MS if lease.mark else IDLE_MS
            asked = sent + lease.start_ms
            step = Step(lease, sent, now + lease.start_ms, asked + length, lease.mark)
            self._steps[lease.held] = step
            self._fetching += 1
            self._look(step)
        self._claim_at = now
        if len(claim.leases) < want:
            pause = IDLE_POLL_MS if claim.wait_ms < 0 else min(IDLE_POLL_MS, claim.wait_ms)
            self._claim_at = now + pause
            self._least_at = now + LEAST_CLAIM_MS
        self._pump()

    def _acked(self, acks: Sequence[Ack], answer: Sequence[bool]) -> None:
        for ack, kept in zip(acks, answer, strict=True):
            self._steps.pop(Held(ack.id, ack.token), None)
            self.lost += not kept

    # -- one lease

    def _look(self, step: Step) -> None:
        """Send if it is the host's turn; else wait for it, or ask for another."""
        if step.state != "waiting":
            return
        now, host = self._timeline.now, step.lease.host
        if host in self._holds:
            self._after(1.0, self._look, step)
            return
        if now > step.end or self._void.get(host, float("-inf")) >= step.asked:
            self.asks += 1
            if now > step.end and step.mark > 0:
                step.slack = min(step.slack * SLACK_GROWTH, MOST_SLACK_MS)
            args = (step.lease.id, step.lease.token, step.mark, step.slack)
            self._call("permit", args, lambda permit: self._permitted(step, now, permit))
        elif step.start > now:
            self._after(step.start - now + self._rng.uniform(0.0, 1.3), self._look, step)
        else:
            self._after(self._rng.uniform(0.02, 0.2), self._send, step, now)

    def _permitted(self, step: Step, asked: float, permit: Any) -> None:
        if step.state != "waiting":
            return
        if permit.code is PermitCode.LOST:
            self._drop(step)
        elif permit.code is PermitCode.LATER:
            self.later += 1
            self._give_back(step)
        else:
            now = self._timeline.now
            length = step.slack if permit.mark else IDLE_MS
            step.asked, step.start = asked, now + permit.start_ms
            step.end, step.mark = asked + permit.start_ms + length, permit.mark
            self._look(step)

    def _send(self, step: Step, looked: float) -> None:
        if step.state != "waiting":
            return
        now, lease, world = self._timeline.now, step.lease, self._world
        step.state, step.sent = "sent", now
        blind = now - looked > SLACK_MS
        if step.mark and now > step.end:
            self.late += 1
            self._call("permit", (lease.id, lease.token, step.mark), lambda permit: None)
        answer = world.origin.fetch(lease.id, lease.host, now, self.name, self.job, blind)
        self._after(answer.ms, self._arrived, step, answer)

    def _arrived(self, step: Step, answer: Answer) -> None:
        if step.state != "sent":
            return
        self._note(step, answer)
        if answer.retry_after_ms >= 0:
            host = step.lease.host
            self._holds[host] = self._holds.get(host, 0) + 1
            pauses = [(host, answer.retry_after_ms)]
            self._call("hold_off", (pauses,), lambda told: self._held_off(step))
        elif not answer.healthy:
            self._give_back(step, self._world.retry_ms)
        else:
            self._free(step)
            step.state = "fetched"
            now = self._timeline.now
            self._fetched[step.lease.held] = now + FETCHED_LINGER_MS
            slow = self._rng.random() < self._world.slow_share
            self._after(self._rng.uniform(*((200, 500) if slow else (1, 3))), self._settle, step)
            self._pump()

    def _held_off(self, step: Step) -> None:
        host = step.lease.host
        self._holds[host] -= 1
        if not self._holds[host]:
            del self._holds[host]
        self._void[host] = self._timeline.now
        self._give_back(step)

    def _settle(self, step: Step) -> None:
        if step.state != "fetched":
            return
        step.state = "settled"
        lease = step.lease
        self._fetched.pop(lease.held, None)
        children = self._world.children(lease)
        self._acks.append(Ack(lease.id, lease.token, "done", 0, children))
        if len(self._acks) == 1:
            self._flush_at = self._timeline.now + LINGER_MS
        self._pump()

    def _free(self, step: Step) -> None:
        self._fetching -= 1

    def _give_back(self, step: Step, backoff_ms: int = 0) -> None:
        """Counted when it was sent and failed."""
        held = step.lease.held
        self._free(step)
        self._steps.pop(held, None)
        step.state = "gone"
        counted = backoff_ms > 0
        self._nacks.append(Nack(*held, backoff_ms, counted, reason="timeout"))
        self._pump()

    def _drop(self, step: Step) -> None:
        if step.state in ("waiting", "sent"):
            self._free(step)
        step.state = "gone"
        self.lost += 1
        self._steps.pop(step.lease.held, None)
        self._fetched.pop(step.lease.held, None)
        self._pump()

    # -- beats and reports

    def _beat(self) -> None:
        held = list(self._steps)
        args = (self.name, self._world.lease_ms, held, b"")
        self._call("renew", args, self._renewed)

    def _renewed(self, answer: tuple[list[Held], bool]) -> None:
        for held in answer[0]:
            step = self._steps.get(held)
            if step is not None and step.state != "settled":
                self._drop(step)
        self._after(BEAT_MS, self._beat)

    def _note(self, step: Step, answer: Answer) -> None:
        tally = self._tallies.setdefault(step.lease.host, [0, 0, 0, 0, 0.0])
        tally[4] += self._timeline.now - step.sent
        if answer.healthy:
            tally[0] += 1
            tally[2] = 0
        else:
            tally[1] += 1
            tally[2] += 1
            tally[3] += answer.refused
            self._urgent = True
        self._schedule_report()

    def _schedule_report(self) -> None:
        at = self._told_at + (URGENT_MS if self._urgent else REPORT_MS)
        pause = at - self._timeline.now
        if pause <= 0:
            self._report()
        elif not self._report_due or self._urgent:
            self._report_due = True
            self._after(pause, self._report)

    def _report(self) -> None:
        self._report_due = False
        if not self._tallies:
            return
        self._told_at, self._urgent = self._timeline.now, False
        signals = [
            Signal(host, int(good), int(bad), int(streak), int(refused), round(ms))
            for host, (good, bad, streak, refused, ms) in self._tallies.items()
        ]
        self._tallies = {}
        ignore: Done = lambda answer: None  # noqa: E731
        self._world.store.call(self.job, "report", (signals,), ignore, lambda: None)
