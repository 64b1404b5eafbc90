"""The store of a simulated fleet: a frontier in memory or the real scripts, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from redis.exceptions import ResponseError
from tests.fleet.timeline import Timeline
from tests.lua.direct import DirectClient, run_now
from tests.servers import Server

from orbweb.frontier.base import NewRequest, RunConfig
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.memory_hosts import Record
from orbweb.frontier.memory_state import MemoryShard
from orbweb.frontier.scripts import TRANSITIONS, script
from orbweb.frontier.valkey import ValkeyFrontier

ONE_WAY_MS = 0.5, 2.5
TIMEOUT_MS = 500.0
ADD_BATCH = 500

Done = Callable[[Any], None]
Failed = Callable[[], None]


class _Waiting:
    def __await__(self) -> Generator[None, None, None]:
        yield


class PipelinedClient(DirectClient):
    """Calls go out when their time comes; an answer is read only when somebody needs it.

    So the server works while Python lives through the meantime.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server.socket)
        self._sent = 0
        self._read = 0
        self._early: dict[int, Any] = {}

    async def execute_command(self, *words: bytes | str | int) -> Any:
        self.send(*words)
        number, self._sent = self._sent, self._sent + 1
        await _Waiting()
        return self._answer_of(number)

    def _answer_of(self, number: int) -> Any:
        while self._read <= number:
            try:
                answer = self.answer()
            except ResponseError as error:
                answer = error
            self._early[self._read] = answer
            self._read += 1
        answer = self._early.pop(number)
        if isinstance(answer, ResponseError):
            raise answer
        return answer


class Store:
    """One frontier a job. A call takes effect when it arrives, its answer needs a while more.

    While the store is down calls take no effect, and answers that were under way are lost: the
    caller hears nothing until its timeout.
    """

    def __init__(self, timeline: Timeline, rng: random.Random) -> None:
        self.timeline = timeline
        self.rng = rng
        self.down = False
        self.calls = dict.fromkeys(TRANSITIONS, 0)
        self._outages = 0

    def frontier(self, job: str) -> Any:
        """The frontier of a job."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop what was started."""

    def now(self) -> int:
        return int(self.timeline.now)

    def open(self, job: str, config: RunConfig) -> None:
        frontier = self.frontier(job)
        run_now(frontier.open(config))
        reply = run_now(frontier.seed_claim("seeder", 1, config.lease_ms))
        run_now(frontier.seed_push(reply.token, 1, True, []))

    def add(self, job: str, requests: Sequence[NewRequest]) -> None:
        frontier = self.frontier(job)
        for first in range(0, len(requests), ADD_BATCH):
            run_now(frontier.add(requests[first : first + ADD_BATCH]))

    def pending(self, job: str) -> int:
        """Requests of the job that are not finished."""
        pending: int = run_now(self.frontier(job).status()).pending
        return pending

    def call(self, job: str, name: str, args: Sequence[Any], done: Done, failed: Failed) -> None:
        there, back = self.rng.uniform(*ONE_WAY_MS), self.rng.uniform(*ONE_WAY_MS)
        self.timeline.after(there, self._arrive, job, name, args, back, done, failed)

    def outage(self, ms: float) -> None:
        """Down for so long. Nothing that was done is forgotten."""
        self.down = True
        self._outages += 1
        self.timeline.after(ms, self._return)

    def _return(self) -> None:
        self.down = False

    def _arrive(
        self, job: str, name: str, args: Sequence[Any], back: float, done: Done, failed: Failed
    ) -> None:
        if self.down:
            self.timeline.after(TIMEOUT_MS, failed)
            return
        self.calls[name] += 1
        call = getattr(self.frontier(job), name)(*args)
        answer, waits = _begin(call)
        self.timeline.after(
            back, self._answer, call if waits else None, answer, self._outages, done, failed
        )

    def _answer(
        self,
        call: Coroutine[Any, Any, Any] | None,
        answer: Any,
        outages: int,
        done: Done,
        failed: Failed,
    ) -> None:
        if call is not None:
            answer, _ = _begin(call)
        if outages != self._outages:
            self.timeline.after(TIMEOUT_MS, failed)
        else:
            done(answer)


def _begin(call: Coroutine[Any, Any, Any]) -> tuple[Any, bool]:
    try:
        call.send(None)
    except StopIteration as end:
        return end.value, False
    return None, True


class MemoryStore(Store):
    """The frontier in memory."""

    def __init__(self, timeline: Timeline, rng: random.Random) -> None:
        super().__init__(timeline, rng)
        self._shard = MemoryShard(self.now)
        self._frontiers: dict[str, MemoryFrontier] = {}

    def frontier(self, job: str) -> Any:
        if job not in self._frontiers:
            self._frontiers[job] = MemoryFrontier(self._shard, job)
        return self._frontiers[job]

    def record(self, host: str) -> Record:
        """What is known of a host; a test may set what an operator would."""
        return self._shard.hosts.records.setdefault(host, {})


class ServerStore(Store):
    """The real scripts on a real server, which is told the time."""

    def __init__(self, timeline: Timeline, rng: random.Random) -> None:
        super().__init__(timeline, rng)
        self.server = Server("valkey")
        self.client = PipelinedClient(self.server)
        for name in TRANSITIONS:
            self.client.call("SCRIPT", "LOAD", script(name).source)
        self._frontiers: dict[str, ValkeyFrontier] = {}

    def frontier(self, job: str) -> Any:
        frontier = self._frontiers.get(job)
        if frontier is None:
            frontier = ValkeyFrontier(self.client, prefix="fleet", job=job)  # type: ignore[arg-type]
            self._frontiers[job] = frontier
        frontier.caller.time = self.now()
        return frontier

    def cpu_seconds(self) -> float:
        """What the server has used."""
        info = self.server.client().info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def close(self) -> None:
        self.client.close()
        self.server.stop()
