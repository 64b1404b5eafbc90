"""An export of what was seen, taken while a crawl goes on, loses no page when it is imported."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from tests.servers import Server

from orbweb.cli import snapshot as snapshot_module
from orbweb.cli.snapshot import Exporter, load_snapshot, open_text, read_snapshot
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.base import Ack, Frontier, Nack, NewRequest, RunConfig, RunState
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.frontier.seen_admin import SeenAdmin
from orbweb.frontier.servers import OneServer
from orbweb.frontier.sharded import ShardedFrontier
from orbweb.frontier.spread import shared_frontier

LEASE_MS = 60_000
PAGES = 1_500
KINDS = ["exact", "compact", "set", "bloom"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture
async def store(server: Server) -> AsyncIterator[OneServer]:
    servers = OneServer(server.url)
    await servers.of_shard(0).flushall()
    yield servers
    await servers.aclose()


def page(number: int) -> NewRequest:
    digest = blake2b(b"%d" % number, digest_size=8).digest()
    mark = int.from_bytes(digest, "big", signed=True)
    return NewRequest(f"p{number}", f"h{number % 11}", 0, mark, b"%d" % number)


class Crawl:
    """Walks a tree of pages; some redirect to another page, which counts for them."""

    def __init__(self, frontier: Frontier, luck: random.Random) -> None:
        self.frontier = frontier
        self.luck = luck
        self.seq = 0
        self.done: set[int] = set()
        """Pages whose content was taken: the request's own, or where its redirect led."""

    def links(self, number: int) -> list[NewRequest]:
        return [page(n) for n in range(3 * number + 1, 3 * number + 4) if n < PAGES]

    async def begin(self) -> None:
        token = (await self.frontier.seed_claim("A", 1, LEASE_MS)).token
        await self.frontier.seed_push(token, 1, True, [page(0)])

    async def step(self, most: int = 8) -> RunState:
        self.seq += 1
        claim = await self.frontier.claim("A", self.seq, most, LEASE_MS)
        for lease in claim.leases:
            number = int(lease.payload)
            if self.luck.random() < 0.1:
                await self.frontier.nack([Nack(*lease.held, counted=False)])
                continue
            taken = [number]
            if number % 9 == 4 and number + 1 < PAGES:  # leads to the page beside it
                free = await self.frontier.visit(
                    *lease.held, page(number + 1).fingerprint or 0, page(number + 1).host
                )
                if free:
                    taken.append(number + 1)
                    if self.luck.random() < 0.5:  # the answer comes later
                        await self.frontier.nack([Nack(*lease.held, counted=False)])
                        continue
            children = [link for one in taken for link in self.links(one)]
            assert await self.frontier.ack([Ack(*lease.held, "done", 0, children)]) == [True]
            self.done.update(taken)
        return claim.state


class Interleaved(SeenAdmin):
    """Lets the crawl go on between any two steps of an export."""

    def __init__(self, store: OneServer, crawl: Crawl) -> None:
        super().__init__(store, "t")
        self.crawl = crawl

    async def _read(self, call: Any) -> Any:
        answer = await super()._read(call)
        if self.crawl.luck.random() < 0.5:
            await self.crawl.step(4)
        return answer


async def opened(store: OneServer, job: str, config: RunConfig, shards: int = 1) -> Any:
    frontier = shared_frontier(store, prefix="t", job=job, run="", shards=shards)
    await frontier.open(config)
    return frontier


