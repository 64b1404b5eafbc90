"""Live values in two nodes: switches, hooks, ends, canaries, rollback, what is refused, outages."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from tests.live.pair import LI, Pair, beats, working
from tests.servers import Server

from orbweb.config.place import Place
from orbweb.config.values import Canary, Entry
from orbweb.errors import ConfigError


def switch(pair: Pair) -> list[bool]:
    return [spider.live["price_v2"] for spider in pair.spiders]


async def run_meta(pair: Pair) -> bytes:
    (key,) = [key async for key in pair.client.scan_iter("{t:0}:run:*:meta")]
    return key


def kept_on_disk(directory: Path) -> list[str]:
    files = directory.glob("*/.orbweb/config/*.json")
    kept = [json.loads(path.read_text()) for path in files]
    return [each["live"]["entries"][0]["value"] for each in kept]


async def test_a_parse_switch_reaches_both_nodes_and_their_hooks(
    live_server: Server, tmp_path: Path
) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.01) as pair:
        assert switch(pair) == [False, False]
        at = await pair.holds("job:walker/PARSE.price_v2", "on")
        assert switch(pair) == [True, True]
        assert [spider.told for spider in pair.spiders] == [[("price_v2", True)]] * 2
        for spider in pair.spiders:
            await pair.until(
                lambda items=spider.items: any(i["at"] > at and i["price_v2"] for i in items)  # type: ignore[misc]
            )
            assert not [i for i in spider.items if i["at"] > at + 0.5 and not i["price_v2"]]
            assert spider.live.price_v2 is True
            assert spider.live["DOWNLOAD_DELAY"] == 0.01


async def test_a_value_ends_by_itself_and_what_was_before_holds_again(
    live_server: Server, tmp_path: Path
) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.01) as pair:
        await pair.holds("PARSE.label", "first")
        began = time.monotonic()
        done = await pair.set("PARSE.label", "second", for_ms=700)
        await pair.acked(done.version)
        assert [spider.live["label"] for spider in pair.spiders] == ["second"] * 2
        await pair.until(lambda: all(s.live["label"] == "first" for s in pair.spiders), 3)
        assert time.monotonic() - began > 0.65
        await pair.acked(done.version + 1)
        line = (await pair.admin.history())[0]
        assert (line.verb, line.version, line.by) == ("expire", done.version + 1, "orbweb")


async def test_a_canary_is_tried_on_one_node_and_promoted(
    live_server: Server, tmp_path: Path
) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.01) as pair:
        await pair.holds("PARSE.label", "old")
        node = pair.spiders[0]._engine._options.node  # type: ignore[union-attr]
        await pair.holds("PARSE.label", "new", canary=Canary(nodes=(node,)))
        assert [spider.live["label"] for spider in pair.spiders] == ["new", "old"]
        done = await pair.admin.promote(Place.read("PARSE.label"), LI)
        await pair.acked(done.version)
        assert [spider.live["label"] for spider in pair.spiders] == ["new", "new"]
        done = await pair.admin.rollback(None, LI)
        await pair.acked(done.version)
        assert [spider.live["label"] for spider in pair.spiders] == ["new", "old"]
        done = await pair.admin.rollback(0, LI)
        await pair.acked(done.version)
        assert (await pair.admin.read())[0].entries == ()


async def test_the_most_specific_value_wins(live_server: Server, tmp_path: Path) -> None:
    async with working(live_server.url, tmp_path, RUN_ID="r1", DOWNLOAD_DELAY=0.01) as pair:
        node = pair.spiders[1]._engine._options.node  # type: ignore[union-attr]
        for place, value in (
            (f"node:{node[:10]}", "1"),
            ("global", "2"),
            ("run:walker:r1", "3"),
            ("job:walker", "4"),
            ("job:another", "5"),
        ):
            await pair.holds(f"{place}/RETRY_BACKOFF", value)
        engines = [spider._engine for spider in pair.spiders]
        assert [engine.knobs.retry_backoff for engine in engines] == [3, 1]  # type: ignore[union-attr]
        done = await pair.admin.unset(Place.read("run:walker:r1/RETRY_BACKOFF"), LI)
        await pair.acked(done.version)
        assert [engine.knobs.retry_backoff for engine in engines] == [4, 1]  # type: ignore[union-attr]


async def test_what_a_node_cannot_take_leaves_the_old_value_and_is_said(
    live_server: Server, tmp_path: Path
) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.01) as pair:
        await pair.holds("PARSE.label", "good")
        done = await pair.set("PARSE.label", "bad")
        acks = await pair.acked(done.version)
        assert all("this label will not do" in ack.said.keys["PARSE.label"] for ack in acks)
        assert [spider.live["label"] for spider in pair.spiders] == ["good", "good"]
        await pair.holds("PARSE.label", "better")
        assert [spider.live["label"] for spider in pair.spiders] == ["better", "better"]


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        ("DOWNLOAD_DELAYS", "1", "did you mean DOWNLOAD_DELAY?"),
        ("DOWNLOAD_DELAY", "-1", "0 seconds is the least"),
        ("DOWNLOAD_DELAY", "fast", "a number is wanted"),
        ("REDIS_URL", "redis://h", "counts when a node is started again"),
        ("DEDUP_FILTER", "bloom", "counts when a run is made"),
        ("PARSE.price_v3", "on", "did you mean PARSE.price_v2?"),
        ("PARSE.price_v2", "maybe", "true or false is wanted"),
        ("host:h/DEPTH_LIMIT", "1", "does not differ from host to host"),
        ("node:n/DOWNLOAD_DELAY", "1", "is decided in the store for all nodes"),
        ("EXCLUDE_URLS", "a(", "is no regular expression"),
        ("AUTOTHROTTLE_START_DELAY", "99", "is greater than AUTOTHROTTLE_MAX_DELAY"),
        ("job:other/PARSE.price_v2", "on", "no node of a job 'other'"),
    ],
)
async def test_a_bad_value_is_refused_before_it_is_stored(
    quiet: Pair, place: str, value: str, text: str
) -> None:
    if "THROTTLE" in place:
        await quiet.set("AUTOTHROTTLE_MAX_DELAY", "60")
    before = (await quiet.admin.read())[0].version
    with pytest.raises(ConfigError, match=text.replace("?", r"\?")):
        await quiet.set(place, value)
    assert (await quiet.admin.read())[0].version == before


@pytest.mark.parametrize("place", ["job:商 品:x/PARSE.z", "run:商 品:x:r/PARSE.z"])
async def test_a_job_may_have_any_name(quiet: Pair, place: str) -> None:
    await quiet.book.keep_switches("商 品:x", b'{"z": false}')
    assert (await quiet.set(place, "on")).line.version == 1


async def test_a_canary_of_what_the_store_decides_is_refused(quiet: Pair) -> None:
    with pytest.raises(ConfigError, match="some nodes cannot"):
        await quiet.set("DOWNLOAD_DELAY", "1", canary=Canary(percent=50))


async def test_a_value_without_measure_is_refused(quiet: Pair) -> None:
    with pytest.raises(ConfigError, match="65536 is the most"):
        await quiet.set("X_LONG", "x" * 70_000)


async def test_what_was_told_while_nobody_listened_is_found_by_a_look(
    live_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbweb.spiders.live_store.POLL_SECONDS", 0.3)
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.05) as pair:
        values = (await pair.admin.read())[0].put(Entry("PARSE.label", "quietly", "li"))[0]
        stored = {"version": values.version, "values": values.pack()}
        await pair.client.hset("{t:0}:config", mapping=stored)  # nothing is pushed
        await pair.until(lambda: all(s.live["label"] == "quietly" for s in pair.spiders), 2)


async def test_the_heartbeat_says_the_version(live_server: Server, tmp_path: Path) -> None:
    async with working(
        live_server.url, tmp_path, DOWNLOAD_DELAY=0.01, HEARTBEAT_INTERVAL=0.1
    ) as pair:
        done = await pair.set("PARSE.label", "x")
        await pair.acked(done.version)

        async def said() -> list[object]:
            (key,) = [key async for key in pair.client.scan_iter("{t:0}:run:*:beats")]
            return [beat.get("config") for beat in beats(await pair.client.hgetall(key))]

        for _ in range(200):
            if await said() == [done.version] * 2:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(json.dumps(await said()))


async def test_a_joining_node_takes_what_holds_before_it_fetches_and_tells_it(
    live_server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "orbweb.config")
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.01) as pair:
        await pair.holds("PARSE.price_v2", "on")
        await pair.holds("CONCURRENT_REQUESTS", "3")
        await pair.holds("host:h.example/DOWNLOAD_DELAY", "7")
        caplog.clear()
        third = await pair.join(tmp_path, DOWNLOAD_DELAY=0.01)
        await pair.until(lambda: pair.site.since(0, third.who), 8)
        assert third.live["price_v2"] is True
        assert third._engine.knobs.concurrency == 3  # type: ignore[union-attr]
        told = [r.getMessage() for r in caplog.records if "live_value" in r.getMessage()]
        assert [line.split()[1] for line in told] == [
            *("key=CONCURRENT_REQUESTS", "key=DOWNLOAD_DELAY", "key=PARSE.price_v2")
        ]
        assert told[1].endswith("after=7.0 host=h.example")
        await pair.until(lambda: third.items)
        assert all(item["price_v2"] for item in third.items)


async def test_a_joining_node_warns_of_what_it_replaces_for_all(
    live_server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.01) as pair:
        third = await pair.join(tmp_path, DOWNLOAD_DELAY=0.03)
        await pair.until(lambda: pair.site.since(0, third.who), 8)
        (text,) = [r.getMessage() for r in caplog.records if "DOWNLOAD_DELAY:" in r.getMessage()]
        assert "worked on with 0.01" in text
        assert "comes with 0.03 (command line)" in text


async def test_a_joining_node_warns_once_of_a_setting_and_never_of_live_values(
    live_server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.01) as pair:
        await pair.holds("USER_AGENT", "live/1")
        await pair.holds("CONCURRENT_REQUESTS_PER_DOMAIN", "3")
        await pair.client.hset(await run_meta(pair), "concurrency", 7)  # from before the value
        caplog.clear()
        third = await pair.join(tmp_path, SPIDER_MAX_RETRY_TIMES=9)
        await pair.until(lambda: pair.site.since(0, third.who), 8)
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len([text for text in warned if "SPIDER_MAX_RETRY_TIMES" in text]) == 1, warned
    assert not [text for text in warned if "USER_AGENT" in text or "CONCURRENT" in text], warned


async def test_without_its_store_a_node_goes_on_and_takes_later_what_changed(
    tmp_path: Path,
) -> None:
    server = Server("valkey", aof="always")
    try:
        async with working(server.url, tmp_path, DOWNLOAD_DELAY=0.01) as pair:
            await pair.holds("PARSE.label", "kept")
            assert kept_on_disk(tmp_path) == ["kept"] * 2
            server.kill()
            await asyncio.sleep(0.3)
            assert [spider.live["label"] for spider in pair.spiders] == ["kept"] * 2
            server.start()
            await pair.client.connection_pool.disconnect()
            done = await pair.set("PARSE.label", "later")
            await pair.acked(done.version, 8)
            assert [spider.live["label"] for spider in pair.spiders] == ["later"] * 2
    finally:
        server.stop()
