"""NetSpy's names of pipelines and of their settings, and errors of those that cannot be used."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

import orbweb as mw
from orbweb.errors import ConfigError
from orbweb.model.item import ItemRecord
from orbweb.pipelines.base import BasePipeline
from orbweb.pipelines.buffer import ItemBuffer
from orbweb.pipelines.mysql import MysqlPipeline
from orbweb.pipelines.postgres import PostgresPipeline
from orbweb.pipelines.sql import SqlPipeline
from orbweb.pipelines.sql_rows import Conflict
from orbweb.settings import load_settings
from orbweb.settings.names import PIPELINES
from orbweb.spiders.load import load_pipelines


def settings(**values: Any) -> Any:
    return load_settings(overrides=values, directory=Path(__file__).parent, environ={})


def test_mysql_by_netspys_settings() -> None:
    given = settings(MYSQL_HOST="db", MYSQL_PORT="3307", MYSQL_USER="u", MYSQL_PASSWORD="p@:/s")
    pipeline = MysqlPipeline.from_settings(given)
    url = pipeline._engine.url
    assert (url.drivername, url.host, url.port, url.username, url.password, url.database) == (
        "mysql+pymysql", "db", 3307, "u", "p@:/s", "orbweb"
    )  # fmt: skip
    assert pipeline._rows._on_conflict is Conflict.UPDATE
    never = MysqlPipeline.from_settings(settings(MYSQL_UPDATE_ON_DUPLICATE="false"))
    assert never._rows._on_conflict is Conflict.ERROR


def test_postgres_by_netspys_settings() -> None:
    given = settings(
        POSTGRES_HOST="db", POSTGRES_ON_CONFLICT="update", POSTGRES_CONFLICT_TARGET="sku,shop"
    )
    pipeline = PostgresPipeline.from_settings(given)
    assert pipeline._engine.url.drivername == "postgresql+psycopg"
    assert pipeline._rows._on_conflict is Conflict.UPDATE
    assert pipeline._rows._target == ("sku", "shop")


def test_the_sizes_of_pools_have_no_effect_and_say_so() -> None:
    assert any("MYSQL_POOL_SIZE" in note for note in settings(MYSQL_POOL_SIZE="9").notes)


@pytest.mark.parametrize("path", PIPELINES)
def test_a_path_of_netspy_is_our_pipeline_and_the_log_says_so_once(path: str) -> None:
    given = settings(ITEM_PIPELINES=[path, "mine.Pipeline"])
    assert given["ITEM_PIPELINES"] == (PIPELINES[path], "mine.Pipeline")
    (note,) = given.notes
    assert path in note
    assert PIPELINES[path] in note
    module, _, name = PIPELINES[path].rpartition(".")
    assert issubclass(getattr(importlib.import_module(module), name), BasePipeline)


def test_a_spider_may_name_pipelines_as_netspy_does(tmp_path: Path) -> None:
    spider = mw.AirSpider(pipelines=["netspy.pipelines.csv.CsvPipeline"])
    (name,) = load_pipelines(spider, settings(OUTPUT_DIR=str(tmp_path)))
    assert name == "orbweb.pipelines.csv.CsvPipeline"


async def test_an_item_may_name_pipelines_as_netspy_does() -> None:
    class Console(BasePipeline):
        def save_items(self, table: str, items: list[dict[str, Any]]) -> bool:
            return True

    buffer = ItemBuffer({"orbweb.pipelines.console.ConsolePipeline": Console()})
    named = ("netspy.pipelines.console.ConsolePipeline",)
    async with asyncio.TaskGroup() as group:
        group.create_task(buffer.run())
        page = [ItemRecord("k", "items", {"_key": "k"}, None, named)]
        assert await asyncio.wait_for(buffer.submit(page), 5) == []
        await buffer.close(seconds=1)


@pytest.mark.parametrize("url", ["", "mongodb://host/db", "not a url", "oracle://host/db"])
def test_a_database_that_cannot_be_used_is_an_error_at_the_start(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///|supported|driver"):
        SqlPipeline.from_settings(settings(SQL_URL=url))
