"""From scrapy-redis's keys into the frontier: the queue, the duplicate filter, the start entries.

The keys of scrapy-redis are only read until everything was checked, and a repeated step changes
nothing, so a migration that was killed is begun again. First the requests enter, each with its mark
in one step, and only then the other marks: so no request is taken for one that was seen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
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

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class OldKeys:
    """Names of scrapy-redis's keys of one spider."""

    queue: str
    seen: str
    starts: str


@dataclass(frozen=True, slots=True)
class OldCounts:
    """How much there is in them."""

    requests: int
    seen: int
    starts: int


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

    async def delete(self, check: Callable[[], Any], refused: Callable[[], Any]) -> None:
        """Check, keep what was refused in `<queue>:refused`, and delete the keys, in one step.

        Raises `ConfigError` when something has changed them meanwhile.
        """
        keys = (self.keys.queue, self.keys.seen)
        async with self.client.pipeline(transaction=True) as pipe:
            await answer_of(pipe.watch(*keys))
            await check()
            kept = await refused()
            pipe.multi()  # type: ignore[no-untyped-call]
            for start in range(0, len(kept), PAGE):
                pipe.rpush(f"{self.keys.queue}:refused", *kept[start : start + PAGE])
            pipe.delete(*keys)
            try:
                await answer_of(pipe.execute())
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, WatchError):
                    raise
                raise ConfigError(
                    f"{' or '.join(keys)} was changed meanwhile: stop all workers of scrapy-redis, "
                    "then migrate once more. Nothing was deleted"
                ) from error

    async def _expect(self, key: str, *kinds: str) -> None:
        kind = await self.type(key)
        if kind not in (*kinds, "none"):
            raise ConfigError(f"{key} is a {kind}; scrapy-redis keeps a {' or '.join(kinds)} there")

    async def _execute(self, *words: Any) -> Any:
        return await answer_of(self.client.execute_command(*words))  # type: ignore[no-untyped-call]


class Reader:
    """Makes requests for the frontier of what scrapy-redis has stored. Executes nothing."""

    def __init__(self, key: str, order: str) -> None:
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
        origin = (self._key, str(place))
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

    async def move(self) -> Report:
        """Let requests enter, then remember what was seen. Raises `StoreUnavailable`."""
        report = self.report
        async for page in self._old.requests():
            good = list(read_page(self._reader, page, report.refused))
            report.requests += len(page)
            report.entered += await self._frontier.add(good)
        async for marks in self._old.marks():
            report.seen += len(marks)
            known = list(read_marks(marks, report.refused))
            report.learned += await self._seen.learn(self._shard, known)
        return report

    async def check(self) -> None:
        """Read everything once more and ask for it. Raises `ConfigError` when some is missing."""
        missing, ignored = 0, dict[str, int]()
        async for page in self._old.requests():
            good = list(read_page(self._reader, page, ignored))
            marks = [b"%d" % one.fingerprint for one in good if one.fingerprint is not None]
            missing += await self._seen.learn(self._shard, marks)
        async for members in self._old.marks():
            missing += await self._seen.learn(self._shard, list(read_marks(members, ignored)))
        if missing:
            raise ConfigError(
                f"{missing} requests or marks are not in the frontier: the source was changed "
                "meanwhile, or the target reset. Migrate once more"
            )

    async def refused(self) -> list[bytes]:
        """The stored requests that could not be read."""
        found: list[bytes] = []
        async for page in self._old.requests():
            for place, stored in page:
                if not list(read_page(self._reader, [(place, stored)], {})):
                    found.append(stored)
        return found


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
    reader: Reader, page: Iterable[tuple[int, bytes]], refused: dict[str, int]
) -> Iterable[NewRequest]:
    """The requests of a page; those that cannot be read are counted."""
    for place, stored in page:
        try:
            yield reader.request(place, stored)
        except (UnserialisableError, ValueError, TypeError, LookupError) as error:
            _tally(refused, str(error))


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
