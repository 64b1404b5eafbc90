"""The store of a simulated fleet: memory frontiers behind a network that loses packets."""

# One generic call stands for all methods, so the types of its answers are those of `Frontier`.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from orbweb.errors import RunLost, StoreUnavailable
from orbweb.frontier.base import (
    SLACK_MS,
    TASKS_HOST,
    Ack,
    Claim,
    Held,
    Nack,
    NackResult,
    NewRequest,
    Opened,
    Permit,
    RunConfig,
    SeedReply,
    SettledTask,
    Signal,
    Status,
    TaskLook,
    Tuning,
)
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.memory_state import MemoryShard, Place, Run
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.model.codec import decode
from orbweb.testing.simulator.history import SILENT, DeadPage
from orbweb.testing.virtual import Timeline

if TYPE_CHECKING:
    from orbweb.testing.simulator.world import Simulation

JOB = "simulation"
EPOCH = "epoch0"
LONGEST_LATE_MS = 20_000
SNAPSHOTS = 4


class Endpoint(Protocol):
    """A node, as its network sees it."""

    name: str
    alive: bool
    cut_until_ms: int
    skew_ms: int


class StoreFrontier(MemoryFrontier):
    """The memory frontier, as it is. Mutants are made of it."""

    caller_skew_ms = 0
    """How wrong the clock of the calling node is; only a mutant looks at it."""


class Server:
    """Runs the calls of all nodes on its shards, one at a time, while it is up."""

    def __init__(self, simulation: Simulation, frontier: type[StoreFrontier]) -> None:
        self.down_until_ms = 0
        self.generation = 0
        self.wall_offset_ms = 0
        self._simulation = simulation
        self._timeline: Timeline = simulation.timeline
        self._kind = frontier
        self._snapshots: list[bytes] = []
        self.frontiers = [
            self._attach(MemoryShard(self.wall_ms, new_epoch=_epoch))
            for _ in range(simulation.plan.shards)
        ]

    def wall_ms(self) -> int:
        """The server's wall clock, which can jump."""
        return self._timeline.now_ms + self.wall_offset_ms

    @property
    def is_down(self) -> bool:
        return self._timeline.now_ms < self.down_until_ms

    @property
    def run(self) -> Run | None:
        """The run, once a node has made it: of several shards the first part."""
        return next(self.parts(), None)

    def parts(self) -> Iterator[Run]:
        """What each shard has of the run."""
        for frontier in self.frontiers:
            run = frontier.shard.runs.get(frontier._base_of(EPOCH))
            if run is not None:
                yield run

    def pending(self) -> set[str]:
        """Names of what is not finished, on its way to another shard included."""
        found: set[str] = set()
        for run in self.parts():
            found.update(run.tasks, (request.id for request in run.outbox))
            found.update(f"{task}@open" for task in run.of_tasks.living)
        return found

    def execute(self, node: Endpoint, name: str, args: tuple[Any, ...], shard: int = 0) -> Any:
        """Do one call of a node and give its answer."""
        frontier = self.frontiers[shard]
        frontier.caller_skew_ms = node.skew_ms
        answer = _result_of(getattr(frontier, name)(*args))
        if name == "settled" and (answer or len(self.frontiers) > 1):
            self._snapshots.clear()  # what the server has called durable cannot roll back
        self._simulation.note_answer(node, name, args, answer)
        return answer

    def stop(self, operator: Endpoint) -> None:
        """`orbweb stop`: of several shards none knows that this was all, so it looks."""
        self.execute(operator, "stop", ())
        if len(self.frontiers) > 1 and self.run is not None and not self.pending():
            self.execute(operator, "close", (self.run.seq,))

    def owner(self, id: str) -> str:
        """The token that holds a request now; empty when nobody does."""
        for run in self.parts():
            task = run.tasks.get(id)
            if task and task.place is Place.LEASED:
                return task.token
        return ""

    def dead_pages(self) -> dict[str, DeadPage]:
        """The dead letters by page; of several of a page one that gave no answer."""
        pages: dict[str, DeadPage] = {}
        for buried in (each for run in self.parts() for each in run.dead.values()):
            if buried.task.host == TASKS_HOST:
                continue
            name = decode(buried.task.payload).url.rpartition("/")[2]
            if name not in pages or pages[name].reason not in SILENT:
                pages[name] = DeadPage(buried.reason, buried.error, buried.tries)
        return pages

    def dead_errands(self) -> set[str]:
        """Ids of the dead letters that are tasks, or ends of tasks."""
        return {
            id
            for run in self.parts()
            for id, buried in run.dead.items()
            if buried.task.host == TASKS_HOST
        }

    def left_of(self, task: str) -> tuple[int, int]:
        """How many requests of a task are pending, and how many are dead letters."""
        left = sum(id.startswith(f"{task}.") for id in self.pending())
        dead = sum(id.startswith(f"{task}.") for run in self.parts() for id in run.dead)
        return left, dead

    # -- loss of the last writes

    def snapshot(self) -> None:
        """Remember this state: a crash may bring it back."""
        shards = [frontier.shard for frontier in self.frontiers]
        for shard in shards:
            shard.now_ms = _no_clock
        self._snapshots.append(pickle.dumps(shards))
        del self._snapshots[:-SNAPSHOTS]
        for shard in shards:
            shard.now_ms = self.wall_ms

    def roll_back(self) -> bool:
        """Return to an older state, as a server that lost its last writes; False without one."""
        if not self._snapshots or self.run is None:
            return False
        chosen = self._timeline.rng.randrange(len(self._snapshots))
        shards: list[MemoryShard] = pickle.loads(self._snapshots[chosen])
        del self._snapshots[chosen + 1 :]
        for number, shard in enumerate(shards):
            old = self.frontiers[number].shard
            shard.now_ms = self.wall_ms
            self.frontiers[number] = self._attach(shard)
            self._simulation.mutant.on_rollback(old, shard)
        self.generation += 1
        return True

    def _attach(self, shard: MemoryShard) -> StoreFrontier:
        frontier = self._kind(shard, JOB, shards=self._simulation.plan.shards)
        frontier._base = frontier._base_of(EPOCH)
        return frontier


