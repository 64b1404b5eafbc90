"""NetSpy's pipeline for MySQL and MariaDB, by its settings `MYSQL_…`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from orbweb.pipelines.sql import SqlPipeline
from orbweb.pipelines.sql_rows import Conflict
from orbweb.sql.databases import url_of_server


class MysqlPipeline(SqlPipeline):
    """`SqlPipeline` on `MYSQL_HOST` and its like. By default it overwrites rows that are there."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        overwrite = settings["MYSQL_UPDATE_ON_DUPLICATE"]
        return cls(
            url_of_server(settings, "mysql", "MYSQL"),
            create_tables=settings["SQL_CREATE_TABLES"],
            on_conflict=Conflict.UPDATE if overwrite else Conflict.ERROR,
            keep_days=settings["SQL_LEDGER_DAYS"],
        )
