"""Pipelines, as a spider or its settings name them."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from orbweb.errors import ConfigError
from orbweb.pipelines.base import BasePipeline, Row
from orbweb.settings import Settings
from orbweb.settings.names import PIPELINES
from orbweb.spiders.base import BaseSpider, ItemHandler

EXTRAS = {
    "bson": "mongo",
    "confluent_kafka": "kafka",
    "fsspec": "fsspec",
    "psycopg": "sql",
    "pyarrow": "parquet",
    "pymongo": "mongo",
    "pymysql": "sql",
    "sqlalchemy": "sql",
}
"""Which extra of this package brings a library that a pipeline needs."""


class HandlerPipeline(BasePipeline):
    """Gives each batch of rows to the spider's `item_handler`."""

    def __init__(self, handler: ItemHandler) -> None:
        self._handler = handler

    def save_items(self, table: str, items: list[Row]) -> bool:
        self._handler(items)
        return True

    def update_items(self, table: str, items: list[Row], update_keys: Iterable[str]) -> bool:
        self._handler(items)
        return True


def load_pipelines(
    spider: BaseSpider, settings: Settings, store_url: str = ""
) -> dict[str, BasePipeline]:
    """The spider's pipelines by name, which is the dotted path of their class.

    They see the settings with REDIS_URL as it is, also that of an embedded store: `store_url`.
    Raises `ConfigError` that names the entry and what is wrong with it.
    """
    if spider.item_handler is not None:
        return {"item_handler": HandlerPipeline(spider.item_handler)}
    entries = settings["ITEM_PIPELINES"] if spider.pipelines is None else spider.pipelines
    seen = {**settings, "REDIS_URL": store_url or settings["REDIS_URL"]}
    pipelines: dict[str, BasePipeline] = {}
    for given in entries:
        entry = PIPELINES.get(given, given) if isinstance(given, str) else given
        pipeline = _load_pipeline(entry, seen)
        kind = type(pipeline)
        name = entry if isinstance(entry, str) else f"{kind.__module__}.{kind.__qualname__}"
        if name in pipelines:
            raise ConfigError(f"ITEM_PIPELINES: {name} is there twice")
        pipelines[name] = pipeline
    return pipelines


def _load_pipeline(entry: Any, settings: Mapping[str, Any]) -> BasePipeline:
    found = entry
    if isinstance(entry, str):
        path, _, name = entry.rpartition(".")
        module = None
        try:
            module = importlib.import_module(path or entry)
            found = getattr(module, name)
        except ModuleNotFoundError as error:
            extra = EXTRAS.get((error.name or "").partition(".")[0])
            install = f": pip install 'orbweb[{extra}]'" if extra else ""
            raise ConfigError(
                f"ITEM_PIPELINES: {entry!r} cannot be loaded: {error}{install}"
            ) from error
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"ITEM_PIPELINES: {entry!r} cannot be loaded: {error}{_meant(module, name)}"
            ) from error
    if isinstance(found, type):
        try:
            found = found.from_settings(settings) if hasattr(found, "from_settings") else found()
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"ITEM_PIPELINES: {entry!r} cannot be built: {type(error).__name__}: {error}"
            ) from error
    if not isinstance(found, BasePipeline):
        raise ConfigError(f"ITEM_PIPELINES: {entry!r} must derive from orbweb.BasePipeline")
    return found


def _meant(module: ModuleType | None, name: str) -> str:
    """The pipeline of the module whose name is nearest."""
    kinds = (
        {
            each
            for each, found in vars(module).items()
            if isinstance(found, type) and issubclass(found, BasePipeline)
        }
        if module
        else set()
    )
    near = difflib.get_close_matches(name, sorted(kinds), 1)
    return f"; did you mean {near[0]}?" if near else ""
