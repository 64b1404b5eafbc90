"""One simulated run: site, store, sink and nodes on a timeline, and the faults that befall them."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

from orbweb.engine import engine as engine_module
from orbweb.engine import step as step_module
from orbweb.frontier.base import HOLD_ID, TASKS_HOST, Held, Lease, NackResult
from orbweb.model.codec import decode
from orbweb.model.reasons import Reason
from orbweb.testing.simulator.checker import Violation, check
from orbweb.testing.simulator.history import Event, Record, Start, Told
from orbweb.testing.simulator.mutants import NO_MUTANT, Mutant
from orbweb.testing.simulator.node import Node
from orbweb.testing.simulator.plan import LEASE_MS, Plan, Weather, make_plan, with_tasks
from orbweb.testing.simulator.server import Endpoint, Network, Server
from orbweb.testing.simulator.sink import Sink
from orbweb.testing.simulator.site import Page, make_site
from orbweb.testing.simulator.tasks import LIST, Rows, waiting
from orbweb.testing.virtual import Livelock, Timeline

EMIT_CHUNK = 8
TICK_SECONDS = 2.0
NODE_EXITS = {0, 3}


class Visit(NamedTuple):
    """A fetch that goes on at the site."""

    node: Node
    lease: Held
    answer: asyncio.Future[int]


class Simulation:
    """A run in virtual time. Build one, call `run` once."""

    def __init__(self, plan: Plan, rng: random.Random, mutant: Mutant = NO_MUTANT) -> None:
        self.plan = plan
        self.mutant = mutant
        self.timeline = Timeline(rng)
        self.site = make_site(
            rng, plan.pages, poison=plan.poison, max_retries=plan.config.max_retries
        )
        self.site.apart = plan.tasks is not None and not plan.shares_dedup
        self.rows = Rows(len(self.site.seeds) if plan.tasks else 0, self.timeline)
        self.task_spider = mutant.tasks
        self.server = Server(self, mutant.server)
        self.server.frontiers[0].shard.task_lists[LIST] = waiting(self)
        self.network = Network(self, self.server)
        self.sink = Sink(self)
        self.record = Record(plan, self.site)
        self.nodes: dict[int, Node] = {}
        self._graveyard: list[Node] = []
        self._finished: set[int] = set()
        self._incarnations = 0
        self._names: dict[str, str] = {}
        self._visits: Counter[str] = Counter()
        self._going_on: dict[str, list[Visit]] = {}
        self._seed_errors = plan.seed_errors
        self._operator_ended = False
        self._concluded = False
        self._end_ms = self.timeline.now_ms + plan.bound_ms
        self._chaos_until_ms = self.timeline.now_ms + plan.chaos_ms

    def run(self) -> Record:
        """Run until every node has ended or the bound has passed, and give the history."""
        timeline, record = self.timeline, self.record
        for slot in range(self.plan.nodes):
            timeline.call_in(timeline.rng.randint(0, 200), self._boot, slot)
        timeline.call_in(500, self._chaos)
        if self.plan.rolls_back:
            timeline.call_in(1000, self._snapshot)
        timeline.call_in(1000, self._operate)
        try:
            record.ended = timeline.run(
                self._end_ms, lambda: len(self._finished) == self.plan.nodes
            )
        except Livelock as error:
            self.log("livelock", detail=str(error))
        finally:
            self._conclude()
        return record

    def _conclude(self) -> None:
        record, run = self.record, self.server.run
        record.end_ms = self.timeline.now_ms
        record.dead = self.server.dead_pages()
        record.dead_errands = self.server.dead_errands()
        record.rows = self.rows.states
        if run is not None:
            record.state = str(run.state)
            record.pending = len(self.server.pending())
            record.reaped = sum(part.counters["reaped"] for part in self.server.parts())
            record.items = sum(part.counters["items"] for part in self.server.parts())
        nodes = [*self.nodes.values(), *self._graveyard]
        loops = [loop for node in nodes for loop in (node.loop, node.keeper_loop)]
        for loop in loops:
            for text in loop.errors:
                self.log("loop_error", loop.name, detail=text)
        self._concluded = True
        for node in nodes:
            node.alive = False
        for loop in loops:
            loop.unwind()
        for loop in loops:
            loop.close()

    def log(self, kind: str, node: str = "", subject: str = "", detail: Any = None) -> None:
        """Add a fact to the history."""
        if not self._concluded:
            self.record.events.append(Event(self.timeline.now_ms, kind, node, subject, detail))

    # -- nodes

    def _boot(self, slot: int) -> None:
        self._incarnations += 1
        node = Node(self, slot, self._incarnations)
        self.nodes[slot] = node
        self.log("boot", node.name)

    def _reboot_later(self, slot: int) -> None:
        self.timeline.call_in(self.timeline.rng.randint(500, 8000), self._boot, slot)

    def kill(self, node: Node, why: str = "crash") -> None:
        """SIGKILL, and a new process in its place after a while."""
        if node.alive:
            self.log("crash", node.name, why)
            self._bury(node)
            self._reboot_later(node.slot)

    def _bury(self, node: Node) -> None:
        node.end()
        self.nodes.pop(node.slot, None)
        self._graveyard.append(node)

    def on_exit(self, node: Node, code: int, *, stopped: bool) -> None:
        """A process has ended by itself: the last time, unless it was told to stop."""
        if node.stop_asked_ms is not None and node.disturbed_ms < node.stop_asked_ms:
            self.log("stop_took", node.name, detail=self.timeline.now_ms - node.stop_asked_ms)
        self._bury(node)
        ended = code == 75 and self._operator_ended and node.stop_asked_ms is None
        if (code in NODE_EXITS and not stopped) or ended:
            self._finished.add(node.slot)
        else:
            self._reboot_later(node.slot)

    def note_answer(self, node: Endpoint, name: str, args: tuple[Any, ...], answer: Any) -> None:
        """The server has answered a call."""
        if name == "claim":
            for lease in answer.leases:
                if lease.host == TASKS_HOST:
                    self._names[lease.id] = lease.id
                    self._note_errand(node, lease)
                    continue
                self._names[lease.id] = self.page_of(decode(lease.payload).url).name
        elif name == "ack":
            for ack, kept in zip(args[0], answer, strict=True):
                if kept:
                    self.log("acked", node.name, ack.id)
        elif name == "nack":
            for nack, result in zip(args[0], answer, strict=True):
                if nack.reason == Reason.TIMEOUT and result is not NackResult.LOST:
                    self.log("overdue", node.name, self._names[nack.id])

    def _note_errand(self, node: Endpoint, lease: Lease) -> None:
        task, _, what = lease.id.partition("@")
        if what:
            reason = lease.payload.partition(b"\n")[0].decode()
            self.log("told", node.name, task, Told(reason, *self.server.left_of(task)))

    # -- the site

    def page_of(self, url: str) -> Page:
        return self.site.pages[url.rpartition("/")[2]]

    def visit(self, node: Node, page: Page, lease: Held, answer: asyncio.Future[int]) -> None:
        """A request arrives at the site; `answer` gets the number of this visit."""
        if not node.alive:  # killed a moment ago, in the same turn of its loop
            return
        visit = Visit(node, lease, answer)
        going_on = self._going_on.setdefault(page.host, [])
        going_on.append(visit)
        overlap = sum(self._is_current(each) for each in going_on)
        facts = Start(lease.token, self._is_current(visit), overlap)
        self.log("start", node.name, page.name, facts)
        if page.poison:
            going_on.remove(visit)
            self.kill(node, page.name)
            return
        self.timeline.call_in(page.duration_ms, self._respond, page, visit)

    def _is_current(self, visit: Visit) -> bool:
        return visit.node.alive and self.server.owner(visit.lease.id) == visit.lease.token

    def _respond(self, page: Page, visit: Visit) -> None:
        self._going_on[page.host].remove(visit)
        answer = visit.answer
        if not visit.node.alive or answer.done():
            return
        self._visits[page.name] += 1
        number = self._visits[page.name]
        self.log("end", visit.node.name, page.name)

        def deliver() -> None:
            if not answer.done():
                answer.set_result(number)

        answer.get_loop().call_soon(deliver)

    def next_seed_error(self, seeds: int) -> int:
        """At which seed `start_requests` raises this time; -1 for never."""
        if self._seed_errors <= 0:
            return -1
        self._seed_errors -= 1
        return self.timeline.rng.randrange(seeds)

    # -- faults

    def _snapshot(self) -> None:
        # A shard that has nothing of the run any more has lost its data, not its last writes: nodes
        # say so and end.
        if len(list(self.server.parts())) == self.plan.shards:
            self.server.snapshot()
        self.timeline.call_in(self.timeline.rng.randint(300, 2500), self._snapshot)

    def _operate(self) -> None:
        """The operator of a resident run stops it when there is nothing left to do."""
        run = self.server.run
        if run is not None and self.server.pending() == {HOLD_ID} and not self.server.is_down:
            self._operator_ended = True
            self.server.stop(_OPERATOR)
            self.log("operator_end")
        self.timeline.call_in(1000, self._operate)

    def _chaos(self) -> None:
        rng, faults = self.timeline.rng, self.plan.faults
        if self.timeline.now_ms > self._chaos_until_ms:
            return
        self.timeline.call_in(rng.randint(500, 6000), self._chaos)
        kinds = (
            "crash",
            "pause",
            "wedge",
            "partition",
            "terminate",
            "operator_stop",
            "clock_jump",
            "outage",
            "rollback",
        )
        luck = rng.random()
        for kind in kinds:
            luck -= getattr(faults, kind)
            if luck < 0:
                getattr(self, f"_do_{kind}")()
                return

    def _victim(self) -> Node | None:
        slots = sorted(self.nodes)
        return self.nodes[self.timeline.rng.choice(slots)] if slots else None

    def _do_crash(self) -> None:
        node = self._victim()
        if node is not None:
            self.kill(node)

    def _do_pause(self) -> None:
        node, time = self._victim(), self.timeline.rng.choice([500, 4000, LEASE_MS * 2, 40_000])
        if node is not None:
            node.pause(time)
            self.log("pause", node.name, detail=time)

    def _do_wedge(self) -> None:
        node, time = self._victim(), self.timeline.rng.choice([500, 4000, LEASE_MS, 40_000])
        if node is not None:
            node.wedge(time)
            self.log("wedge", node.name, detail=time)

    def _do_partition(self) -> None:
        node, time = self._victim(), self.timeline.rng.choice([2000, 8000, 30_000])
        if node is not None:
            node.cut(time)
            self.log("partition", node.name, detail=time)

    def _do_terminate(self) -> None:
        node = self._victim()
        if node is not None:
            self.log("terminate", node.name)
            node.terminate()

    def _do_operator_stop(self) -> None:
        if self.server.run is not None and not self.server.is_down:
            self.server.stop(_OPERATOR)
            self.log("operator_stop")

    def _do_clock_jump(self) -> None:
        jump = self.timeline.rng.choice([-600_000, -5_000, 5_000, 600_000])
        self.server.wall_offset_ms += jump
        self.log("clock_jump", detail=jump)

    def _do_outage(self) -> None:
        time = self.timeline.rng.choice([3_000, 10_000, 60_000])
        self.server.down_until_ms = self.timeline.now_ms + time
        self.log("outage", detail=time)

    def _do_rollback(self) -> None:
        if self.server.roll_back():
            self.server.down_until_ms = self.timeline.now_ms + self.timeline.rng.randint(500, 4000)
            self.log("rollback")


class _Operator:
    name = "operator"
    alive = True
    cut_until_ms = 0
    skew_ms = 0


_OPERATOR = _Operator()


@contextmanager
def prepared(mutant: Mutant = NO_MUTANT) -> Iterator[None]:
    """Small chunks, slow ticks, no log lines, no garbage collection in the middle of a run."""
    collecting = gc.isenabled()
    disabled = logging.root.manager.disable
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(step_module, "EMIT_CHUNK", EMIT_CHUNK))
        stack.enter_context(mock.patch.object(engine_module, "TICK_SECONDS", TICK_SECONDS))
        for target, name, value in mutant.patches:
            stack.enter_context(mock.patch.object(target, name, value))
        logging.disable(logging.CRITICAL)
        gc.disable()
        try:
            yield
        finally:
            logging.disable(disabled)
            if collecting:
                gc.enable()


def simulate(
    seed: int,
    weather: Weather | None = None,
    mutant: Mutant = NO_MUTANT,
    shards: int = 1,
    *,
    tasks: bool = False,
) -> tuple[Record, list[Violation]]:
    """Run one seed and check its history. Call it inside `prepared()`."""
    rng = random.Random(seed)
    plan = make_plan(seed, rng, weather or mutant.weather)
    plan = replace(plan, shards=shards)
    plan = mutant.change(with_tasks(plan) if tasks or mutant.with_tasks else plan)
    record = Simulation(plan, rng, mutant).run()
    return record, check(record)
