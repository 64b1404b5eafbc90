"""What a node does with items besides storing them: leave out known ones, count, keep failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b

from orbweb.errors import ItemError, UnserialisableError
from orbweb.frontier.items import FailedItem, ItemBook, Mark
from orbweb.kafka.envelope import Envelope, encode
from orbweb.log import writable
from orbweb.model.item import KEY_FIELD, ItemRecord, Origin
from orbweb.model.values import pack, to_bytes
from orbweb.monitor import quality
from orbweb.monitor.quality import Tally
from orbweb.pipelines.buffer import Rejected

ITEM_BYTES = 8
PLACE_BYTES = 4

MARK_ALL = 100_000
"""Items of a run that are all compared with each other; after that one of `SAMPLE` is."""

SAMPLE = 16

MARKS_AT_ONCE = 500
MOST_MARKS = 20_000
"""That wait for the store; what comes when there are more is not compared."""

LONGEST_ERROR = 2000


class ItemDesk:
    """One node's item filter, counts and failed items. Counts are told to the store by `flush`."""

    def __init__(
        self, book: ItemBook, *, node: str, filters: bool, counts: bool, wall_ms: Callable[[], int]
    ) -> None:
        """`filters`: leave out items whose `__unique_key__` is stored already.

        `counts`: count fields and repetitions. `wall_ms`: milliseconds since 1970.
        """
        self.tally = Tally()
        self._book = book
        self._node = node
        self._filters = filters
        self._counts = counts
        self._wall_ms = wall_ms
        self._marks: list[Mark] = []
        self._weight = 1
        self._told = b""
        self._owners: dict[bytes, object] = {}
        self._claims: dict[object, list[bytes]] = {}
        self._sent: dict[object, set[bytes]] = {}
        self._released: dict[object, asyncio.Event] = {}

    def attach(self, epoch: str) -> None:
        """Work for this incarnation of the run."""
        self._book.attach(epoch)

    async def fresh(self, records: Sequence[ItemRecord], owner: object) -> list[ItemRecord]:
        """The records without those that are stored already, or come twice in this page.

        The others are the `owner`'s to store, until `release`. Who comes with the same item
        meanwhile waits: whether it is stored is not known before. Only who has nothing of its own
        to store does, so that two long pages never wait for each other: of an item that comes in
        the later parts of both, both are stored.
        """
        names = [_filter_name(record) if self._filters else None for record in records]
        asked = list(dict.fromkeys(name for name in names if name is not None))
        if not asked:
            return list(records)
        while owner not in self._claims and (other := self._other_owner(asked, owner)):
            await self._released[other].wait()
        free = [name for name in asked if name not in self._owners]
        self._owners.update(dict.fromkeys(free, owner))
        self._claims.setdefault(owner, []).extend(free)
        self._released.setdefault(owner, asyncio.Event())
        flags = await self._book.known(asked)
        sent = self._sent.setdefault(owner, set())
        known = {name for name, flag in zip(asked, flags, strict=True) if flag} | sent
        kept = []
        for record, name in zip(records, names, strict=True):
            if name is None or name not in known:
                kept.append(record)
            if name is not None:
                known.add(name)
        sent.update(asked)
        return kept

    def _other_owner(self, names: Sequence[bytes], owner: object) -> object | None:
        """Somebody else who is storing one of these items."""
        owners = (self._owners.get(name, owner) for name in names)
        return next((one for one in owners if one is not owner), None)

    def release(self, owner: object) -> None:
        """What the owner was to store is stored and remembered, or will never be."""
        released = self._released.pop(owner, None)
        if released is not None:
            self._sent.pop(owner, None)
            for name in self._claims.pop(owner):
                self._owners.pop(name, None)
            released.set()

    async def durable(self, records: Sequence[ItemRecord], rejected: Sequence[Rejected]) -> None:
        """Remember what is stored. A record that one pipeline has refused is not."""
        failed = {each.record.key for each in rejected}
        names = [
            name
            for record in records
            if self._filters and record.key not in failed and (name := _filter_name(record))
        ]
        if names:
            await self._book.remember(names)

    async def keep_failed(self, rejected: Sequence[Rejected], origin: Origin, url: str) -> None:
        """Keep the records of one part of a page that pipelines have refused."""
        if rejected:
            at_ms = self._wall_ms()
            await self._book.keep_failed([_failed(each, origin, url, at_ms) for each in rejected])

    def count(self, records: Sequence[ItemRecord], origin: Origin) -> None:
        """Count the items of one part of a page."""
        if not self._counts:
            return
        for number, record in enumerate(records):
            if record.update_keys is not None:
                continue
            self.tally.see(record.table, record.row)
            item = _content(record)
            if item and (self._weight == 1 or item[0] % SAMPLE == 0):
                place = f"{origin.request_id} {origin.part} {number}".encode()
                mark = Mark(item, blake2b(place, digest_size=PLACE_BYTES).digest())
                if len(self._marks) < MOST_MARKS:
                    self._marks.append(mark)

    async def flush(self) -> None:
        """Compare what waits with the items of all nodes, and tell the counts."""
        while self._marks:
            marks = self._marks[:MARKS_AT_ONCE]
            flags, noted = await self._book.repeated(marks)
            del self._marks[: len(marks)]
            self.tally.checked += len(marks) * self._weight
            self.tally.repeated += sum(flags) * self._weight
            if noted >= MARK_ALL and self._weight == 1:
                self._weight = SAMPLE
                self._marks = [mark for mark in self._marks if mark.item[0] % SAMPLE == 0]
        counts = quality.encode(self.tally)
        if self._counts and self.tally.items and counts != self._told:
            await self._book.tell(self._node, counts)
            self._told = counts


def _filter_name(record: ItemRecord) -> bytes | None:
    """What an item is remembered by; None for one that can be no duplicate."""
    if not record.unique or record.update_keys is not None:
        return None
    return bytes.fromhex(record.key)[:ITEM_BYTES]


def _content(record: ItemRecord) -> bytes:
    """What makes an item the same as another: its unique key, else all that is in it."""
    if record.unique:
        return bytes.fromhex(record.key)[:ITEM_BYTES]
    row = {name: value for name, value in record.row.items() if name != KEY_FIELD}
    with suppress(UnserialisableError):
        packed = to_bytes(pack([record.table, sorted(row.items())], "item"), "item")
        return blake2b(packed, digest_size=ITEM_BYTES).digest()
    return b""


def _failed(rejected: Rejected, origin: Origin, url: str, at_ms: int) -> FailedItem:
    record = rejected.record
    return FailedItem(
        key=record.key,
        table=record.table,
        pipeline=rejected.pipeline,
        error=writable(str(rejected.error))[:LONGEST_ERROR],
        at_ms=at_ms,
        url=url,
        request_id=origin.request_id,
        part=origin.part,
        unique=record.unique,
        envelope=_envelope(record, origin),
    )


def _envelope(record: ItemRecord, origin: Origin) -> bytes:
    """The record as bytes; empty when a value of it cannot travel."""
    with suppress(ItemError):
        return encode(
            Envelope(
                key=record.key,
                table=record.table,
                row=record.row,
                run=origin.run,
                update_keys=record.update_keys,
                version=origin.claimed_at_ms,
            )
        )
    return b""
