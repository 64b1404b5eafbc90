"""Where the task table of a BatchSpider is: from its settings to a store."""

from __future__ import annotations

import sqlalchemy as sa

from orbweb.errors import ConfigError
from orbweb.settings import Settings
from orbweb.sources.base import BatchStore
from orbweb.sources.sql import SqlBatchStore
from orbweb.sources.sql_tasks import Columns
from orbweb.spiders.batch import BatchSpider


def sql_store(spider: BatchSpider, settings: Settings) -> BatchStore:
    """The store of a spider in its database. Raises `ConfigError` when no setting says where."""
    return SqlBatchStore(
        database_url(settings),
        spider.task_table,
        Columns(
            id=settings["BATCH_TASK_ID_FIELD"],
            state=settings["BATCH_TASK_STATE_FIELD"],
            time=settings["BATCH_TASK_TIME_FIELD"],
            batch=settings["BATCH_TASK_BATCH_FIELD"],
            wanted=spider.task_keys,
            condition=settings["BATCH_TASK_CONDITION"],
        ),
        record_table=settings["BATCH_RECORD_TABLE"],
        create=settings["SQL_CREATE_TABLES"],
    )


def database_url(settings: Settings) -> str:
    """Where the task table is. Raises `ConfigError` when no setting says it."""
    named: str = settings["BATCH_SQL_URL"] or settings["SQL_URL"]
    if named:
        return named
    if all(settings.origin(name) == "default" for name in ("MYSQL_HOST", "MYSQL_DB")):
        raise ConfigError(
            "BATCH_SQL_URL is empty: say where the task table is, such as "
            "mysql://user:password@host/name, postgresql://user@host/name or sqlite:///tasks.db"
        )
    url = sa.URL.create(
        "mysql",
        settings["MYSQL_USER"],
        settings["MYSQL_PASSWORD"] or None,
        settings["MYSQL_HOST"],
        settings["MYSQL_PORT"],
        settings["MYSQL_DB"],
    )
    return url.render_as_string(hide_password=False)