def _epoch() -> str:
    """One name for the one run, so that every simulation of a seed is the same."""
    return EPOCH


def _no_clock() -> int:
    raise AssertionError("a snapshot has no clock")


def _result_of(coroutine: Any) -> Any:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the memory frontier waited")


class Network:
    """Carries calls to the server: late, twice, or not at all."""

    def __init__(self, simulation: Simulation, server: Server) -> None:
        self._server = server
        self._timeline = self.timeline = simulation.timeline
        self._plan = simulation.plan
        self._faults = simulation.plan.faults

    async def call(self, node: Endpoint, name: str, args: tuple[Any, ...], shard: int = 0) -> Any:
        """One call; raises `StoreUnavailable` after the timeout when no answer comes back."""
        answer = asyncio.get_running_loop().create_future()
        timeline, faults = self._timeline, self._faults
        if not node.alive:  # killed a moment ago, in the same turn of its loop
            return await answer
        if self._is_cut(node):
            refused = self._server.is_down and timeline.rng.random() < 0.5
            self._fail(node, answer, self._latency() if refused else self._plan.store_timeout_ms)
            return await answer
        timeline.call_in(self._plan.store_timeout_ms, self._give_up, node, answer)
        args = tuple(list(each) if isinstance(each, list) else each for each in args)
        luck = timeline.rng.random()
        if luck < faults.late:
            self._repeat_later(node, name, args, shard)
        elif luck >= faults.late + faults.drop:
            timeline.call_in(self._latency(), self._arrive, node, name, args, answer, shard)
        return await answer

    def _latency(self) -> int:
        return self._timeline.rng.randint(1, self._faults.latency_ms)

    def _is_cut(self, node: Endpoint) -> bool:
        return self._server.is_down or self._timeline.now_ms < node.cut_until_ms

    def _arrive(
        self,
        node: Endpoint,
        name: str,
        args: tuple[Any, ...],
        answer: asyncio.Future[Any],
        shard: int,
    ) -> None:
        if self._is_cut(node):
            return
        result: Any
        try:
            result = self._server.execute(node, name, args, shard)
        except RunLost as error:
            result = error
        if self._timeline.rng.random() < self._faults.duplicate:
            self._repeat_later(node, name, args, shard)
        if self._timeline.rng.random() >= self._faults.drop:
            self._timeline.call_in(self._latency(), self._deliver, node, answer, result)

    def _deliver(self, node: Endpoint, answer: asyncio.Future[Any], result: Any) -> None:
        if node.alive and not self._is_cut(node):
            answer.get_loop().call_soon(_settle, answer, result)

    def _give_up(self, node: Endpoint, answer: asyncio.Future[Any]) -> None:
        if node.alive and not answer.done():
            error = StoreUnavailable("no answer in time")
            answer.get_loop().call_soon(_settle, answer, error)

    def _fail(self, node: Endpoint, answer: asyncio.Future[Any], delay_ms: int) -> None:
        self._timeline.call_in(delay_ms, self._give_up, node, answer)

    def _repeat_later(self, node: Endpoint, name: str, args: tuple[Any, ...], shard: int) -> None:
        """The packet waits somewhere and arrives much later, unless the server's life ended."""
        if name in ("open", "open_part", "stop"):
            return
        generation = self._server.generation

        def arrive() -> None:
            if not self._server.is_down and self._server.generation == generation:
                with suppress(RunLost):
                    self._server.execute(node, name, args, shard)

        self._timeline.call_in(self._timeline.rng.randint(1, LONGEST_LATE_MS), arrive)


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)


