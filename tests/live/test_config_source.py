"""Values of a file reach two nodes in mid-run, as those of the store do, and wrong ones do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.live.pair import Pair, beats, working
from tests.servers import Server


async def said(pair: Pair) -> list[dict[str, Any]]:
    (key,) = [key async for key in pair.client.scan_iter("{t:0}:run:*:beats")]
    return beats(await pair.client.hgetall(key))


async def all_say(pair: Pair, what: Callable[[dict[str, Any]], bool]) -> None:
    """All heartbeats say something in time."""
    for _ in range(400):
        if [what(beat) for beat in await said(pair)] == [True] * len(pair.spiders):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(await said(pair))


async def keys_said(pair: Pair, place: str) -> list[str]:
    return [ack.said.keys.get(place, "?") for ack in await pair.admin.acks()]


def gaps(pair: Pair, since: float) -> list[float]:
    return [later.t - hit.t for hit, later in pairwise(pair.site.since(since))]


async def test_a_file(live_server: Server, tmp_path: Path) -> None:
    file = tmp_path / "orbweb.live.toml"
    file.write_text("DOWNLOAD_DELAY = 0.01\n")
    settings = {"CONFIG_SOURCE": f"file:{file}", "HEARTBEAT_INTERVAL": 0.2}
    async with working(live_server.url, tmp_path, **settings) as pair:
        await pair.both_fetch(pair.site.hits[-1].t)
        file.write_text("DOWNLOAD_DELAY = 0.3\n[job.walker]\nPARSE.price_v2 = true\n")
        await pair.until(lambda: all(spider.live["price_v2"] for spider in pair.spiders))
        at = pair.site.hits[-1].t + 0.5
        await pair.until(lambda: len(pair.site.since(at)) > 4, 5)
        assert min(gaps(pair, at)) > 0.25, "what the store decides for all follows a source too"
        file.write_text("DOWNLOAD_DELAY = 0.01\nDEPTH_LIMIT = -1\nRUN_ID = 'x'\n")
        at = pair.site.hits[-1].t
        await pair.until(lambda: len(pair.site.since(at)) > 60, 4)
        assert not any(spider.live["price_v2"] for spider in pair.spiders), "it has left the file"
        refused = await keys_said(pair, "DEPTH_LIMIT")
        assert len(refused) == 2
        assert all("0 links is the least" in text for text in refused)
        assert all("cannot change in nodes" in text for text in await keys_said(pair, "RUN_ID"))
        file.write_text("DOWNLOAD_DELAY = \n")
        await all_say(pair, lambda beat: "refused as a whole" in beat.get("config_error", ""))
        at = pair.site.hits[-1].t
        await pair.until(lambda: len(pair.site.since(at)) > 60, 4)
        third = await pair.join(tmp_path)
        await pair.until(lambda: any(hit.node == third.who for hit in pair.site.hits), 10)
        file.write_text("DOWNLOAD_DELAY = 0.01\n[PARSE]\nlabel = 'new'\n")
        await pair.until(lambda: all(s.live["label"] == "new" for s in pair.spiders), 8)
        await all_say(pair, lambda beat: "config_error" not in beat)


async def test_what_one_node_knows_of_a_host_is_not_lost_where_others_know_nothing(
    live_server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "c.toml"
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.02) as pair:
        file.write_text(f'[host."127.0.0.1:{pair.site.port}"]\nDOWNLOAD_DELAY = 0.4\n')
        third = await pair.join(tmp_path, CONFIG_SOURCE=f"file:{file}")
        await pair.until(lambda: any(hit.node == third.who for hit in pair.site.hits), 10)
        began = pair.site.hits[-1].t + 1.0
        for level in ("INFO", "WARNING", "INFO", "WARNING"):
            done = await pair.set("LOG_LEVEL", level)
            await pair.acked(done.version)
        await pair.until(lambda: len(pair.site.since(began)) > 5, 10)
        assert min(gaps(pair, began)) > 0.35


async def test_a_live_value_that_nodes_refuse_keeps_no_new_node_from_its_start(
    live_server: Server, tmp_path: Path
) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.02) as pair:
        done = await pair.set("PROXY_FILE", "missing.txt")
        assert all(ack.said.keys["PROXY_FILE"] for ack in await pair.acked(done.version))
        third = await pair.join(tmp_path)
        await pair.until(lambda: any(hit.node == third.who for hit in pair.site.hits), 10)
        said = [ack.said.keys["PROXY_FILE"] for ack in await pair.admin.acks()]
        assert len(said) == 3
        assert all("missing.txt" in text for text in said)
