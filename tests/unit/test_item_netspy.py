"""NetSpy's names of pipelines for databases, and the errors of settings that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbweb.errors import ConfigError
from orbweb.pipelines.mysql import MysqlPipeline
from orbweb.pipelines.postgres import PostgresPipeline
from orbweb.pipelines.sql import SqlPipeline
from orbweb.pipelines.sql_rows import Conflict
from orbweb.settings import load_settings


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


@pytest.mark.parametrize("url", ["", "mongodb://host/db", "not a url", "oracle://host/db"])
def test_a_database_that_cannot_be_used_is_an_error_at_the_start(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///|supported|driver"):
        SqlPipeline.from_settings(settings(SQL_URL=url))