class LossyFrontier:
    """A node's connection to a shard. See `Frontier`, `RunControl` and `ShardControl`."""

    def __init__(self, network: Network, node: Endpoint, shard: int = 0) -> None:
        self.network = network
        self.node = node
        self.shard = shard

    async def call(self, name: str, *args: Any) -> Any:
        return await self.network.call(self.node, name, args, self.shard)

    def attach(self, epoch: str) -> None:
        """There is one run only."""

    async def open(self, config: RunConfig) -> Opened:
        return await self.call("open", config)

    async def tune(self, tuning: Tuning) -> bool:
        return await self.call("tune", tuning)

    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        return await self.call("claim", node, seq, want, lease_ms)

    async def renew(
        self, node: str, lease_ms: int, held: Sequence[Held], beat: bytes = b""
    ) -> tuple[list[Held], bool]:
        return await self.call("renew", node, lease_ms, held, beat)

    async def fetched(self, held: Sequence[Held]) -> None:
        await self.call("fetched", held)

    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        return await self.call("ack", acks)

    async def emit(self, id: str, token: str, step: int, children: Sequence[NewRequest]) -> bool:
        return await self.call("emit", id, token, step, children)

    async def nack(self, nacks: Sequence[Nack]) -> list[NackResult]:
        return await self.call("nack", nacks)

    async def permit(self, id: str, token: str, mark: int, slack_ms: int = SLACK_MS) -> Permit:
        return await self.call("permit", id, token, mark, slack_ms)

    async def report(self, signals: Sequence[Signal]) -> None:
        await self.call("report", signals)

    async def hold_off(self, pauses: Sequence[tuple[str, int]]) -> None:
        await self.call("hold_off", pauses)

    async def visit(self, id: str, token: str, fingerprint: int, host: str = "") -> bool | None:
        return await self.call("visit", id, token, fingerprint, host)

    async def recover(self) -> int:
        return await self.call("recover")

    async def seed_claim(self, node: str, seq: int, lease_ms: int) -> SeedReply:
        return await self.call("seed_claim", node, seq, lease_ms)

    async def seed_push(
        self,
        token: str,
        batch: int,
        final: bool,
        requests: Sequence[NewRequest],
        refused: Sequence[tuple[str, int]] = (),
    ) -> SeedReply:
        return await self.call("seed_push", token, batch, final, requests, refused)

    async def add(self, requests: Sequence[NewRequest]) -> int:
        return await self.call("add", requests)

    async def stop(self) -> None:
        await self.call("stop")

    async def status(self) -> Status:
        return await self.call("status")

    async def settled(self) -> bool:
        return await self.call("settled")

    async def redrive(self, ids: Sequence[str], *, drop: bool = False) -> int:
        return await self.call("redrive", ids)

    async def open_part(self, config: RunConfig, whole: Opened) -> None:
        await self.call("open_part", config, whole)

    async def lay(self) -> None:
        await self.call("lay")

    async def outbox(self, limit: int) -> list[NewRequest]:
        return await self.call("outbox", limit)

    async def deliver(self, requests: Sequence[NewRequest]) -> int:
        return await self.call("deliver", requests)

    async def trim(self, requests: Sequence[NewRequest]) -> None:
        await self.call("trim", requests)

    async def close(self, version: int) -> bool:
        return await self.call("close", version)

    async def reopen(self) -> None:
        await self.call("reopen")

    async def take_tasks(
        self, token: str, batch: int, final: bool, most: int, key: str
    ) -> SeedReply:
        return await self.call("take_tasks", token, batch, final, most, key)

    async def open_tasks(self) -> list[tuple[str, bytes]]:
        return await self.call("open_tasks")

    async def idle_tasks(self, limit: int) -> list[str]:
        return await self.call("idle_tasks", limit)

    async def look_at_tasks(self, tasks: Sequence[str]) -> list[TaskLook]:
        return await self.call("look_at_tasks", tasks)

    async def settle_tasks(self, settled: Sequence[SettledTask]) -> list[bool]:
        return await self.call("settle_tasks", settled)


def connect(
    network: Network,
    node: Endpoint,
    part: type[LossyFrontier],
    whole: type[ShardedFrontier],
    shards: int,
) -> Any:
    """A node's connection to a run that is spread over so many shards."""
    parts = [part(network, node, number) for number in range(shards)]
    if shards == 1:
        return parts[0]
    return whole(parts, clock=network.timeline.seconds, new_name=lambda: node.name)
