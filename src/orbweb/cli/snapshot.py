"""Files with what was seen and what waits: lines of JSON, the last says that the file is whole.

An export never calls a page seen whose links it does not know as seen, waiting or ended. It notes
from its first step on which requests leave the run, reads first what is seen, then what waits, then
what has left meanwhile: so whatever it found as seen had ended before the export, or is among the
requests that it holds. An import lets the requests enter first and only then remembers the seen.

Over several shards: all of them note what leaves before any of them is read, and the outboxes of
all are read after the seen and before what waits. A link that is in no outbox any more was
delivered, and so is met where it was taken to: as seen, as waiting or as having left.
"""

from __future__ import annotations

import gzip
import json
import os
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from orbweb.errors import ConfigError
from orbweb.frontier.base import RunConfig
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.frontier.seen_admin import SeenAdmin
from orbweb.frontier.seen_places import SeenPlace, SeenShard
from orbweb.frontier.seen_state import SeenState
from orbweb.frontier.valkey import parse_body
from orbweb.spiders.wording import counted

FORMAT = "orbweb-dedup-2"
LINES = 500
GO_ON_SECONDS = 5.0
WHOLE_FINGERPRINTS = (SeenKind.EXACT, SeenKind.SET)
"""Kinds whose export any kind can import; the others keep too little of a fingerprint for that."""

Head = dict[str, str]


def open_text(path: Path, mode: str) -> IO[str]:
    """The file as text; packed when its name ends in .gz."""
    if path.suffix == ".gz":
        return gzip.open(path, f"{mode}t", encoding="utf-8")  # type: ignore[return-value]
    return path.open(mode, encoding="utf-8")


@dataclass(slots=True)
class Counts:
    """What an export or import has moved."""

    seen: int = 0
    requests: int = 0


class Exporter:
    """Writes one file. The store does a bounded piece of work in each step; nodes may go on."""

    def __init__(self, admin: SeenAdmin, place: SeenPlace, file: IO[str]) -> None:
        self.counts = Counts()
        self._admin = admin
        self._place = place
        self._file = file
        self._spoken = time.monotonic()

    async def write(self) -> None:
        """Write everything.

        Raises `ConfigError` when it took too long for the journal, or a run has open tasks.
        """
        place = self._place
        await self._admin.journal(place, "begin")
        try:
            await self._refuse_tasks()
            self._line("format", FORMAT, place.job, str(place.kind), len(place.shards))
            for shard in place.shards:
                await self._write_seen(shard)
            for shard in place.shards:
                await self._write_outboxes(shard)
            for shard in place.shards:
                for run in shard.runs:
                    await self._write_requests(shard, run)
            await self._admin.journal(place, "go_on")
        finally:
            await self._admin.journal(place, "end")
        self._line("end", self.counts.seen, self.counts.requests)

    async def _refuse_tasks(self) -> None:
        first = self._place.shards[0]
        for run, keys in first.runs.items():
            async for page in self._admin.pages(first, keys.tasks):
                if page:
                    raise ConfigError(
                        f"run {run or 'default'} of {self._place.job} has open tasks, which an "
                        "export does not hold: wait until they have ended "
                        f"(orbweb tasks count {self._place.job})"
                    )

    def _line(self, *words: Any) -> None:
        json.dump(words, self._file, separators=(",", ":"))
        self._file.write("\n")

    async def _go_on(self) -> None:
        if time.monotonic() - self._spoken > GO_ON_SECONDS:
            await self._admin.journal(self._place, "go_on")
            self._spoken = time.monotonic()

    async def _write_seen(self, shard: SeenShard) -> None:
        admin, raw = self._admin, shard.state.kind is SeenKind.BLOOM
        async for suffix, found in admin.members(shard):
            if found:
                words = [_text(one) if raw else int(one) for one in found]
                self._line("seen", shard.number, suffix, words)
            await self._go_on()
        for start in range(0, len(sure := await admin.sure(shard)), LINES):
            self._line("sure", shard.number, sure[start : start + LINES])
        state = await admin.state(shard)
        self.counts.seen += state.count
        self._line("head", shard.number, *_head(state), dict(state.forgotten_hosts))

    async def _write_outboxes(self, shard: SeenShard) -> None:
        """Links that are on their way to another shard; one that is seen there is crawled again."""
        for run in shard.runs:
            async for page in self._admin.outbox(shard, run):
                for link in page:
                    words = (link.id, link.host, link.priority, _text(link.payload))
                    self._line("request", run, *words, [])
                    self.counts.requests += 1
                await self._go_on()

    async def _write_requests(self, shard: SeenShard, run: str) -> None:
        """The order matters: see the head of this module."""
        keys = shard.runs[run]
        visits = await self._whole(shard, keys.visits)
        parked = await self._whole(shard, keys.parked)
        for name in (keys.dead, keys.body):
            async for page in self._pages(shard, name):
                for id, body in page.items():
                    self._request(run, id, body, visits.get(id, b""), parked)
        left = await self._whole(shard, keys.left)
        parked |= {name[1:]: link for name, link in left.items() if name.startswith(b"<")}
        for id, body in left.items():
            if body and not id.startswith((b"<", b">")):
                words = left.get(b">" + id) or visits.get(id, b"")
                self._request(run, id, body, words, parked)

    async def _whole(self, shard: SeenShard, key: str) -> dict[bytes, bytes]:
        return {
            name: value async for page in self._pages(shard, key) for name, value in page.items()
        }

    async def _pages(self, shard: SeenShard, key: str) -> AsyncIterator[dict[bytes, bytes]]:
        async for page in self._admin.pages(shard, key):
            yield page
            await self._go_on()

    def _request(
        self, run: str, id: bytes, body: bytes, visits: bytes, parked: dict[bytes, bytes]
    ) -> None:
        if id.startswith(b"@"):  # the seeding, or the hold of a resident run
            return
        lease = parse_body(id.decode(), "", body, 0)
        pairs = [(mark.decode(), _text(parked.get(mark, b""))) for mark in visits.split()]
        self._line(
            "request", run, lease.id, lease.host, lease.priority, _text(lease.payload), pairs
        )
        self.counts.requests += 1


