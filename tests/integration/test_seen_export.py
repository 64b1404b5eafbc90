"""An export of what was seen, taken while a crawl goes on, loses no page when it is imported."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.servers import Server

from orbweb.cli import snapshot as snapshot_module
from orbweb.cli.snapshot import Exporter, load_snapshot, open_text, read_snapshot
from orbweb.errors import ConfigError
from orbweb.frontier.base import Ack, Nack, NewRequest, RunConfig, RunState
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.frontier.seen_admin import SeenAdmin
from orbweb.frontier.valkey import ValkeyFrontier

LEASE_MS = 60_000
PAGES = 1_500
KINDS = ["exact", "compact", "set", "bloom"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Redis]:
    client = Redis(unix_socket_path=str(server.socket))
    await client.flushall()
    yield client
    await client.aclose()


def page(number: int) -> NewRequest:
    digest = blake2b(b"%d" % number, digest_size=8).digest()
    mark = int.from_bytes(digest, "big", signed=True)
    return NewRequest(f"p{number}", f"h{number % 5}", 0, mark, b"%d" % number)


class Crawl:
    """Walks a tree of pages; some redirect to another page, which counts for them."""

    def __init__(self, frontier: ValkeyFrontier, luck: random.Random) -> None:
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

    def __init__(self, client: Redis, crawl: Crawl) -> None:
        super().__init__(client, "t")
        self.crawl = crawl

    async def _read(self, call: Any) -> Any:
        answer = await super()._read(call)
        if self.crawl.luck.random() < 0.5:
            await self.crawl.step(4)
        return answer


async def opened(client: Redis, job: str, config: RunConfig) -> ValkeyFrontier:
    frontier = ValkeyFrontier(client, prefix="t", job=job)
    await frontier.open(config)
    return frontier


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 6))]
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", ["run", "spider"])
async def test_what_was_exported_during_a_crawl_goes_on_elsewhere(
    client: Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    scope: str,
    seed: int,
) -> None:
    luck = random.Random(seed)
    monkeypatch.setattr("orbweb.frontier.seen_admin.PAGE", 5)
    monkeypatch.setattr(snapshot_module, "GO_ON_SECONDS", 0.0)
    seen = SeenConfig(SeenKind(kind), capacity=luck.choice([100, 300, 5_000]))
    config = RunConfig(host_concurrency=0, dedup_scope=scope, seen=seen)
    crawl = Crawl(await opened(client, "one", config), luck)
    await crawl.begin()
    for _ in range(luck.randrange(3, 60)):
        await crawl.step()

    before = set(crawl.done)
    admin = Interleaved(client, crawl)
    place = await SeenAdmin(client, "t").find("one")
    path = tmp_path / "one.jsonl.gz"
    with open_text(path, "w") as file:
        await Exporter(admin, place, file).write()
    assert crawl.done > before, "the crawl went on meanwhile"

    other = SeenAdmin(client, "t")
    await load_snapshot(other, read_snapshot(path), "two", "", scope=scope)
    again = Crawl(await opened(client, "two", config), luck)
    await again.begin()
    for _ in range(2_000):
        if await again.step(30) is RunState.DONE:
            break
    everything = set(range(PAGES))
    assert everything - before - again.done == set(), "pages that nobody would ever crawl"
    assert len(again.done & before) < len(before) or not before, "it did not begin anew"


async def test_an_exact_export_can_be_imported_as_any_kind_and_into_a_filled_one(
    client: Redis, tmp_path: Path
) -> None:
    config = RunConfig(host_concurrency=0)
    source = await opened(client, "one", config)
    await source.add([page(n) for n in range(700)])
    path = tmp_path / "one.jsonl"
    admin = SeenAdmin(client, "t")
    with open_text(path, "w") as file:
        await Exporter(admin, await admin.find("one"), file).write()
    for kind in KINDS:
        target = RunConfig(host_concurrency=0, seen=SeenConfig(SeenKind(kind)))
        frontier = await opened(client, kind, target)
        await frontier.add([page(n) for n in range(600, 800)])
        counts = await load_snapshot(admin, read_snapshot(path), kind, "", scope="run")
        assert counts.seen == 600
        assert await frontier.add([page(n) for n in range(900)]) == 100


async def test_a_filter_with_less_than_whole_fingerprints_goes_only_into_an_empty_one(
    client: Redis, tmp_path: Path
) -> None:
    config = RunConfig(seen=SeenConfig(SeenKind.COMPACT))
    source = await opened(client, "one", config)
    await source.add([page(n) for n in range(10)])
    path = tmp_path / "one.jsonl"
    admin = SeenAdmin(client, "t")
    with open_text(path, "w") as file:
        await Exporter(admin, await admin.find("one"), file).write()
    filled = await opened(client, "two", config)
    await filled.add([page(99)])
    with pytest.raises(ConfigError, match="reset two"):
        await load_snapshot(admin, read_snapshot(path), "two", "", scope="run")
    await opened(client, "three", RunConfig())
    with pytest.raises(ConfigError, match="another kind"):
        await load_snapshot(admin, read_snapshot(path), "three", "", scope="run")


async def test_an_export_that_took_too_long_is_refused(client: Redis, tmp_path: Path) -> None:
    source = await opened(client, "one", RunConfig())
    await source.add([page(1)])
    admin = SeenAdmin(client, "t")
    place = await admin.find("one")
    await admin.journal(place, "begin")
    await admin.journal(place, "go_on")
    admin._caller.time = 2**50
    with pytest.raises(ConfigError, match="begin again"):
        await admin.journal(place, "go_on")


@pytest.mark.parametrize("text", ["", '["format","orbweb-dedup-1","j","exact"]\n', "no json\n"])
def test_a_file_that_is_no_whole_export_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"x\.jsonl"):
        read_snapshot(path)
