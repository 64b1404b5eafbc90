"""From scrapy-redis's keys into the frontier: the queue, the duplicate filter, the start entries.

A repeated step changes nothing, so a migration that was killed is begun again. First the requests
enter, each with its mark in one step, and only then the other marks: so no request is taken for one
that was seen.

The keys of scrapy-redis are only read. To be deleted they are first renamed, so what a worker still
pushes goes into new keys, and is moved after the rest or left for the next time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import WatchError
from scrapy import Request
from scrapy.utils.request import request_from_dict

from orbweb.adapters.scrapy import picklecompat
from orbweb.adapters.scrapy.codec import RequestCodec
from orbweb.adapters.scrapy.dupefilter import set_fingerprint
from orbweb.adapters.scrapy.entry import Entry
from orbweb.adapters.scrapy.identity import signed
from orbweb.errors import ConfigError, StoreUnavailable, UnserialisableError
from orbweb.frontier.base import NewRequest
from orbweb.frontier.seen_admin import SeenAdmin
from orbweb.frontier.seen_places import SeenPlace
from orbweb.frontier.server import answer_of
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.frontier.valkey import ValkeyFrontier

PAGE = 500
COUNT = {"list": "LLEN", "set": "SCARD", "zset": "ZCARD"}

MOST_SWEEPS = 10
"""How often a queue is emptied into which workers still push; then they are to be stopped."""

ROUNDS_SECONDS = 30 * 86_400
"""How long is remembered that a queue was moved, which may fill up again."""


@dataclass(frozen=True, slots=True)
class OldKeys:
    """Names of scrapy-redis's keys of one spider."""

    queue: str
    seen: str
    starts: str

    @property
    def apart(self) -> OldKeys:
        """Queue and filter out of the reach of workers."""
        return replace(self, queue=f"{self.queue}:migrating", seen=f"{self.seen}:migrating")

    @property
    def moved(self) -> tuple[str, str]:
        """Those that a migration takes over."""
        return self.queue, self.seen

    @property
    def rounds(self) -> str:
        """How often a queue of this name was moved and deleted."""
        return f"{self.queue}:migrated"


@dataclass(frozen=True, slots=True)
class OldCounts:
    """How much there is in them."""

    requests: int = 0
    seen: int = 0
    starts: int = 0


@dataclass(slots=True)
class Report:
    """What became of everything that was read."""

    requests: int = 0
    entered: int = 0
    """Requests that were not in the frontier before; the others were, or came twice."""
    refused: dict[str, int] = field(default_factory=dict)
    """Why requests and marks could not be read, and how many of each."""
    seen: int = 0
    learned: int = 0
    """Marks that were not there before, without those of the requests."""
    starts: int = 0
    starts_stay: bool = False
    """The spider reads the start entries where they are."""
    left: int = 0
    """Requests and marks that a worker has written while the others were moved and deleted."""


