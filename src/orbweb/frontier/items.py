"""What the store knows of items: which are stored, which failed, what nodes counted. No Lua."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec
from redis.asyncio import Redis

from orbweb.frontier.keys import RunKeys, ShardKeys
from orbweb.frontier.server import answer_of

COUNTS_SECONDS = 30 * 86_400
"""Marks and counts of a run are kept for this long after its last sign of life."""

HISTORY = 50
"""Finished runs of a job whose counts are kept."""

PAGE = 500

TIME_BYTES = 8


class FailedItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item that a pipeline can never store as it is."""

    key: str
    table: str
    pipeline: str
    error: str
    at_ms: int
    """The node's wall clock, milliseconds since 1970."""
    url: str
    """The page that it comes from."""
    request_id: str
    part: int = 0
    unique: tuple[str, ...] = ()
    envelope: bytes = b""
    """The item (see `orbweb.kafka.envelope`); empty when it cannot travel, so not be replayed."""

    @property
    def id(self) -> str:
        """Its name in the store: an item may fail in several pipelines."""
        return f"{self.key} {self.pipeline}"


class Mark(NamedTuple):
    """An item and its place: another place with the same item is a repetition."""

    item: bytes
    place: bytes


class ItemBook(Protocol):
    """What a node reads and writes of a run's items.

    Every call may be repeated with the same arguments, and raises `StoreUnavailable` when the
    store does not answer.
    """

    def attach(self, epoch: str) -> None:
        """Work on this incarnation of the run; comes before all else."""

    async def known(self, items: Sequence[bytes]) -> list[bool]:
        """Which of these items are remembered as stored."""

    async def remember(self, items: Sequence[bytes]) -> None:
        """Note items as stored; call it when they are durable, never before."""

    async def repeated(self, marks: Sequence[Mark]) -> tuple[list[bool], int]:
        """Note marks; which of the items were noted at another place, and how many are noted."""

    async def keep_failed(self, failed: Sequence[FailedItem]) -> None:
        """Keep failed items until somebody replays or drops them."""

    async def tell(self, node: str, counts: bytes) -> None:
        """Put down what a node has counted so far, in the place of what it said before."""


class RunCounts(Protocol):
    """What nodes have counted: in this run, and in the finished runs of the job."""

    async def told(self) -> dict[str, bytes]:
        """What each node of the run has said last."""

    async def history(self) -> list[bytes]:
        """What has been put down of the job's other runs, the latest last."""

    async def enter_history(self, ended_at_ms: int, counts: bytes) -> None:
        """Put down what this run has come to, in the place of what was put down before.

        Of very many runs the oldest are forgotten.
        """


@dataclass(slots=True)
class MemoryItemBook:
    """See `ItemBook` and `RunCounts`. For a run that lives in one process."""

    failed: dict[str, FailedItem] = field(default_factory=dict)
    _items: set[bytes] = field(default_factory=set)
    _marks: dict[bytes, bytes] = field(default_factory=dict)
    _told: dict[str, bytes] = field(default_factory=dict)

    def attach(self, epoch: str) -> None:
        """There is only one run."""

    async def known(self, items: Sequence[bytes]) -> list[bool]:
        return [item in self._items for item in items]

    async def remember(self, items: Sequence[bytes]) -> None:
        self._items.update(items)

    async def repeated(self, marks: Sequence[Mark]) -> tuple[list[bool], int]:
        flags = [self._marks.setdefault(item, place) != place for item, place in marks]
        return flags, len(self._marks)

    async def keep_failed(self, failed: Sequence[FailedItem]) -> None:
        self.failed.update({each.id: each for each in failed})

    async def tell(self, node: str, counts: bytes) -> None:
        self._told[node] = counts

    async def told(self) -> dict[str, bytes]:
        return dict(self._told)

    async def history(self) -> list[bytes]:
        return []

    async def enter_history(self, ended_at_ms: int, counts: bytes) -> None:
        """What is in memory has no history."""


