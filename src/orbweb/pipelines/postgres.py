"""NetSpy's pipeline for PostgreSQL, by its settings `POSTGRES_…`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from orbweb.pipelines.sql import SqlPipeline
from orbweb.pipelines.sql_rows import Conflict
from orbweb.sql.databases import url_of_server


class PostgresPipeline(SqlPipeline):
    """`SqlPipeline` on `POSTGRES_HOST` and its like."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        return cls(
            url_of_server(settings, "postgresql", "POSTGRES"),
            create_tables=settings["SQL_CREATE_TABLES"],
            on_conflict=Conflict(settings["POSTGRES_ON_CONFLICT"]),
            conflict_target=settings["POSTGRES_CONFLICT_TARGET"],
            keep_days=settings["SQL_LEDGER_DAYS"],
        )
