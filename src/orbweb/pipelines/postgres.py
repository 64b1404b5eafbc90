"""NetSpy's pipeline for PostgreSQL, by its settings `POSTGRES_…`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import sqlalchemy as sa

from orbweb.pipelines.sql import SqlPipeline
from orbweb.pipelines.sql_rows import Conflict


class PostgresPipeline(SqlPipeline):
    """`SqlPipeline` on `POSTGRES_HOST` and its like."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        url = sa.URL.create(
            "postgresql",
            settings["POSTGRES_USER"],
            settings["POSTGRES_PASSWORD"] or None,
            settings["POSTGRES_HOST"],
            settings["POSTGRES_PORT"],
            settings["POSTGRES_DB"],
        )
        return cls(
            url.render_as_string(hide_password=False),
            create_tables=settings["SQL_CREATE_TABLES"],
            on_conflict=Conflict(settings["POSTGRES_ON_CONFLICT"]),
            conflict_target=settings["POSTGRES_CONFLICT_TARGET"],
            keep_days=settings["SQL_LEDGER_DAYS"],
        )
