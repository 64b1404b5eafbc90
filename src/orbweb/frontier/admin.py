"""What an operator sees and does: runs, nodes, dead letters, stop, reset."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orbweb.errors import ConfigError
from orbweb.frontier.base import DeadLetter, Lease, RunState, Status
from orbweb.frontier.configbook import ConfigBook
from orbweb.frontier.items import ValkeyItemBook
from orbweb.frontier.jobbook import JobBook
from orbweb.frontier.keys import RunKeys, ShardKeys, clean, split_run_name
from orbweb.frontier.operator import AuditLine, Author
from orbweb.frontier.robots import ValkeyRobotsStore
from orbweb.frontier.runbook import RunBook
from orbweb.frontier.seen_admin import SeenAdmin
from orbweb.frontier.seen_places import SeenPlace
from orbweb.frontier.server import answer_of, wall_ms, whole
from orbweb.frontier.servers import Servers
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.frontier.spread import shared_frontier
from orbweb.frontier.steering import HostAdmin
from orbweb.frontier.totals import RunTotals
from orbweb.frontier.urls import UrlAdmin, dead_letter
from orbweb.frontier.valkey import ScriptCaller, ValkeyFrontier, Word, parse_body
from orbweb.frontier.weight import Weight, weigh

PAGE = 500

RESET = "reset"
"""The verb of an operator's act in the audit trail."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run: `run` is empty for a job's default run."""

    job: str
    run: str
    epoch: str
    status: Status


@dataclass(frozen=True)
class NodeInfo:
    """One worker process: how long ago it last spoke, and what it said."""

    node: str
    silent_ms: int
    beat: bytes

    @cached_property
    def said(self) -> dict[str, Any]:
        """See `read_beat`."""
        return read_beat(self.beat)


def read_beat(beat: bytes) -> dict[str, Any]:
    """What a node says of itself in a heartbeat; empty when that cannot be read."""
    try:
        record = json.loads(beat or b"{}")
        if b"\\ud" in beat.lower():  # half a character may be in it, which nothing else can take
            record = json.loads(json.dumps(record, ensure_ascii=False).encode(errors="replace"))
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def node_state(said: Mapping[str, Any]) -> str:
    """`working`, `stopping`, or `ended` when a node said that it was its last word."""
    if said.get("ended"):
        return "ended"
    return "stopping" if said.get("stopping") else "working"


class Admin:
    """Looks at and steers the runs of one prefix. All calls may raise `StoreUnavailable`."""

    def __init__(self, servers: Servers, prefix: str, *, shards: int = 1) -> None:
        """`shards` is for what concerns no run: each run knows over how many it is spread."""
        self._servers = servers
        self._client = servers.of_shard(0)
        self._prefix = prefix
        self._shards = shards
        self._shard = ShardKeys(prefix)
        self.seen = SeenAdmin(servers, prefix, shards=shards)
        """What the jobs have seen."""
        self.hosts = HostAdmin(servers.of_shard, prefix, shards=shards)
        self.config = ConfigBook(servers.of_shard(0), prefix)
        """The live values."""
        self.urls = UrlAdmin(servers, prefix)
        """What became of single requests."""
        self.now: int | None = None
        """Tests set this to turn the clock of `collect`; None is the server's own."""

    async def runs(self, job: str | None = None) -> list[RunInfo]:
        """The living runs of a job, or of all, the latest started first."""
        current = await answer_of(self._client.hgetall(self._shard.current))
        found = []
        for name, epoch in current.items():
            its_job, run, _ = split_run_name(f"{name.decode()}:{epoch.decode()}")
            if job is None or its_job == job:
                found.append(await self._info(its_job, run, epoch.decode()))
        return sorted(found, key=lambda info: -info.status.started_at_ms)

    async def look(self, job: str, run: str) -> RunInfo | None:
        """One run; None when there is none."""
        name = f"{clean(job)}:{clean(run)}"
        epoch = await answer_of(self._client.hget(self._shard.current, name))
        return await self._info(job, run, epoch.decode()) if epoch else None

    async def _info(self, job: str, run: str, epoch: str) -> RunInfo:
        status = await self._frontier(job, run, epoch, 1).status()
        if status.shards > 1:
            status = await self._frontier(job, run, epoch, status.shards).status()
        return RunInfo(job, run, epoch, status)

    async def find(self, job: str, run: str | None = None, *, unfinished: bool = False) -> RunInfo:
        """The run of that id, or the job's latest when `run` is None; `ConfigError` if none.

        `unfinished`: of those that have not ended, unless all have.
        """
        of_job = await self.runs(job)
        if not of_job:
            known = ", ".join(sorted({info.job for info in await self.runs()})) or "none"
            raise ConfigError(f"there is no job {job!r} in the store; jobs there: {known}")
        runs = [info for info in of_job if run is None or info.run == run]
        if not runs:
            known = ", ".join(info.run or "'' (the one without RUN_ID)" for info in of_job)
            raise ConfigError(f"job {job!r} has no run {run!r} in the store; runs there: {known}")
        going = [info for info in runs if info.status.state is not RunState.DONE]
        return going[0] if unfinished and going else runs[0]

    async def nodes(self, info: RunInfo) -> list[NodeInfo]:
        """The worker processes of a run that spoke within the last twenty leases."""
        now = await wall_ms(self._client)
        beats = await answer_of(self._client.hgetall(self._keys(info, 0).beats))
        found = []
        for node, record in beats.items():
            wall, _, beat = record.partition(b"\n")
            silent_ms = max(0, now - whole(wall))
            found.append(NodeInfo(node.decode(errors="replace"), silent_ms, beat))
        return sorted(found, key=lambda node: node.node)

    async def dead_letters(self, info: RunInfo, ids: str = "*") -> AsyncIterator[DeadLetter]:
        """All requests of a run that were given up, page by page, in no order.

        `ids`: a pattern of the store that their ids must fit.
        """
        for shard in range(info.status.shards):
            keys, client = self._keys(info, shard), self._servers.of_shard(shard)
            cursor = None
            while cursor != 0:
                cursor, page = await answer_of(
                    client.hscan(keys.why, cursor or 0, match=ids, count=PAGE)
                )
                found = list(page)
                bodies = await answer_of(client.hmget(keys.dead, found)) if found else []
                for id, body in zip(found, bodies, strict=True):
                    if body is not None:
                        yield dead_letter(id.decode(), body, page[id])

    async def dead_letter(self, info: RunInfo, id: str) -> DeadLetter | None:
        """The dead letter with exactly this id; None when there is none."""
        for shard in range(info.status.shards):
            keys, client = self._keys(info, shard), self._servers.of_shard(shard)
            why = await answer_of(client.hget(keys.why, id))
            body = await answer_of(client.hget(keys.dead, id)) if why is not None else None
            if why is not None and body is not None:
                return dead_letter(id, body, why)
        return None

    async def dead_letters_beginning(self, info: RunInfo, id: str, most: int) -> list[DeadLetter]:
        """Up to `most` dead letters whose ids begin with `id`; one with exactly that id alone."""
        whole = await self.dead_letter(info, id)
        if whole is not None:
            return [whole]
        found: list[DeadLetter] = []
        pattern = re.sub(r"([\\*?\[\]^-])", r"\\\1", id) + "*"
        async for letter in self.dead_letters(info, pattern):
            found.append(letter)
            if len(found) >= most:
                break
        return found

    async def response(self, info: RunInfo, letter: DeadLetter) -> bytes | None:
        """What was answered to a dead letter last, packed; None when nothing is kept of it."""
        for shard in range(info.status.shards):
            client = self._servers.of_shard(shard)
            found = await answer_of(client.hget(self._keys(info, shard).responses, letter.id))
            if found is not None:
                return bytes(found)
        return None

    async def retry(self, info: RunInfo, ids: Sequence[str]) -> int:
        """Let dead letters return to their queues; returns how many were found."""
        return await self._redrive(info, ids, drop=False)

    async def drop(self, info: RunInfo, ids: Sequence[str]) -> int:
        """Forget dead letters for good; returns how many were found."""
        return await self._redrive(info, ids, drop=True)

    async def pending(self, info: RunInfo, id: str) -> Lease | None:
        """The pending request with exactly this id, without its token; None when there is none."""
        for shard in range(info.status.shards):
            client = self._servers.of_shard(shard)
            body = await answer_of(client.hget(self._keys(info, shard).body, id))
            if body is not None:
                return parse_body(id, "", body, 0)
        return None

    async def hold_off(self, info: RunInfo, host: str, ms: int) -> None:
        """See `Frontier.hold_off`: no node fetches from the host for so long."""
        frontier = self._frontier(info.job, info.run, info.epoch, info.status.shards)
        await frontier.hold_off([(host, ms)])

    async def stop(self, info: RunInfo) -> None:
        """Ask every node of the run to stop, and let a resident run end."""
        await self._frontier(info.job, info.run, info.epoch, info.status.shards).stop()

    async def reset(
        self, info: RunInfo, *, seen: bool, only: bool = False, author: Author | None = None
    ) -> None:
        """Forget a run; the next start begins anew. `seen`: also what the job's runs share.

        `only`: this incarnation of it; one that has taken its place meanwhile stays. `author`: an
        operator does it, which is recorded, and is no alarm.
        """
        words = (clean(info.job), clean(info.run), int(seen), info.epoch if only else "")
        line = "" if author is None else await self._reset_line(info, author, seen)
        for shard in reversed(range(info.status.shards)):  # who is interrupted finds it once more
            await self._call(shard, "reset", (*words, "" if shard else line))

    async def _reset_line(self, info: RunInfo, author: Author, seen: bool) -> str:
        return AuditLine(
            await wall_ms(self._client),
            author.by,
            RESET,
            job=info.job,
            run=info.run,
            before=_incarnation(info.epoch),
            after=f"forgotten{', with what was seen' if seen else ''}",
            why=author.why,
        ).pack()

    async def reset_by(self, job: str, run: str, epoch: str) -> AuditLine | None:
        """The operator's act, among the latest thousand, that has reset this incarnation of a run;
        None when there is none."""
        wanted = (RESET, job, run, _incarnation(epoch))
        for text in reversed(await answer_of(self._client.lrange(self._shard.audit, -1000, -1))):
            line = AuditLine.unpack(text)
            if (line.verb, line.job, line.run, line.before) == wanted:
                return line
        return None

    async def collect(self, keys: int = 1000) -> tuple[int, list[tuple[str, str, int]]]:
        """Unlink up to `keys` keys of runs that are reset or past their time.

        Returns how many were unlinked, and (job, run, pending) of runs given up unfinished.
        """
        total, unfinished = 0, Counter[tuple[str, str]]()
        for shard in range(self._shards):
            removed, *given_up = await self._call(shard, "collect", (keys,))
            total += removed
            for i in range(0, len(given_up), 2):
                job, run, _ = split_run_name(given_up[i].decode())
                unfinished[job, run] += int(given_up[i + 1])
        return total, [(job, run, pending) for (job, run), pending in unfinished.items()]

    async def weigh(self, place: SeenPlace) -> Weight:
        """How much memory a job takes, for what waits and for what it has seen; an estimate."""
        return await weigh(self._servers, place)

    def items(self, info: RunInfo) -> ValkeyItemBook:
        """What the store knows of the items of a run."""
        return self.counts(info.job, info.run, info.epoch)

    def totals(self, info: RunInfo) -> RunTotals:
        """What the nodes of a run have counted."""
        totals = RunTotals(self._client, self._prefix, info.job, info.run)
        totals.attach(info.epoch)
        return totals

    def book(self, job: str) -> JobBook:
        """What the nodes of a job tell of it."""
        return JobBook(self._client, self._prefix, job)

    async def server_info(self) -> list[dict[str, Any]]:
        """What each server of the shards says of itself (INFO), for people who look for a fault."""
        clients = {
            id(client): client for client in map(self._servers.of_shard, range(self._shards))
        }
        return [dict(await answer_of(client.info())) for client in clients.values()]

    def kept(self, job: str) -> RunBook:
        """What is kept of a job's runs, also of those that are gone."""
        return RunBook(self._client, self._prefix, job)

    def counts(self, job: str, run: str, epoch: str) -> ValkeyItemBook:
        """What the nodes of a run, which may be gone, have said of its items."""
        book = ValkeyItemBook(self._client, self._prefix, job, run, shared=False)
        book.attach(epoch)
        return book

    async def robots(self, origin: str) -> bytes | None:
        """The robots.txt of an origin, as the nodes keep it; None when they have none now."""
        return await ValkeyRobotsStore(self._client, self._prefix).get(origin)

    async def _redrive(self, info: RunInfo, ids: Sequence[str], *, drop: bool) -> int:
        frontier = self._frontier(info.job, info.run, info.epoch, info.status.shards)
        found = 0
        for start in range(0, len(ids), PAGE):
            found += await frontier.redrive(ids[start : start + PAGE], drop=drop)
        return found

    def _keys(self, info: RunInfo, shard: int) -> RunKeys:
        return ShardKeys(self._prefix, shard).run(info.job, info.run, info.epoch)

    def _frontier(
        self, job: str, run: str, epoch: str, shards: int
    ) -> ValkeyFrontier | ShardedFrontier:
        frontier = shared_frontier(
            self._servers, prefix=self._prefix, job=job, run=run, shards=shards
        )
        frontier.attach(epoch)
        return frontier

    async def _call(self, shard: int, name: str, words: Sequence[Word]) -> Any:
        caller = ScriptCaller(self._servers.of_shard(shard), self.now)
        return await caller.call(name, (ShardKeys(self._prefix, shard).tag,), words)


def _incarnation(epoch: str) -> str:
    """How the audit trail names one incarnation of a run."""
    return f"epoch {epoch}" if epoch else ""
