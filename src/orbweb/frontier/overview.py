"""What a monitor reads of a store at each look: bounded, whatever there is of hosts and runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from orbweb.errors import RunLost
from orbweb.frontier.admin import Admin, NodeInfo, RunInfo
from orbweb.frontier.base import RunState
from orbweb.frontier.busiest import Base, BusiestHosts
from orbweb.frontier.deliveries import Deliveries
from orbweb.frontier.hosts import Host, RunRules
from orbweb.frontier.hosttable import HostTable
from orbweb.frontier.keys import ShardKeys, split_run_name
from orbweb.frontier.seen_state import SeenState, read_seen
from orbweb.frontier.server import ServerFacts, answer_of
from orbweb.frontier.servers import Servers
from orbweb.frontier.valkey import ScriptCaller

MOST_RUNS = 50
"""Runs that are looked at: those that go on, then those that have ended within `ENDED_MS`."""

ENDED_MS = 15 * 60_000
"""A run that has ended is told of for so long: its last numbers are read in that time."""


@dataclass(frozen=True, slots=True)
class SeenFill:
    """What a run has seen, over all shards."""

    count: int
    capacity: int
    """0 = there is no end."""
    fill: float


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as a monitor sees it."""

    info: RunInfo
    nodes: list[NodeInfo]
    counts: list[bytes]
    """What its nodes have counted, those that left included."""
    seen: SeenFill | None
    failed_items: int


@dataclass(frozen=True, slots=True)
class StoreView:
    """The store at one look."""

    runs: list[RunView]
    left_out: int
    """Runs that go on, beyond `MOST_RUNS`."""
    hosts: list[tuple[Host, list[RunRules]]]
    """Those with the longest queues, the longest first."""
    servers: dict[str, ServerFacts]
    deliveries: Mapping[tuple[str, str], int]
    """Tries to deliver alerts, by channel and result."""
    answer_seconds: float


class Overview:
    """Looks at one prefix. Keeps what it has found of hosts from one look to the next."""

    def __init__(
        self, servers: Servers, prefix: str, *, hosts: int = 50, ended_ms: int = ENDED_MS
    ) -> None:
        """`hosts`: how many are shown. `ended_ms`: how long a run that has ended is looked at."""
        self._servers = servers
        self._client = servers.of_shard(0)
        self._admin = Admin(servers, prefix)
        self._prefix = prefix
        self._first = ShardKeys(prefix)
        self._deliveries = Deliveries(self._client, prefix)
        self._most = hosts
        self.ended_ms = ended_ms
        """May be set anew between two looks."""
        self._busiest: list[tuple[ShardKeys, BusiestHosts]] = []

    async def look(self) -> StoreView:
        """Read all of it. Raises `StoreUnavailable`."""
        asked = time.monotonic()
        await answer_of(self._client.ping())
        answer_seconds = time.monotonic() - asked
        names, left_out = await self.names()
        runs = []
        for job, run in names:
            with suppress(RunLost):
                info = await self._admin.look(job, run)
                if info is not None:
                    runs.append(await self.view(info))
        going = [view.info for view in runs if view.info.status.state is not RunState.DONE]
        return StoreView(
            runs=runs,
            left_out=left_out,
            hosts=await self._hosts(going),
            servers=await self._servers.facts(),
            deliveries=await self._deliveries.all(),
            answer_seconds=answer_seconds,
        )

    async def names(self) -> tuple[list[tuple[str, str]], int]:
        """The runs to look at, and how many that go on are left out."""
        first = self._first
        current = await answer_of(self._client.hgetall(first.current))
        named = [
            split_run_name(f"{name.decode()}:{epoch.decode()}") for name, epoch in current.items()
        ]
        if not named:
            return [], 0
        pipe = self._client.pipeline(transaction=False)
        for job, run, epoch in named:
            pipe.hmget(first.run(job, run, epoch).meta, "state", "started", "finished")
        pipe.time()
        *states, (seconds, micros) = await answer_of(pipe.execute())
        now_ms = seconds * 1000 + micros // 1000
        going, ended = [], []
        for (job, run, _), (state, started, finished) in zip(named, states, strict=True):
            if state is not None and state != b"done":
                going.append((int(started or 0), job, run))
            elif state is not None and now_ms - int(finished or 0) <= self.ended_ms:
                ended.append((int(finished or 0), job, run))
        going.sort(reverse=True)
        ended.sort(reverse=True)
        chosen = [*going, *ended][:MOST_RUNS]
        return [(job, run) for _, job, run in chosen], max(0, len(going) - MOST_RUNS)

    async def view(self, info: RunInfo) -> RunView:
        """All about one run. Raises `StoreUnavailable`."""
        keys = self._first.run(info.job, info.run, info.epoch)
        told = await self._admin.totals(info).told()
        return RunView(
            info=info,
            nodes=await self._admin.nodes(info),
            counts=list(told.values()),
            seen=await self._seen(info),
            failed_items=await answer_of(self._client.hlen(keys.failed_items)),
        )

    async def _seen(self, info: RunInfo) -> SeenFill | None:
        found: list[SeenState] = []
        for number in range(info.status.shards):
            keys = ShardKeys(self._prefix, number).run(info.job, info.run, info.epoch)
            client = self._servers.of_shard(number)
            base = await answer_of(client.hget(keys.meta, "seen"))
            state = await read_seen(client, base.decode() if base else keys.seen)
            if state is not None:
                found.append(state)
        if not found:
            return None
        return SeenFill(
            count=sum(state.count for state in found),
            capacity=sum(state.capacity for state in found),
            fill=max(state.fill for state in found),
        )

    async def _hosts(self, going: Sequence[RunInfo]) -> list[tuple[Host, list[RunRules]]]:
        for number in range(len(self._busiest), max((i.status.shards for i in going), default=0)):
            keys = ShardKeys(self._prefix, number)
            table = HostTable(ScriptCaller(self._servers.of_shard(number)), keys)
            self._busiest.append((keys, BusiestHosts(table, self._most)))
        found = []
        for keys, busiest in self._busiest:
            runs: list[Base] = [
                (info.job, info.run, keys.run(info.job, info.run, info.epoch).base)
                for info in going
                if keys.shard < info.status.shards
            ]
            found += await busiest.look(runs)
        found.sort(key=lambda pair: (-pair[0].backlog, pair[0].name))
        return found[: self._most]
