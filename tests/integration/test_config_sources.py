"""Sources of live values: what each says at first, of a change, when it is away, and when wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from tests.config_servers import (
    PASSWORD,
    ConsulStandIn,
    EtcdStore,
    FileStore,
    NacosStandIn,
    NacosThreeStandIn,
    Store,
)

from orbweb.config import watching
from orbweb.config.source import ConfigSource, Document
from orbweb.config.sources import open_source
from orbweb.errors import ConfigError, SourceUnavailable

SOON_SECONDS = 2.0

KINDS: dict[str, Callable[[Path, bool], Store]] = {
    "file": FileStore,
    "etcd": EtcdStore,
    "consul": lambda directory, secured: ConsulStandIn(secured),
    "nacos": lambda directory, secured: NacosStandIn(secured),
}
FIRST = {"DOWNLOAD_DELAY": "0.5", "job:books/DEPTH_LIMIT": "3"}
SECOND = {"DOWNLOAD_DELAY": "2", "PARSE.price": "é"}


@asynccontextmanager
async def running(kind: str, directory: Path, secured: bool = False) -> AsyncIterator[Store]:
    if kind == "etcd" and EtcdStore.program() is None:
        pytest.skip("needs etcd: apt-get install etcd-server")
    store = KINDS[kind](directory, secured)
    await store.start()
    try:
        yield store
    finally:
        if kind != "file":
            await store.stop()


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with running(request.param, tmp_path) as started:
        yield started


@asynccontextmanager
async def watched(
    store: Store, directory: Path, address: str = ""
) -> AsyncIterator[tuple[ConfigSource, AsyncIterator[Document]]]:
    source = open_source(address or store.address(), directory)
    try:
        async with aclosing(source.watch()) as documents:
            yield source, documents
    finally:
        await source.aclose()


async def test_the_first_document_and_each_change_come_soon(store: Store, tmp_path: Path) -> None:
    await store.put(FIRST)
    async with watched(store, tmp_path) as (_, documents):
        first = await anext(documents)
        assert first.values == FIRST
        later = asyncio.ensure_future(anext(documents))
        await asyncio.sleep(0.1)
        assert not later.done()
        began = time.monotonic()
        await store.put(SECOND)
        assert (await later).values == SECOND
        assert time.monotonic() - began < SOON_SECONDS
        third = asyncio.ensure_future(anext(documents))
        await store.put({**SECOND, "DEPTH_LIMIT": "1"})
        assert (await third).version != first.version


async def test_one_that_goes_away_says_so_and_catches_up(store: Store, tmp_path: Path) -> None:
    await store.put(FIRST)
    async with watched(store, tmp_path) as (source, documents):
        await anext(documents)
        later = asyncio.ensure_future(anext(documents))
        await asyncio.sleep(0.05)
        await store.stop()
        with pytest.raises(SourceUnavailable, match=source.name):
            await later
        with pytest.raises(SourceUnavailable):
            await anext(aiter(source.watch()))
        await store.start()
        assert (await anext(aiter(source.watch()))).values == FIRST
        await store.put(SECOND)
        assert (await anext(aiter(source.watch()))).values == SECOND


async def test_a_quiet_source_is_looked_at_from_time_to_time_and_when_asked(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(FIRST)
    reads = []
    async with watched(store, tmp_path) as (source, documents):
        read = source.read  # type: ignore[attr-defined]

        async def counted() -> Document:
            reads.append(1)
            return await read()

        monkeypatch.setattr(source, "read", counted)
        await anext(documents)
        later = asyncio.ensure_future(anext(documents))
        await asyncio.sleep(0.1)
        assert len(reads) == 1, "nobody is asked again without a reason"
        source.wake()
        monkeypatch.setattr(watching, "LOOK_SECONDS", 0.05)
        await asyncio.sleep(2 * watching.CALM_SECONDS + 0.1)
        assert len(reads) >= 2
        assert not later.done(), "what has not changed is not told again"
        later.cancel()
        await asyncio.wait([later])


@pytest.mark.parametrize("kind", ["etcd", "consul", "nacos"])
async def test_a_password_lets_in_and_a_wrong_one_is_an_error_that_hides_it(
    kind: str, tmp_path: Path
) -> None:
    async with running(kind, tmp_path, secured=True) as store:
        await store.put(FIRST)
        async with watched(store, tmp_path) as (source, documents):
            assert (await anext(documents)).values == FIRST
            assert PASSWORD not in source.name
            later = asyncio.ensure_future(anext(documents))
            await asyncio.sleep(0.1)
            await store.put({"A": "1"})
            assert (await asyncio.wait_for(later, SOON_SECONDS)).values == {"A": "1"}
        async with watched(store, tmp_path, store.address("wr0ng")) as (_, documents):
            with pytest.raises(ConfigError, match="CONFIG_SOURCE") as caught:
                await anext(documents)
            assert "wr0ng" not in str(caught.value)


async def test_no_keys_are_an_empty_document(tmp_path: Path) -> None:
    for kind in ("etcd", "consul"):
        async with running(kind, tmp_path) as store, watched(store, tmp_path) as (_, documents):
            assert (await anext(documents)).values == {}
            later = asyncio.ensure_future(anext(documents))
            await store.put(FIRST)
            await later


async def test_a_token_that_has_run_out_is_renewed(tmp_path: Path) -> None:
    nacos = NacosStandIn(secured=True)
    await nacos.start()
    await nacos.put(FIRST)
    async with watched(nacos, tmp_path) as (_, documents):
        await anext(documents)
        nacos.tokens.clear()
        nacos.tokens.add("another")
        await nacos.put(SECOND)
        assert (await anext(documents)).values == SECOND
    await nacos.stop()


async def test_an_etcd_token_of_a_server_that_was_started_again_is_renewed(tmp_path: Path) -> None:
    async with running("etcd", tmp_path, secured=True) as store:
        await store.put(FIRST)
        async with watched(store, tmp_path) as (source, documents):
            await anext(documents)
            await store.stop()
            await store.start()
            assert (await anext(aiter(source.watch()))).values == FIRST


async def test_etcd_that_has_forgotten_the_revision_is_read_anew(tmp_path: Path) -> None:
    async with running("etcd", tmp_path) as store:
        assert isinstance(store, EtcdStore)
        await store.put(FIRST)
        async with watched(store, tmp_path) as (source, documents):
            await anext(documents)
            await store.put(SECOND)
            found = await store.call("/v3/kv/range", key="AA==")
            revision = str(found["header"]["revision"])
            await store.call("/v3/kv/compaction", revision=revision, physical=True)
            assert (await asyncio.wait_for(anext(documents), SOON_SECONDS)).values == SECOND
            assert source.name == f"etcd 127.0.0.1:{store.port}/orbweb/"


async def test_consul_whose_index_goes_back_is_read_anew(tmp_path: Path) -> None:
    async with running("consul", tmp_path) as store, watched(store, tmp_path) as (_, documents):
        assert isinstance(store, ConsulStandIn)
        await store.put(FIRST)
        await anext(documents)
        later = asyncio.ensure_future(anext(documents))
        await store.polled.wait()
        store.values, store.index = SECOND, 1
        store.tell()
        assert (await asyncio.wait_for(later, SOON_SECONDS)).values == SECOND


@pytest.mark.parametrize("kind", ["file", "nacos"])
async def test_a_document_that_cannot_be_read_is_refused_as_a_whole_with_the_place(
    kind: str, tmp_path: Path
) -> None:
    async with running(kind, tmp_path) as store, watched(store, tmp_path) as (source, documents):
        await store.put(FIRST)
        await anext(documents)
        if isinstance(store, NacosStandIn):
            store.write('{"DEPTH_LIMIT": 1,')
        else:
            assert isinstance(store, FileStore)
            store.path.write_text("DEPTH_LIMIT = 1\nDOWNLOAD_DELAY = \n")
        with pytest.raises(SourceUnavailable, match=r"refused as a whole: .*line"):
            await anext(documents)
        await store.put(SECOND)
        assert (await anext(aiter(source.watch()))).values == SECOND


async def test_a_file_that_is_being_written_is_read_when_it_is_still(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.put(FIRST)
    async with watched(store, tmp_path) as (_, documents):
        await anext(documents)
        later = asyncio.ensure_future(anext(documents))
        with store.path.open("w") as file:
            for n in range(6):
                file.write(f"X_{n} = {n}\n")
                file.flush()
                await asyncio.sleep(0.12)
                assert not later.done()
        assert len((await later).values) == 6


async def test_the_place_of_a_server_that_is_none_is_named(tmp_path: Path) -> None:
    async with running("consul", tmp_path) as store:
        assert isinstance(store, ConsulStandIn)
        address = f"etcd://user:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{store.port}/orbweb/"
        async with watched(store, tmp_path, address) as (_, documents):
            with pytest.raises(SourceUnavailable, match="answers 404") as caught:
                await anext(documents)
            assert "s3" not in str(caught.value)


@pytest.mark.parametrize("secured", [False, True])
async def test_a_nacos_without_the_api_is_named_as_one(secured: bool, tmp_path: Path) -> None:
    store = NacosThreeStandIn(secured)
    await store.start()
    try:
        async with watched(store, tmp_path) as (_, documents):
            with pytest.raises(ConfigError, match=r"answers 404.*Nacos from 3\.2 on.*adapter") as e:
                await anext(documents)
            assert PASSWORD not in str(e.value)
    finally:
        await store.stop()


async def test_a_configuration_that_nacos_does_not_have_is_waited_for(tmp_path: Path) -> None:
    async with running("nacos", tmp_path) as store, watched(store, tmp_path) as (source, documents):
        with pytest.raises(SourceUnavailable, match="there is no such configuration"):
            await anext(documents)
        await store.put(FIRST)
        assert (await anext(aiter(source.watch()))).values == FIRST
