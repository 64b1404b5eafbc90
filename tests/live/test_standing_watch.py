"""A process that only watches goes by the live values that hold for all, and by their ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.live.pair import LI
from tests.servers import Server

from orbweb.config.place import Place
from orbweb.frontier.configbook import ConfigBook
from orbweb.frontier.server import connect
from orbweb.settings import load_settings
from orbweb.spiders.build_watch import LiveSettings
from orbweb.spiders.live_admin import LiveAdmin


class Watching:
    def __init__(self, book: ConfigBook) -> None:
        self.book = book
        self.admin = LiveAdmin(book)
        self.live = LiveSettings(load_settings(directory=Path("/nowhere"), environ={}), book)

    async def limit(self) -> float:
        await self.live.refresh()
        found: float = self.live.current()["ALERTS_NODE_SILENT"]
        return found


@pytest.fixture
async def watching(live_server: Server) -> AsyncIterator[Watching]:
    live_server.client().flushall()
    client = connect(live_server.url, 5)
    yield Watching(ConfigBook(client, "orbweb"))
    await client.aclose()


async def test_thresholds_that_hold_for_all_hold_there_and_end_there(watching: Watching) -> None:
    assert await watching.limit() == 60
    await watching.admin.set(Place.read("global:/ALERTS_NODE_SILENT"), 20, LI)
    assert await watching.limit() == 20
    await watching.admin.set(Place.read("global:/ALERTS_NODE_SILENT"), 9, LI, for_ms=300)
    assert await watching.limit() == 9
    await asyncio.sleep(0.35)  # nobody is there to clear the value away
    assert await watching.limit() == 20
    await watching.admin.unset(Place.read("global:/ALERTS_NODE_SILENT"), LI)
    assert await watching.limit() == 60


async def test_what_is_said_for_a_job_or_no_setting_concerns_it_not(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    await watching.book.keep_switches("books", b'{"price_v2": false}')
    await watching.admin.set(Place.read("job:books/ALERTS_NODE_SILENT"), 20, LI)
    await watching.admin.set(Place.read("job:books/PARSE.price_v2"), True, LI)
    assert await watching.limit() == 60
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_a_value_that_is_none_leaves_the_projects_in_force(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    await watching.admin.set(Place.read("global:/ALERTS_NODE_SILENT"), 20, LI)
    stored = await watching.book.read()
    broken = stored.values.replace(b'"value":20.0', b'"value":"x"')
    assert (await watching.book.write(stored.version, broken, b"{}")).done
    assert await watching.limit() == 60
    assert "ALERTS_NODE_SILENT is not taken here" in caplog.text
