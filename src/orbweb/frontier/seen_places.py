"""Where jobs keep what they have seen: in one shard, or in a piece in each of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from orbweb.errors import ConfigError
from orbweb.frontier.base import RunConfig
from orbweb.frontier.keys import RunKeys, ShardKeys, clean, split_run_name
from orbweb.frontier.routes import shard_of
from orbweb.frontier.seen import SeenKind
from orbweb.frontier.seen_state import SeenState, read_seen
from orbweb.frontier.server import answer_of
from orbweb.frontier.servers import Servers
from orbweb.frontier.spread import shared_frontier


@dataclass(frozen=True, slots=True)
class SeenShard:
    """What a shard has seen of its hosts."""

    keys: ShardKeys
    base: str
    state: SeenState
    runs: Mapping[str, RunKeys]
    """By their ids, the living runs that use it."""

    @property
    def number(self) -> int:
        return self.keys.shard


@dataclass(frozen=True, slots=True)
class SeenPlace:
    """Where a job, or one of its runs, keeps what it has seen."""

    job: str
    run: str | None
    """None: all runs of the job share it."""
    shards: tuple[SeenShard, ...]
    """All over which it is spread, by their numbers."""

    def of_host(self, host: str) -> SeenShard:
        """The shard that has seen the URLs of a host."""
        return self.shards[shard_of(host, len(self.shards))]

    @property
    def kind(self) -> SeenKind:
        return self.shards[0].state.kind

    @property
    def generation_ms(self) -> int:
        return self.shards[0].state.generation_ms

    @property
    def count(self) -> int:
        return sum(shard.state.count for shard in self.shards)

    @property
    def capacity(self) -> int:
        """Requests for which all shards together are made; 0 = no end."""
        return sum(shard.state.capacity for shard in self.shards)

    @property
    def fill(self) -> float:
        """How much of its capacity the fullest shard has used."""
        return max(shard.state.fill for shard in self.shards)

    @property
    def over_full(self) -> bool:
        return self.fill > 1.0

    @property
    def sure(self) -> int:
        """Requests that no error of the filter may drop."""
        return sum(shard.state.sure for shard in self.shards)

    @property
    def forgotten_hosts(self) -> dict[str, int]:
        """How often each host was forgotten."""
        found = Counter[str]()
        for shard in self.shards:
            found.update(shard.state.forgotten_hosts)
        return dict(found)


class SeenPlaces:
    """Finds what the jobs of one prefix have seen. All calls may raise `StoreUnavailable`."""

    def __init__(self, servers: Servers, prefix: str, *, shards: int = 1) -> None:
        """`shards` is for `make`; what there is knows over how many it is spread."""
        self._servers = servers
        self._prefix = prefix
        self.shards = shards
        self._first = ShardKeys(prefix)

    async def find(self, job: str, run: str | None = None) -> SeenPlace:
        """What all runs of the job share, or else what the named or the only run has seen.

        Raises `ConfigError` when there is nothing, or several runs have their own.
        """
        runs = await self._runs(job)
        bases = {name: await self._base(self._first, keys) for name, keys in runs.items()}
        shared = await self._shared(self._first, job)
        if run is not None:
            if run not in bases:
                raise ConfigError(f"there is no run {run!r} of job {job!r} in the store")
            base = bases[run]
        elif shared:
            base = shared
        elif len(bases) == 1:
            (base,) = bases.values()
        else:
            known = ", ".join(sorted(name or "default" for name in bases))
            raise ConfigError(
                f"several runs of {job} remember seen URLs ({known}): say which with --run-id"
                if bases
                else f"there is no job {job!r} in the store"
            )
        users = [name for name in sorted(runs) if bases[name] == base]
        owner = None if base == shared else users[0]
        epochs = {name: runs[name].base.rpartition(":")[2] for name in users}
        spread_over = await self._spread_over(base, None if owner is None else runs[owner])
        shards = [await self._shard(n, job, owner, epochs) for n in range(spread_over)]
        return SeenPlace(job, owner, tuple(shards))

    async def kind_of(self, job: str, run: str, scope: str) -> SeenKind | None:
        """How a run, or what all runs share, remembers seen requests; None when neither exists."""
        keys = (await self._runs(job)).get(run)
        if keys is not None:
            found = await self._read(self._client(self._first).hget(keys.meta, "kind"))
            return SeenKind(found.decode())
        shared = await self._shared(self._first, job)
        if not shared or scope != "spider":
            return None
        state = await read_seen(self._client(self._first), shared)
        return state.kind if state else None

    async def make(self, job: str, run: str, config: RunConfig) -> SeenPlace:
        """Make the run or join it, and find what it has seen. Raises as `Frontier.open` does."""
        frontier = shared_frontier(
            self._servers, prefix=self._prefix, job=job, run=run, shards=self.shards
        )
        await frontier.open(config)
        return await self.find(job, None if config.dedup_scope == "spider" else run)

    async def _shard(
        self, number: int, job: str, owner: str | None, epochs: Mapping[str, str]
    ) -> SeenShard:
        keys = ShardKeys(self._prefix, number)
        runs = {name: keys.run(job, name, epoch) for name, epoch in epochs.items()}
        if owner is None:
            base = await self._shared(keys, job)
        else:
            base = await self._base(keys, runs[owner])
        state = await read_seen(self._client(keys), base) if base else None
        if state is None and number == 0:
            raise ConfigError(f"{job} has not seen anything")
        if state is None:
            raise ConfigError(
                f"shard {number} of {job} is missing: its start or its reset was interrupted. "
                f"Start it once more, or: orbweb reset {job} --seen"
            )
        return SeenShard(keys, base, state, runs)

    async def _runs(self, job: str) -> dict[str, RunKeys]:
        current = await self._read(self._client(self._first).hgetall(self._first.current))
        found = {}
        for name, epoch in current.items():
            its_job, run, _ = split_run_name(f"{name.decode()}:{epoch.decode()}")
            if its_job == job:
                found[run] = self._first.run(job, run, epoch.decode())
        return found

    async def _base(self, keys: ShardKeys, run: RunKeys) -> str:
        found = await self._read(self._client(keys).hget(run.meta, "seen"))
        return found.decode() if found else run.seen

    async def _shared(self, keys: ShardKeys, job: str) -> str:
        """Where all runs of a job keep what they have seen; '' when they do not share it."""
        generation = await self._read(self._client(keys).hget(keys.jobs, clean(job)))
        return keys.job_seen(job, generation.decode()) if generation else ""

    async def _spread_over(self, base: str, owner: RunKeys | None) -> int:
        key = base if owner is None else owner.meta
        return int(await self._read(self._client(self._first).hget(key, "shards")) or 1)

    def _client(self, keys: ShardKeys) -> Redis:
        return self._servers.of_shard(keys.shard)

    async def _read(self, call: Any) -> Any:
        return await answer_of(call)