def delivered_late(frontier: Any, luck: random.Random) -> None:
    """Half of the deliveries to other shards fail at first, so that links wait in outboxes."""
    if not isinstance(frontier, ShardedFrontier):
        return
    for shard in frontier.shards:

        async def deliver(requests: Any, deliver: Any = shard.deliver) -> int:
            if luck.random() < 0.5:
                raise StoreUnavailable("cut")
            return int(await deliver(requests))

        shard.deliver = deliver  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 6))]
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", ["run", "spider"])
@pytest.mark.parametrize("shards", [1, 4])
async def test_what_was_exported_during_a_crawl_goes_on_elsewhere(
    store: OneServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shards: int,
    kind: str,
    scope: str,
    seed: int,
) -> None:
    luck = random.Random(seed)
    monkeypatch.setattr("orbweb.frontier.seen_admin.PAGE", 5)
    monkeypatch.setattr(snapshot_module, "GO_ON_SECONDS", 0.0)
    monkeypatch.setattr("orbweb.frontier.sharded.LEFT_SECONDS", 0.0)
    monkeypatch.setattr("orbweb.frontier.sharded.IDLE_SECONDS", 0.0)
    seen = SeenConfig(SeenKind(kind), capacity=luck.choice([100, 300, 5_000]))
    config = RunConfig(host_concurrency=0, dedup_scope=scope, seen=seen)
    crawl = Crawl(await opened(store, "one", config, shards), luck)
    delivered_late(crawl.frontier, luck)
    await crawl.begin()
    for _ in range(luck.randrange(3, 60)):
        await crawl.step()

    before = set(crawl.done)
    admin = Interleaved(store, crawl)
    place = await SeenAdmin(store, "t").find("one")
    path = tmp_path / "one.jsonl.gz"
    with open_text(path, "w") as file:
        await Exporter(admin, place, file).write()
    assert crawl.done > before, "the crawl went on meanwhile"

    other = SeenAdmin(store, "t", shards=shards)
    await load_snapshot(other, read_snapshot(path), "two", "", scope=scope)
    again = Crawl(await opened(store, "two", config, shards), luck)
    await again.begin()
    for _ in range(2_000):
        if await again.step(30) is RunState.DONE:
            break
    everything = set(range(PAGES))
    assert everything - before - again.done == set(), "pages that nobody would ever crawl"
    assert len(again.done & before) < len(before) or not before, "it did not begin anew"


async def test_an_exact_export_can_be_imported_as_any_kind_and_into_a_filled_one(
    store: OneServer, tmp_path: Path
) -> None:
    config = RunConfig(host_concurrency=0)
    source = await opened(store, "one", config)
    await source.add([page(n) for n in range(700)])
    path = tmp_path / "one.jsonl"
    admin = SeenAdmin(store, "t")
    with open_text(path, "w") as file:
        await Exporter(admin, await admin.find("one"), file).write()
    for kind in KINDS:
        target = RunConfig(host_concurrency=0, seen=SeenConfig(SeenKind(kind)))
        frontier = await opened(store, kind, target)
        await frontier.add([page(n) for n in range(600, 800)])
        counts = await load_snapshot(admin, read_snapshot(path), kind, "", scope="run")
        assert counts.seen == 600
        assert await frontier.add([page(n) for n in range(900)]) == 100


async def test_a_filter_with_less_than_whole_fingerprints_goes_only_into_an_empty_one(
    store: OneServer, tmp_path: Path
) -> None:
    config = RunConfig(seen=SeenConfig(SeenKind.COMPACT))
    source = await opened(store, "one", config)
    await source.add([page(n) for n in range(10)])
    path = tmp_path / "one.jsonl"
    admin = SeenAdmin(store, "t")
    with open_text(path, "w") as file:
        await Exporter(admin, await admin.find("one"), file).write()
    filled = await opened(store, "two", config)
    await filled.add([page(99)])
    with pytest.raises(ConfigError, match="reset two"):
        await load_snapshot(admin, read_snapshot(path), "two", "", scope="run")
    await opened(store, "three", RunConfig())
    with pytest.raises(ConfigError, match="another kind"):
        await load_snapshot(admin, read_snapshot(path), "three", "", scope="run")


async def test_an_export_that_took_too_long_is_refused(store: OneServer, tmp_path: Path) -> None:
    source = await opened(store, "one", RunConfig())
    await source.add([page(1)])
    admin = SeenAdmin(store, "t")
    place = await admin.find("one")
    await admin.journal(place, "begin")
    await admin.journal(place, "go_on")
    admin.now = 2**50
    with pytest.raises(ConfigError, match="begin again"):
        await admin.journal(place, "go_on")


