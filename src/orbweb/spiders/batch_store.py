"""Where the task table of a BatchSpider is: from its settings to a store."""

from __future__ import annotations

from orbweb.errors import ConfigError
from orbweb.settings import Settings
from orbweb.sources.base import BatchStore
from orbweb.sources.sql import SqlBatchStore
from orbweb.sources.sql_tasks import Columns
from orbweb.spiders.batch import BatchSpider
from orbweb.sql.databases import url_of_server


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
    return url_of_server(settings, "mysql", "MYSQL")