class ValkeyItemBook:
    """See `ItemBook` and `RunCounts`."""

    def __init__(self, client: Redis, prefix: str, job: str, run: str, *, shared: bool) -> None:
        """`shared`: what is stored is remembered for all runs of the job."""
        self._client = client
        self._shard = ShardKeys(prefix)
        self._job = job
        self._run_id = run
        self._shared = shared
        self._run: RunKeys | None = None
        self._epoch = ""

    @property
    def epoch(self) -> str:
        """The incarnation of the run; empty before `attach`."""
        return self._epoch

    def attach(self, epoch: str) -> None:
        self._epoch = epoch
        self._run = self._shard.run(self._job, self._run_id, epoch)

    @property
    def _keys(self) -> RunKeys:
        assert self._run is not None, "attach comes first"
        return self._run

    @property
    def _items(self) -> str:
        return self._shard.job_items(self._job) if self._shared else self._keys.items

    async def known(self, items: Sequence[bytes]) -> list[bool]:
        flags = await answer_of(self._client.smismember(self._items, list(items)))
        return [bool(flag) for flag in flags]

    async def remember(self, items: Sequence[bytes]) -> None:
        await answer_of(self._client.sadd(self._items, *items))

    async def repeated(self, marks: Sequence[Mark]) -> tuple[list[bool], int]:
        key: Any = self._keys.marks
        pipe: Any = self._client.pipeline(transaction=False)
        for mark in marks:
            pipe.hsetnx(key, *mark)
        pipe.hmget(key, [mark.item for mark in marks])
        pipe.hlen(key)
        pipe.expire(key, COUNTS_SECONDS)
        *_, places, noted, _ = await answer_of(pipe.execute())
        return [place != mark.place for mark, place in zip(marks, places, strict=True)], noted

    async def keep_failed(self, failed: Sequence[FailedItem]) -> None:
        rows: dict[Any, Any] = {each.id: msgspec.msgpack.encode(each) for each in failed}
        await answer_of(self._client.hset(self._keys.failed_items, mapping=rows))

    async def failed(self) -> list[FailedItem]:
        """All failed items of the run, the oldest first. The error of one that cannot be read says
        so, and it has no envelope."""
        found: list[FailedItem] = []
        cursor = 0
        while True:
            cursor, page = await answer_of(
                self._client.hscan(self._keys.failed_items, cursor, count=PAGE)
            )
            found += [_failed_item(name, row) for name, row in page.items()]
            if cursor == 0:
                unique = {each.id: each for each in found}
                return sorted(unique.values(), key=lambda each: (each.at_ms, each.id))

    async def drop_failed(self, ids: Sequence[str]) -> None:
        """Forget failed items."""
        if ids:
            await answer_of(self._client.hdel(self._keys.failed_items, *ids))

    async def tell(self, node: str, counts: bytes) -> None:
        key = self._keys.quality
        pipe = self._client.pipeline(transaction=False)
        pipe.hset(key, node, counts)
        pipe.expire(key, COUNTS_SECONDS)
        await answer_of(pipe.execute())

    async def told(self) -> dict[str, bytes]:
        return _named(await answer_of(self._client.hgetall(self._keys.quality)))

    async def history(self) -> list[bytes]:
        found = await answer_of(self._client.hgetall(self._shard.job_quality(self._job)))
        others = [entry for name, entry in found.items() if name.decode() != self._epoch]
        return [entry[TIME_BYTES:] for entry in sorted(others)]

    async def entered(self) -> bytes | None:
        """What `enter_history` has put down of this run, which may be gone; None for nothing."""
        found = await answer_of(self._client.hget(self._shard.job_quality(self._job), self._epoch))
        return bytes(found[TIME_BYTES:]) if found else None

    async def enter_history(self, ended_at_ms: int, counts: bytes) -> None:
        key = self._shard.job_quality(self._job)
        entry = ended_at_ms.to_bytes(TIME_BYTES, "big") + counts  # sorts by its time
        await answer_of(self._client.hset(key, self._epoch, entry))
        found = await answer_of(self._client.hgetall(key))
        oldest = sorted(found, key=lambda name: bytes(found[name]))[:-HISTORY]
        if oldest:
            await answer_of(self._client.hdel(key, *oldest))


def _failed_item(name: bytes, row: bytes) -> FailedItem:
    try:
        return msgspec.msgpack.decode(row, type=FailedItem)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        key, _, pipeline = name.decode(errors="replace").partition(" ")
        text = f"this record cannot be read, it was written by another version: {error}"
        return FailedItem(key, "", pipeline, text, 0, "", "")


def _named(found: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): value for name, value in found.items()}
