"""What an operator sees and does of seen requests: look up, forget, export, import."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from orbweb.errors import ConfigError
from orbweb.frontier.routes import shard_of
from orbweb.frontier.seen import SeenKind
from orbweb.frontier.seen_places import SeenPlace, SeenPlaces, SeenShard
from orbweb.frontier.seen_state import PartState, SeenState, read_seen
from orbweb.frontier.valkey import ScriptCaller, unpack_row

Fields = dict[Any, Any]
PAGE = 500
JOURNAL_MS = 60_000
"""An export that has not spoken for this long is over."""


class SeenAdmin(SeenPlaces):
    """Looks at and changes what the jobs of one prefix have seen, in whichever shards it lies.

    All calls may raise `StoreUnavailable`. Each does a bounded piece of work in the store.
    """

    now: int | None = None
    """Tests set this to turn the clock; None is the server's own."""

    async def check(self, place: SeenPlace, fingerprint: int, host: str) -> bool:
        """Whether a request counts as seen."""
        (flag,) = await self._call(place.of_host(host), "seen_check", fingerprint, host)
        return bool(flag)

    async def forget(self, place: SeenPlace, fingerprint: int, host: str) -> bool:
        """Let a request enter again; whether it was seen. `ConfigError` for a Bloom filter."""
        found = await self._call(place.of_host(host), "seen_forget", "url", fingerprint, host)
        if found < 0:
            raise ConfigError(
                f"{place.job} remembers seen URLs as {place.kind}, which cannot forget a "
                "single one. It can forget a --host; exact and compact can forget each"
            )
        return bool(found)

    async def forget_host(self, place: SeenPlace, host: str) -> None:
        """Let all requests of a host enter again. Takes one step, and frees no memory."""
        await self._call(place.of_host(host), "seen_forget", "host", host)

    async def forget_older(self, place: SeenPlace, age_ms: int) -> int:
        """Forget the generations all of which is older; returns how many requests that were.

        Each shard does so in one step of its own.
        """
        forgotten = 0
        for shard in place.shards:
            forgotten += int(await self._call(shard, "seen_forget", "older", age_ms))
        return forgotten

    # -- export

    async def journal(self, place: SeenPlace, what: str) -> None:
        """Begin, go on with or end noting what leaves the runs. `ConfigError` when it has ended."""
        for shard in place.shards:
            keys = (shard.keys.tag, *(run.base for run in shard.runs.values()))
            if not await self._caller(shard).call("journal", keys, (what, JOURNAL_MS)):
                raise ConfigError("the export took too long between two steps: begin again")

    async def members(self, shard: SeenShard) -> AsyncIterator[tuple[str, Sequence[bytes]]]:
        """All that a shard remembers: the number of a part and its bucket, what is in it.

        A part that begins meanwhile is read too. Buckets that split meanwhile are read in the order
        of their making, so that what moves is met before or after.
        """
        done = 0
        while True:
            state = await read_seen(self._client(shard.keys), shard.base)
            parts = [part for part in state.parts if part.number > done] if state else []
            if not parts:
                return
            for part in parts:
                async for suffix, found in self._part(shard, part):
                    yield f"{part.number}{suffix}", found
                done = part.number

    async def _part(
        self, shard: SeenShard, part: PartState
    ) -> AsyncIterator[tuple[str, Sequence[bytes]]]:
        client, kind = self._client(shard.keys), shard.state.kind
        key = f"{shard.base}:{part.number}"
        if kind is SeenKind.SET:
            cursor = 0
            while True:
                cursor, found = await self._read(client.sscan(key, cursor, count=PAGE))
                yield "", found
                if cursor == 0:
                    return
        number = 0
        while number < await self._buckets(shard, part):
            suffix = f":{exact_bucket(number) if kind is SeenKind.EXACT else number}"
            if kind is SeenKind.BLOOM:
                segment = await self._read(client.get(key + suffix))
                yield suffix, [segment] if segment else []
            else:
                yield suffix, list(await self._read(client.smembers(key + suffix)))
            number += 1

    async def _buckets(self, shard: SeenShard, part: PartState) -> int:
        if shard.state.kind is SeenKind.BLOOM:
            return -(-part.size // 1024)
        if shard.state.kind is SeenKind.EXACT:  # it may grow meanwhile
            client = self._client(shard.keys)
            head = await self._read(client.hmget(shard.base, "part", "size"))
            if int(head[0]) == part.number:
                return int(head[1])
            record = await self._read(client.hget(f"{shard.base}:parts", str(part.number)))
            return int(record.split()[1]) if record else 0
        return part.size

    async def state(self, shard: SeenShard) -> SeenState:
        """What a shard keeps of what it has seen, as it is now."""
        state = await read_seen(self._client(shard.keys), shard.base)
        if state is None:
            raise ConfigError("what was seen was forgotten meanwhile: begin again")
        return state

    async def sure(self, shard: SeenShard) -> list[int]:
        """Requests of a shard that no error of the filter may drop."""
        found = await self._read(self._client(shard.keys).smembers(f"{shard.base}:sure"))
        return sorted(int(mark) for mark in found)

    async def pages(self, shard: SeenShard, key: str) -> AsyncIterator[dict[bytes, bytes]]:
        """A hash of a shard, piece by piece."""
        cursor = 0
        while True:
            cursor, page = await self._read(self._client(shard.keys).hscan(key, cursor, count=PAGE))
            if page:
                yield page
            if cursor == 0:
                return

    async def outbox(self, shard: SeenShard, run: str) -> AsyncIterator[list[Any]]:
        """Requests of a run that wait for being taken to other shards, piece by piece."""
        cursor, key = 0, shard.runs[run].outbox
        while True:
            cursor, page = await self._read(self._client(shard.keys).zscan(key, cursor, count=PAGE))
            if page:
                yield [unpack_row(row) for row, _ in page]
            if cursor == 0:
                return

    # -- import

    async def restore(self, place: SeenPlace, run: str, requests: Iterable[Sequence[Any]]) -> int:
        """Let requests of an exported run enter: id, host, priority, payload, then pairs of pages
        that redirects took for it and links to them; returns how many were not pending."""
        words: dict[int, list[Any]] = {}
        for id, host, priority, payload, *pairs in requests:
            to = shard_of(host, len(place.shards))
            words.setdefault(to, []).extend((id, host, priority, payload, len(pairs) // 2, *pairs))
        added = 0
        for number, its_words in words.items():
            shard = place.shards[number]
            keys = (shard.keys.tag, shard.runs[run].base)
            added += int(await self._caller(shard).call("restore", keys, its_words))
        if added and len(place.shards) > 1:  # the first one says whether the run is done
            first = place.shards[0]
            await self._caller(first).call("reopen", (first.keys.tag, first.runs[run].base), ())
        return added

    async def learn(self, shard: SeenShard, marks: Sequence[bytes]) -> int:
        """Let requests count as seen in a shard; returns how many did not."""
        return int(await self._call(shard, "seen_learn", *marks))

    async def put_part(self, shard: SeenShard, suffix: str, found: Sequence[bytes]) -> None:
        """Put what was in a bucket or segment there again: into a filter with the same parts."""
        client, key = self._client(shard.keys), f"{shard.base}:{suffix}"
        if shard.state.kind is SeenKind.BLOOM:
            await self._read(client.set(key, found[0]))
        else:
            await self._read(client.sadd(key, *found))

    async def put_head(self, shard: SeenShard, head: Fields, records: Fields) -> None:
        """Let the parts and sizes of a shard be those of an export."""
        async with self._client(shard.keys).pipeline(transaction=True) as writing:
            if records:
                writing.hset(f"{shard.base}:parts", mapping=records)
            writing.hset(shard.base, mapping=head)
            await self._read(writing.execute())

    async def put_hosts(self, place: SeenPlace, hosts: dict[str, int]) -> None:
        """Let hosts have been forgotten as often as where the export was made."""
        for host, times in hosts.items():
            shard = place.of_host(host)
            async with self._client(shard.keys).pipeline(transaction=True) as writing:
                writing.hset(f"{shard.base}:hosts", host, str(times))
                writing.hset(shard.base, "hosts", "1")
                await self._read(writing.execute())

    async def put_sure(self, shard: SeenShard, marks: Sequence[int]) -> None:
        """Let these be among the requests that no error may drop."""
        for start in range(0, len(marks), PAGE):
            await self._read(
                self._client(shard.keys).sadd(f"{shard.base}:sure", *marks[start : start + PAGE])
            )

    # -- pieces

    def _caller(self, shard: SeenShard) -> ScriptCaller:
        return ScriptCaller(self._client(shard.keys), self.now)

    async def _call(self, shard: SeenShard, name: str, *words: Any) -> Any:
        keys = (shard.keys.tag, shard.base)
        return await self._caller(shard).call(name, keys, words, shard.state.kind)


def exact_bucket(number: int) -> str:
    """The name of the `number`-th bucket of `exact`, in the order in which they are split off."""
    if number == 0:
        return "00000000"
    low = 1 << (number.bit_length() - 1)
    return f"{(2 * (number - low) + 1) * 2**32 // (2 * low):08x}"