class OldCrawl:
    """What scrapy-redis has left of a spider. Reading changes nothing."""

    def __init__(self, client: Redis, keys: OldKeys, order: str) -> None:
        """`order`: of a list; a sorted set says its order itself."""
        self.client = client
        self.keys = keys
        self.order = order

    async def counts(self) -> OldCounts:
        """Raises `ConfigError` when a key is of a type that scrapy-redis does not use for it."""
        await self._expect(self.keys.queue, "list", "zset")
        await self._expect(self.keys.seen, "set")
        await self._expect(self.keys.starts, "list", "set", "zset")
        return OldCounts(
            await self.count(self.keys.queue),
            await self.count(self.keys.seen),
            await self.count(self.keys.starts),
        )

    async def type(self, key: str) -> str:
        """`list`, `set`, `zset`, `none`, or another."""
        return str((await answer_of(self.client.type(key))).decode())

    async def count(self, key: str) -> int:
        """Members of a key."""
        command = COUNT.get(await self.type(key))
        if command is None:
            return 0
        return int(await self._execute(command, key))

    async def requests(self) -> AsyncIterator[list[tuple[int, bytes]]]:
        """The stored requests with their places, in the order in which they would be popped."""
        key, total = self.keys.queue, await self.count(self.keys.queue)
        ranked = await self.type(key) == "zset"
        backwards = not ranked and self.order != "lifo"
        for start in range(0, total, PAGE):
            places = range(start, min(start + PAGE, total))
            if backwards:
                places = range(total - 1 - places[0], total - 2 - places[-1], -1)
            command = "ZRANGE" if ranked else "LRANGE"
            found = await self._execute(command, key, min(places), max(places))
            yield list(zip(places, reversed(found) if backwards else found, strict=True))

    async def marks(self) -> AsyncIterator[list[bytes]]:
        """The members of the duplicate filter; one may come twice."""
        cursor: int = 0
        while True:
            cursor, found = await answer_of(self.client.sscan(self.keys.seen, cursor, count=PAGE))
            if found:
                yield list(found)
            if not cursor:
                return

    async def starts(self, behind: int) -> AsyncIterator[list[Any]]:
        """The start entries after the first so many; of a sorted set with their scores."""
        key = self.keys.starts
        kind, total = await self.type(key), await self.count(key)
        if kind == "set":
            entries = sorted(await answer_of(self.client.smembers(key)))
        for start in range(behind, total, PAGE):
            last = start + PAGE - 1
            if kind == "list":
                yield await self._execute("LRANGE", key, start, last)
            elif kind == "zset":
                yield await answer_of(self.client.zrange(key, start, last, withscores=True))
            else:
                yield entries[start : last + 1]

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """Raises `ConfigError` at the end when queue or filter has been written to meanwhile."""
        keys = self.keys.moved
        async with self.client.pipeline(transaction=True) as pipe:
            await answer_of(pipe.watch(*keys))
            yield
            pipe.multi()  # type: ignore[no-untyped-call]
            pipe.exists(*keys)
            try:
                await answer_of(pipe.execute())
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, WatchError):
                    raise
                raise ConfigError(
                    f"{' or '.join(keys)} was changed meanwhile, so a request may be taken for "
                    "seen. Stop all workers of scrapy-redis, `orbweb reset` the job, then migrate "
                    "once more. Nothing was deleted"
                ) from error

    async def set_apart(self) -> OldCrawl:
        """Queue and filter, from now on out of the reach of workers.

        Those that a migration that was killed has set apart come first.
        """
        apart = OldCrawl(self.client, self.keys.apart, self.order)
        await self.set_queue_apart()
        await self._rename(self.keys.seen, self.keys.apart.seen)
        return apart

    async def set_queue_apart(self) -> None:
        """See `set_apart`; does nothing while one is apart."""
        await self._rename(self.keys.queue, self.keys.apart.queue)

    async def round(self) -> int:
        """How often a queue of this name was moved and deleted: places begin anew each time."""
        return int(await answer_of(self.client.get(self.keys.rounds)) or 0)

    async def delete_apart(self, refused: Sequence[bytes]) -> None:
        """Delete the queue that was set apart; what was refused stays in `<queue>:refused`."""
        async with self.client.pipeline(transaction=True) as pipe:
            for start in range(0, len(refused), PAGE):
                pipe.rpush(f"{self.keys.queue}:refused", *refused[start : start + PAGE])
            pipe.delete(self.keys.apart.queue)
            pipe.incr(self.keys.rounds)
            pipe.expire(self.keys.rounds, ROUNDS_SECONDS)
            await answer_of(pipe.execute())

    async def _rename(self, source: str, target: str) -> None:
        try:
            await self._execute("RENAMENX", source, target)
        except StoreUnavailable as error:
            if "no such key" not in str(error):
                raise

    async def _expect(self, key: str, *kinds: str) -> None:
        kind = await self.type(key)
        if kind not in (*kinds, "none"):
            raise ConfigError(f"{key} is a {kind}; scrapy-redis keeps a {' or '.join(kinds)} there")

    async def _execute(self, *words: Any) -> Any:
        return await answer_of(self.client.execute_command(*words))  # type: ignore[no-untyped-call]


class Reader:
    """Makes requests for the frontier of what scrapy-redis has stored. Executes nothing."""

    def __init__(self, key: str, order: str) -> None:
        self.round = 0
        """Which queue of that key: what is not filtered is told apart by its place in one."""
        self._key = key
        self._codec = RequestCodec(None)
        self._entry = Entry(lambda request: None, order, "migrated")

    def request(self, place: int, stored: bytes) -> NewRequest:
        """Raises `UnserialisableError` when it cannot be read or cannot travel."""
        record = picklecompat.loads(stored)
        if not isinstance(record, dict) or not isinstance(record.get("url"), str):
            raise UnserialisableError("it is no request")
        payload = self._codec.encode_record(record)
        request = _bare(record)
        if not request.dont_filter:
            return self._entry.admit(
                request, payload, signed(bytes.fromhex(set_fingerprint(request)))
            )
        origin = (self._key, f"{self.round}.{place}" if self.round else str(place))
        return self._entry.admit(request, payload, None, *origin, seed=True)


