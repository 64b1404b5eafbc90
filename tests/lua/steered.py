"""The machine once more, steered to what walks hardly ever come to by chance.

The search for mutants walks with it only at last: a rule more would spoil the seeds that it knows.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.lua.machine import nodes, runs
from tests.lua.tasks import TaskMachine
from tests.lua.twins import SHARDS, new_request

from orbweb.frontier.base import RunState


class SteeredMachine(TaskMachine):
    """Meets every event of `TASK_RARE` in more than one walk of two hundred."""

    @rule(run=runs, node=nodes, how=st.sampled_from(["add", "deliver", "deliver"]))
    def an_ended_run_is_given_more(self, run: int, node: str, how: str) -> None:
        run = self.run(run)
        self.to_its_end(run, node)
        memory = self.memory(run)
        if memory is None or memory.state is not RunState.DONE:
            return
        link = new_request(70)._replace(id=f"late{memory.seq}", fingerprint=None)
        added = self.twins.step(run, how, [link])
        self.note(f"{how} reopened" if added else f"{how} of nothing")

    def to_its_end(self, run: int, node: str) -> None:
        if SHARDS[run] > 1:
            self.end_of_a_spread_run(node, [], False)
        else:
            self.drain(run, node, False)

    @rule(run=runs, node=nodes)
    def an_ended_run_is_collected(self, run: int, node: str) -> None:
        run = self.run(run)
        self.to_its_end(run, node)
        memory = self.memory(run)
        if memory is not None and memory.state is RunState.DONE:
            self.open(run, memory.config)
            self.twins.wall += 60_000
            self.operate(run, "collect")