@dataclass(slots=True)
class Snapshot:
    """A file that was found whole."""

    path: Path
    job: str = ""
    kind: SeenKind = SeenKind.EXACT
    shards: int = 1
    heads: dict[int, tuple[Head, Head]] = field(default_factory=dict)
    """What each shard keeps of its last part, and of the older ones."""
    hosts: dict[str, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)

    def lines(self, name: str) -> Iterator[list[Any]]:
        """The words of all lines of a name."""
        with open_text(self.path, "r") as file:
            for line in file:
                words = json.loads(line)
                if words[0] == name:
                    yield words[1:]


def read_snapshot(path: Path) -> Snapshot:
    """Look through a file. Raises `ConfigError` when it is no export, or not a whole one."""
    snapshot, whole = Snapshot(path), False
    try:
        with open_text(path, "r") as file:
            for number, line in enumerate(file):
                name, *words = json.loads(line)
                if number == 0 and (name, words[0]) != ("format", FORMAT):
                    raise ValueError("it begins otherwise")
                if name == "format":
                    _, snapshot.job, kind, snapshot.shards = words
                    snapshot.kind = SeenKind(kind)
                elif name == "head":
                    shard, head, records, hosts = words
                    snapshot.heads[shard] = head, records
                    snapshot.hosts |= hosts
                elif name == "end":
                    snapshot.counts, whole = Counts(*words), True
    except EOFError as error:
        raise ConfigError(f"{path} breaks off: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except (ValueError, LookupError, TypeError, zlib.error) as error:
        raise ConfigError(f"{path} is no file of `orbweb dedup export`: {error}") from error
    if not whole:
        raise ConfigError(f"{path} breaks off: its export did not come to its end")
    return snapshot


async def load_snapshot(
    admin: SeenAdmin, snapshot: Snapshot, job: str, run: str, *, scope: str
) -> Counts:
    """Put a snapshot into a run, which is made if there is none. Raises `ConfigError`."""
    place = await _target(admin, snapshot, job, run, scope)
    counts = Counts()
    batch: list[tuple[Any, ...]] = []
    for _, id, host, priority, payload, pairs in snapshot.lines("request"):
        words = [word for mark, link in pairs for word in (mark, b64decode(link))]
        batch.append((id, host, priority, b64decode(payload), *words))
        if len(batch) == LINES:
            counts.requests += await admin.restore(place, run, batch)
            batch = []
    counts.requests += await admin.restore(place, run, batch) if batch else 0
    if place.forgotten_hosts != snapshot.hosts:
        await admin.put_hosts(place, snapshot.hosts)
    if snapshot.kind in WHOLE_FINGERPRINTS:
        for number, _, marks in snapshot.lines("seen"):
            shard = place.shards[number if len(place.shards) > 1 else 0]
            counts.seen += await admin.learn(shard, marks)
        return counts
    for number, suffix, found in snapshot.lines("seen"):
        raw = snapshot.kind is SeenKind.BLOOM
        words = [b64decode(one) if raw else one for one in found]
        await admin.put_part(place.shards[number], suffix, words)
    for number, marks in snapshot.lines("sure"):
        await admin.put_sure(place.shards[number], marks)
    for number, head in snapshot.heads.items():
        await admin.put_head(place.shards[number], *head)
    counts.seen = snapshot.counts.seen
    return counts


async def _target(
    admin: SeenAdmin, snapshot: Snapshot, job: str, run: str, scope: str
) -> SeenPlace:
    kind = await admin.kind_of(job, run, scope) or snapshot.kind
    if kind is not snapshot.kind and snapshot.kind not in WHOLE_FINGERPRINTS:
        raise ConfigError(
            f"{snapshot.path} holds a {snapshot.kind} filter, {job} remembers seen URLs as {kind}: "
            "only exports of exact and set can be imported as another kind"
        )
    _check_shards(snapshot, admin.shards)
    place = await admin.make(job, run, RunConfig(dedup_scope=scope, seen=SeenConfig(kind)))
    if snapshot.kind not in WHOLE_FINGERPRINTS and place.count:
        raise ConfigError(
            f"{job} has seen {place.count} URLs: a {snapshot.kind} filter can only be "
            f"imported where nothing was seen. First: orbweb reset {job} --seen"
        )
    if place.count and place.forgotten_hosts != snapshot.hosts:
        raise ConfigError(
            f"hosts were forgotten in {snapshot.path} or in {job} that were not in the other, so "
            f"what they remember does not fit together. First: orbweb reset {job} --seen"
        )
    return place


def _check_shards(snapshot: Snapshot, shards: int) -> None:
    """What a shard has seen does not say of which host it is, so it cannot be divided."""
    joined = shards == 1 and snapshot.kind in WHOLE_FINGERPRINTS
    if shards == snapshot.shards or joined:
        return
    right = f"FRONTIER_SHARDS = {snapshot.shards}"
    if snapshot.kind in WHOLE_FINGERPRINTS:
        right += ", or 1"
    raise ConfigError(
        f"{snapshot.path} was exported from {counted(snapshot.shards, 'shard')}, FRONTIER_SHARDS "
        f"is {shards}: what is seen does not say of which host it is, so it cannot be "
        f"divided among other shards. Right would be {right}"
    )


def _head(state: SeenState) -> tuple[Head, Head]:
    """The parts as the store keeps them."""
    *older, last = state.parts
    records = {
        str(part.number): " ".join(
            str(n) for n in (part.count, part.size, part.capacity, part.layer, part.begun_ms)
        )
        for part in older
    }
    head = {
        "plan": state.plan,
        "part": last.number,
        "first": state.parts[0].number,
        "count": last.count,
        "size": last.size,
        "capacity": last.capacity,
        "layer": last.layer,
        "begun": last.begun_ms,
    }
    return {name: str(value) for name, value in head.items()}, records


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def finish(temporary: Path, path: Path) -> None:
    """Let a written file take its name, so that it is there whole or not at all."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