class Mover:
    """Moves one spider. Every step may be repeated."""

    def __init__(
        self,
        old: OldCrawl,
        reader: Reader,
        frontier: ValkeyFrontier | ShardedFrontier,
        seen: SeenAdmin,
        place: SeenPlace,
    ) -> None:
        self.report = Report()
        self._old = old
        self._reader = reader
        self._frontier = frontier
        self._seen = seen
        self._shard = place.shards[0]

    async def copy(self) -> None:
        """Move all and leave the source as it is.

        Raises `StoreUnavailable`, and `ConfigError` when not all could be moved.
        """
        async with self._old.unchanged():
            await self._requests(self._old)
            await self._marks(self._old)

    async def empty(self) -> None:
        """Move all and delete the source, also what is written to it meanwhile. Raises as `copy`.

        The marks come last: a request whose mark is among them may be pushed a moment later.
        """
        old = self._old
        apart = await old.set_apart()
        for _ in range(MOST_SWEEPS):
            if not await apart.count(apart.keys.queue):
                break
            self._reader.round = await old.round()
            await old.delete_apart(await self._requests(apart))
            await old.set_queue_apart()
        await self._marks(apart)
        await answer_of(old.client.delete(apart.keys.seen))
        self.report.left = sum(
            [await each.count(key) for each in (old, apart) for key in each.keys.moved]
        )

    async def _requests(self, old: OldCrawl) -> list[bytes]:
        """Let requests enter, then ask for each; returns those that cannot be read."""
        report, refused = self.report, list[bytes]()
        async for page in old.requests():
            good = list(read_page(self._reader, page, report.refused))
            report.requests += len(page)
            report.entered += await self._frontier.add(good)
        async for page in old.requests():
            good = list(read_page(self._reader, page, {}, refused.append))
            marks = [b"%d" % one.fingerprint for one in good if one.fingerprint is not None]
            await self._expect_all(marks)
        return refused

    async def _marks(self, old: OldCrawl) -> None:
        """Remember what was seen, then ask for each."""
        report = self.report
        async for marks in old.marks():
            report.seen += len(marks)
            known = list(read_marks(marks, report.refused))
            report.learned += await self._seen.learn(self._shard, known)
        async for marks in old.marks():
            await self._expect_all(list(read_marks(marks, {})))

    async def _expect_all(self, marks: Sequence[bytes]) -> None:
        missing = await self._seen.learn(self._shard, marks)
        if missing:
            raise ConfigError(
                f"{missing} requests or marks are not in the frontier: the source was changed "
                "meanwhile, or the target reset. Migrate once more"
            )


async def copy_starts(old: OldCrawl, target: Redis, key: str) -> int:
    """Copy start entries to another server; returns how many are there. A killed copy goes on.

    How many were copied stands beside them until the source is deleted.
    """
    marker, kind = f"{key}:migrated", await old.type(old.keys.starts)
    done = int(await answer_of(target.get(marker)) or 0)
    async for page in old.starts(done):
        async with target.pipeline(transaction=True) as pipe:
            if kind == "list":
                pipe.rpush(key, *page)
            elif kind == "set":
                pipe.sadd(key, *page)
            else:
                pipe.zadd(key, dict(page))
            done += len(page)
            pipe.set(marker, done)
            await answer_of(pipe.execute())
    return done


async def forget_starts(old: OldCrawl, target: Redis, key: str, copied: int) -> None:
    """Delete the start entries that were copied. Raises `ConfigError` when there are more now."""
    async with old.client.pipeline(transaction=True) as pipe:
        await answer_of(pipe.watch(old.keys.starts))
        if await old.count(old.keys.starts) != copied:
            raise ConfigError(f"{old.keys.starts} has changed: migrate once more")
        pipe.multi()  # type: ignore[no-untyped-call]
        pipe.delete(old.keys.starts)
        await answer_of(pipe.execute())
    await answer_of(target.delete(f"{key}:migrated"))


def read_page(
    reader: Reader,
    page: Iterable[tuple[int, bytes]],
    refused: dict[str, int],
    keep: Callable[[bytes], None] = lambda stored: None,
) -> Iterable[NewRequest]:
    """The requests of a page; those that cannot be read are counted, and given to `keep`."""
    for place, stored in page:
        try:
            yield reader.request(place, stored)
        except (UnserialisableError, ValueError, TypeError, LookupError) as error:
            _tally(refused, str(error))
            keep(stored)


def read_marks(members: Iterable[bytes], refused: dict[str, int]) -> Iterable[bytes]:
    """Members of a duplicate filter as the frontier's fingerprints."""
    for member in members:
        try:
            yield b"%d" % signed(bytes.fromhex(member.decode()))
        except ValueError:
            _tally(refused, "a member of the duplicate filter is no hexadecimal fingerprint")


def _tally(refused: dict[str, int], reason: str) -> None:
    refused[reason] = refused.get(reason, 0) + 1


def _bare(record: dict[str, Any]) -> Request:
    """The request without its callbacks and class, for its identity, host and priority."""
    left_out = ("callback", "errback", "_class")
    kept = {name: value for name, value in record.items() if name not in left_out}
    return request_from_dict(kept)