async def exported(store: OneServer, job: str, path: Path) -> Path:
    admin = SeenAdmin(store, "t")
    with open_text(path, "w") as file:
        await Exporter(admin, await admin.find(job), file).write()
    return path


@pytest.mark.parametrize("kind", ["exact", "set"])
async def test_whole_fingerprints_of_many_shards_can_be_joined_in_one(
    store: OneServer, tmp_path: Path, kind: str
) -> None:
    config = RunConfig(host_concurrency=0, seen=SeenConfig(SeenKind(kind)))
    source = await opened(store, "one", config, shards=4)
    await source.add([page(n) for n in range(300)])
    path = await exported(store, "one", tmp_path / "one.jsonl")
    counts = await load_snapshot(SeenAdmin(store, "t"), read_snapshot(path), "two", "", scope="run")
    assert (counts.seen, counts.requests) == (300, 300)
    target = await opened(store, "two", config)
    assert await target.add([page(n) for n in range(310)]) == 10


@pytest.mark.parametrize(
    ("kind", "source", "target", "right"),
    [
        ("exact", 4, 2, "FRONTIER_SHARDS = 4, or 1"),
        ("exact", 1, 4, "FRONTIER_SHARDS = 1"),
        ("compact", 4, 1, "FRONTIER_SHARDS = 4$"),
        ("bloom", 2, 4, "FRONTIER_SHARDS = 2$"),
    ],
)
async def test_what_is_seen_is_not_divided_among_other_shards(
    store: OneServer, tmp_path: Path, kind: str, source: int, target: int, right: str
) -> None:
    config = RunConfig(host_concurrency=0, seen=SeenConfig(SeenKind(kind)))
    frontier = await opened(store, "one", config, shards=source)
    await frontier.add([page(n) for n in range(20)])
    path = await exported(store, "one", tmp_path / "one.jsonl")
    admin = SeenAdmin(store, "t", shards=target)
    with pytest.raises(ConfigError, match=right):
        await load_snapshot(admin, read_snapshot(path), "two", "", scope="run")
    assert await store.of_shard(0).exists("{t:0}:current") == 1
    assert b"two:" not in await store.of_shard(0).hgetall("{t:0}:current"), "nothing was made"


async def test_a_link_that_waits_for_its_shard_is_in_the_export(
    store: OneServer, tmp_path: Path
) -> None:
    config = RunConfig(host_concurrency=0)
    source = await opened(store, "one", config, shards=4)
    for shard in source.shards:

        async def deliver(requests: Any) -> int:
            raise StoreUnavailable("cut")

        shard.deliver = deliver
    await source.add([page(n) for n in range(40)])
    away = (await source.status()).away
    assert 0 < away < 40
    path = await exported(store, "one", tmp_path / "one.jsonl")
    admin = SeenAdmin(store, "t", shards=4)
    counts = await load_snapshot(admin, read_snapshot(path), "two", "", scope="run")
    assert counts.requests == 40
    status = await (await opened(store, "two", config, shards=4)).status()
    assert (status.queued, status.away) == (40, 0)


@pytest.mark.parametrize("text", ["", '["format","orbweb-dedup-2","j","exact",1]\n', "no json\n"])
def test_a_file_that_is_no_whole_export_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"x\.jsonl"):
        read_snapshot(path)


@pytest.mark.parametrize("spoilt", [lambda data: data[:60], lambda data: data[:30] + b"x" * 40])
def test_a_packed_file_that_breaks_off_is_refused(tmp_path: Path, spoilt: Any) -> None:
    path = tmp_path / "x.jsonl.gz"
    rows = "".join(f'["seen",0,"",[{number * 7919}]]\n' for number in range(500))
    with open_text(path, "w") as file:
        file.write('["format","orbweb-dedup-2","j","exact",1]\n' + rows)
    path.write_bytes(spoilt(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"x\.jsonl\.gz"):
        read_snapshot(path)
