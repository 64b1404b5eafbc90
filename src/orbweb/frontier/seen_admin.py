"""What an operator sees and does of seen requests: look up, forget, export, import."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.base import RunConfig
from orbweb.frontier.keys import RunKeys, ShardKeys, clean, split_run_name
from orbweb.frontier.seen import SeenKind
from orbweb.frontier.seen_state import PartState, SeenState, read_seen
from orbweb.frontier.valkey import ScriptCaller, ValkeyFrontier

Fields = dict[Any, Any]
PAGE = 500
JOURNAL_MS = 60_000
"""An export that has not spoken for this long is over."""


@dataclass(frozen=True, slots=True)
class SeenPlace:
    """Where a job, or one of its runs, keeps what it has seen."""

    job: str
    run: str | None
    """None: all runs of the job share it."""
    base: str
    state: SeenState
    runs: tuple[tuple[str, RunKeys], ...]
    """Id and keys of the living runs that use it."""


class SeenAdmin:
    """Looks at and changes what the jobs of one prefix have seen.

    All calls may raise `StoreUnavailable`. Each does a bounded piece of work in the store.
    """

    def __init__(self, client: Redis, prefix: str) -> None:
        self.client = self._client = client
        self._prefix = prefix
        self._shard = ShardKeys(prefix)
        self._caller = ScriptCaller(client)

    async def find(self, job: str, run: str | None = None) -> SeenPlace:
        """What all runs of the job share, or else what the named or the only run has seen.

        Raises `ConfigError` when there is nothing, or several runs have their own.
        """
        runs = await self._runs(job)
        bases = {name: await self._base(keys) for name, keys in runs.items()}
        generation = await self._read(self._client.hget(self._shard.jobs, clean(job)))
        shared = self._shard.job_seen(job, generation.decode()) if generation else None
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
        state = await read_seen(self._client, base)
        if state is None:
            raise ConfigError(f"{job} has not seen anything")
        users = tuple((name, runs[name]) for name in sorted(runs) if bases[name] == base)
        owner = None if base == shared else next(name for name, _ in users)
        return SeenPlace(job, owner, base, state, users)

    async def check(self, place: SeenPlace, fingerprint: int, host: str) -> bool:
        """Whether a request counts as seen."""
        (flag,) = await self._call(place, "seen_check", fingerprint, host)
        return bool(flag)

    async def forget(self, place: SeenPlace, fingerprint: int, host: str) -> bool:
        """Let a request enter again; whether it was seen. `ConfigError` for a Bloom filter."""
        found = await self._call(place, "seen_forget", "url", fingerprint, host)
        if found < 0:
            raise ConfigError(
                f"{place.job} remembers seen URLs as {place.state.kind}, which cannot forget a "
                "single one. It can forget a --host; exact and compact can forget each"
            )
        return bool(found)

    async def forget_host(self, place: SeenPlace, host: str) -> None:
        """Let all requests of a host enter again. Takes one step, and frees no memory."""
        await self._call(place, "seen_forget", "host", host)

    async def forget_older(self, place: SeenPlace, age_ms: int) -> int:
        """Forget the generations all of which is older; returns how many requests that were."""
        return int(await self._call(place, "seen_forget", "older", age_ms))

    # -- export

    async def journal(self, place: SeenPlace, what: str) -> None:
        """Begin, go on with or end noting what leaves the runs. `ConfigError` when it has ended."""
        keys = (self._shard.tag, *(keys.base for _, keys in place.runs))
        if not await self._caller.call("journal", keys, (what, JOURNAL_MS)):
            raise ConfigError("the export took too long between two steps: begin again")

    async def members(
        self, place: SeenPlace
    ) -> AsyncIterator[tuple[PartState, str, Sequence[bytes]]]:
        """All that is remembered, bucket by bucket: part, bucket or segment, what is in it.

        A part that begins meanwhile is read too. Buckets that split meanwhile are read in the order
        of their making, so that what moves is met before or after.
        """
        done = 0
        while True:
            state = await read_seen(self._client, place.base)
            parts = [part for part in state.parts if part.number > done] if state else []
            if not parts:
                return
            for part in parts:
                async for suffix, found in self._part(place, part):
                    yield part, suffix, found
                done = part.number

    async def _part(
        self, place: SeenPlace, part: PartState
    ) -> AsyncIterator[tuple[str, Sequence[bytes]]]:
        key, kind = f"{place.base}:{part.number}", place.state.kind
        if kind is SeenKind.SET:
            cursor = 0
            while True:
                cursor, found = await self._read(self._client.sscan(key, cursor, count=PAGE))
                yield "", found
                if cursor == 0:
                    return
        number = 0
        while number < await self._buckets(place, part):
            suffix = f":{exact_bucket(number) if kind is SeenKind.EXACT else number}"
            if kind is SeenKind.BLOOM:
                segment = await self._read(self._client.get(key + suffix))
                yield suffix, [segment] if segment else []
            else:
                yield suffix, list(await self._read(self._client.smembers(key + suffix)))
            number += 1

    async def _buckets(self, place: SeenPlace, part: PartState) -> int:
        if place.state.kind is SeenKind.BLOOM:
            return -(-part.size // 1024)
        if place.state.kind is SeenKind.EXACT:  # it may grow meanwhile
            head = await self._read(self._client.hmget(place.base, "part", "size"))
            if int(head[0]) == part.number:
                return int(head[1])
            record = await self._read(self._client.hget(f"{place.base}:parts", str(part.number)))
            return int(record.split()[1]) if record else 0
        return part.size

    async def sure(self, place: SeenPlace) -> list[int]:
        """Requests that no error of the filter may drop."""
        found = await self._read(self._client.smembers(f"{place.base}:sure"))
        return sorted(int(mark) for mark in found)

    async def pages(self, key: str) -> AsyncIterator[dict[bytes, bytes]]:
        """A hash, piece by piece."""
        cursor = 0
        while True:
            cursor, page = await self._read(self._client.hscan(key, cursor, count=PAGE))
            if page:
                yield page
            if cursor == 0:
                return

    # -- import

    async def kind_of(self, job: str, run: str, scope: str) -> SeenKind | None:
        """How a run, or what all runs share, remembers seen requests; None when neither exists."""
        keys = (await self._runs(job)).get(run)
        if keys is not None:
            found = await self._read(self._client.hget(keys.meta, "kind"))
            return SeenKind(found.decode())
        generation = await self._read(self._client.hget(self._shard.jobs, clean(job)))
        if generation is None or scope != "spider":
            return None
        state = await read_seen(self._client, self._shard.job_seen(job, generation.decode()))
        return state.kind if state else None

    async def make(self, job: str, run: str, config: RunConfig) -> SeenPlace:
        """Make the run or join it, and find what it has seen. Raises as `Frontier.open` does."""
        frontier = self._frontier(job, run)
        await frontier.open(config)
        return await self.find(job, None if config.dedup_scope == "spider" else run)

    async def restore(self, place: SeenPlace, run: str, requests: Iterable[Sequence[Any]]) -> int:
        """Let requests of an exported run enter: id, host, priority, payload, then pairs of pages
        that redirects took for it and links to them; returns how many were not pending."""
        words: list[Any] = []
        for id, host, priority, payload, *pairs in requests:
            words += (id, host, priority, payload, len(pairs) // 2, *pairs)
        keys = (self._shard.tag, dict(place.runs)[run].base)
        return int(await self._caller.call("restore", keys, words))

    async def learn(self, place: SeenPlace, marks: Sequence[bytes]) -> int:
        """Let requests count as seen; returns how many did not."""
        return int(await self._call(place, "seen_learn", *marks))

    async def put_part(self, place: SeenPlace, suffix: str, found: Sequence[bytes]) -> None:
        """Put what was in a bucket or segment there again: into a filter with the same parts."""
        key = f"{place.base}:{suffix}"
        if place.state.kind is SeenKind.BLOOM:
            await self._read(self._client.set(key, found[0]))
        else:
            await self._read(self._client.sadd(key, *found))

    async def put_head(
        self, place: SeenPlace, head: Fields, records: Fields, hosts: Fields
    ) -> None:
        """Let the parts, sizes and forgotten hosts be those of an export."""
        async with self._client.pipeline(transaction=True) as writing:
            if records:
                writing.hset(f"{place.base}:parts", mapping=records)
            if hosts:
                writing.hset(f"{place.base}:hosts", mapping=hosts)
                head = head | {"hosts": "1"}
            writing.hset(place.base, mapping=head)
            await self._read(writing.execute())

    async def put_sure(self, place: SeenPlace, marks: Sequence[int]) -> None:
        """Let these be among the requests that no error may drop."""
        for start in range(0, len(marks), PAGE):
            await self._read(self._client.sadd(f"{place.base}:sure", *marks[start : start + PAGE]))

    # -- pieces

    async def _runs(self, job: str) -> dict[str, RunKeys]:
        current = await self._read(self._client.hgetall(self._shard.current))
        found = {}
        for name, epoch in current.items():
            its_job, run, _ = split_run_name(f"{name.decode()}:{epoch.decode()}")
            if its_job == job:
                found[run] = self._shard.run(job, run, epoch.decode())
        return found

    async def _base(self, keys: RunKeys) -> str:
        found = await self._read(self._client.hget(keys.meta, "seen"))
        return found.decode() if found else keys.seen

    def _frontier(self, job: str, run: str) -> ValkeyFrontier:
        return ValkeyFrontier(self._client, prefix=self._prefix, job=job, run=run)

    async def _call(self, place: SeenPlace, name: str, *words: Any) -> Any:
        keys = (self._shard.tag, place.base)
        return await self._caller.call(name, keys, words, place.state.kind)

    async def _read(self, call: Any) -> Any:
        try:
            return await call
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"the store does not answer: {error}") from error


def exact_bucket(number: int) -> int:
    """The name of the `number`-th bucket of `exact`, in the order in which they are split off."""
    if number == 0:
        return 0
    low = 1 << (number.bit_length() - 1)
    return (2 * (number - low) + 1) * 2**30 // (2 * low)
