"""NetSpy's pipeline for MySQL and MariaDB, by its settings `MYSQL_…`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import sqlalchemy as sa

from orbweb.pipelines.sql import SqlPipeline
from orbweb.pipelines.sql_rows import Conflict


class MysqlPipeline(SqlPipeline):
    """`SqlPipeline` on `MYSQL_HOST` and its like. By default it overwrites rows that are there."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        url = sa.URL.create(
            "mysql",
            settings["MYSQL_USER"],
            settings["MYSQL_PASSWORD"] or None,
            settings["MYSQL_HOST"],
            settings["MYSQL_PORT"],
            settings["MYSQL_DB"],
        )
        overwrite = settings["MYSQL_UPDATE_ON_DUPLICATE"]
        return cls(
            url.render_as_string(hide_password=False),
            create_tables=settings["SQL_CREATE_TABLES"],
            on_conflict=Conflict.UPDATE if overwrite else Conflict.ERROR,
            keep_days=settings["SQL_LEDGER_DAYS"],
        )
