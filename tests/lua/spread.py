"""The machine once more, with a run that is spread over shards, and a part of another one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from tests.lua.machine import RARE, FrontierMachine, codes, configs, nodes, recent, some_recent
from tests.lua.twins import SHARDS, distant_request, new_request

from orbweb.errors import RunLost
from orbweb.frontier.base import (
    HOLD_ID,
    SEED_ID,
    Ack,
    NewRequest,
    Opened,
    RunConfig,
    RunState,
    Status,
)

distant = st.lists(st.integers(0, 5), max_size=3)
spread_runs = st.just(2)
PART = 3


class SpreadMachine(FrontierMachine):
    """Run 2 is led from this shard, run 3 from another: here is only its part."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[NewRequest] = []

    @initialize(config=configs)
    def start_part(self, config: RunConfig) -> None:
        self.open_part(config, -1, False)

    @rule(
        config=configs,
        later_ms=st.sampled_from([-500, 0, 0, 500]),
        laid=st.booleans(),
    )
    def open_part(self, config: RunConfig, later_ms: int, laid: bool) -> None:
        """A part of a run that was started sooner or later than the one that is there, or then."""
        there = self.memory(PART)
        started = max(1, there.started + later_ms) if there else 1_000
        whole = Opened(RunState.RUNNING, f"w{started}", Status(RunState.RUNNING), laid)
        whole = replace(whole, status=replace(whole.status, started_at_ms=started))
        answer = self.twins.open_part(PART, config, whole)
        if answer is RunLost:
            self.note("part lost")
        elif there and there.base != self.memory(PART).base:
            self.note("part of a later run")

    def away(self, run: int, codes: list[int]) -> list[NewRequest]:
        return [distant_request(code) for code in codes] if SHARDS[run] > 1 else []

    @rule(
        run=spread_runs,
        which=recent,
        how=st.sampled_from(["ack", "emit", "add", "seed"]),
        children=codes,
        others=distant,
    )
    def send_away(
        self, run: int, which: int, how: str, children: list[int], others: list[int]
    ) -> None:
        run = self.run(run)
        found = [*self.away(run, others), *(new_request(code) for code in children)]
        if how == "add":
            self.twins.step(run, "add", found)
        elif how == "seed":
            token, batch = self.seed_token[run], self.cursor(run) + 1
            self.twins.step(run, "seed_push", token, batch, False, found)
        for id, token in self.pick(run, [which]):
            if how == "ack":
                self.twins.step(run, "ack", [Ack(id, token, "done", 0, found)])
            elif how == "emit":
                step = self.emitted(run, id, token) + 1
                self.twins.step(run, "emit", id, token, step, found)

    @rule(run=spread_runs, limit=st.integers(1, 3), which=some_recent)
    def forward(self, run: int, limit: int, which: list[int]) -> None:
        """Look into the outbox, and trim some of what was seen there once."""
        run = self.run(run)
        rows = self.twins.step(run, "outbox", limit)
        if rows is RunLost:
            return
        known = self.rows = [*self.rows[-6:], *rows]
        trimmed = list(dict.fromkeys(known[n % len(known)] for n in which if known))
        before = self.memory(run)
        self.counts["rows trimmed"] += sum(row in before.outbox for row in trimmed) if before else 0
        self.twins.step(run, "trim", trimmed)

    @rule(requests=codes)
    def deliver(self, requests: list[int]) -> None:
        run = self.run(2)
        memory = self.memory(run)
        was_done = memory is not None and memory.state is RunState.DONE
        added = self.twins.step(run, "deliver", [new_request(code) for code in requests])
        if was_done and added is not RunLost and added:
            self.note("deliver reopened")

    @rule(
        run=spread_runs,
        late=st.sampled_from([0, 0, 1]),
        what=st.sampled_from(["close"] * 3 + ["lay", "reopen"]),
    )
    def lead(self, run: int, late: int, what: str) -> None:
        run = self.run(run)
        memory = self.memory(run)
        if what != "close":
            self.twins.step(run, what)
        elif memory is not None:
            answer = self.twins.step(run, "close", memory.seq - late)
            self.note(f"close {answer}")

    @rule(node=nodes, others=distant, again=st.sampled_from([False, False, True]))
    def end_of_a_spread_run(self, node: str, others: list[int], again: bool) -> None:
        """Steer to where walks rarely come: nothing left here, nothing on its way."""
        run = self.run(2)
        if self.memory(run) is None or SHARDS[run] == 1:
            return
        if HOLD_ID in self.memory(run).tasks:
            self.twins.step(run, "stop")
        for _ in range(9):
            if not self.memory(run).pending:
                break
            self.twins.wall += 1_000
            if SEED_ID in self.memory(run).tasks:
                self.take_seeding(run, node)
                self.push_seeds(run, self.cursor(run) + 1, True, [])
            self.seq[node] += 1
            answer = self.claim_as(run, node, self.seq[node], 9)
            acks = [Ack(*lease.held, "done") for lease in answer.leases]
            self.twins.step(run, "ack", acks)
            self.twins.step(run, "trim", list(self.memory(run).outbox))
        for late in (1, 0):
            answer = self.twins.step(run, "close", self.memory(run).seq - late)
            self.note(f"close {answer}")
        if again and self.memory(run).state is RunState.DONE:
            self.twins.step(run, "reopen")
            self.note("reopened")
        if others:
            self.twins.step(run, "add", self.away(run, others))


SPREAD_RARE = (
    *RARE,
    "part lost",
    "part of a later run",
    "rows trimmed",
    "deliver reopened",
    "reopened",
    "close True",
    "close False",
)
"""See `RARE`."""
