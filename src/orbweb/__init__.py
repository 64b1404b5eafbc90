"""Orbweb: a distributed crawling framework that loses nothing. `import orbweb as mw`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from orbweb.errors import (
    ConfigError,
    DedupError,
    ItemError,
    NotRetryError,
    OrbwebError,
    PipelineError,
    RequestError,
    ResponseError,
    SpiderError,
    ValidationError,
)
from orbweb.log import get_logger

if TYPE_CHECKING:
    from orbweb.model.item import Item, UpdateItem
    from orbweb.model.request import Request
    from orbweb.model.response import Response
    from orbweb.pipelines.base import BasePipeline
    from orbweb.spiders.air import AirSpider
    from orbweb.spiders.base import BaseParser
    from orbweb.spiders.batch import BatchSpider
    from orbweb.spiders.distributed import Spider
    from orbweb.spiders.live_view import on_config
    from orbweb.spiders.task import TaskSpider

    __version__: str

log = get_logger("orbweb")
"""Orbweb's own logger (NetSpy's name for it)."""

__all__ = [
    "AirSpider",
    "BaseParser",
    "BasePipeline",
    "BatchSpider",
    "ConfigError",
    "DedupError",
    "Item",
    "ItemError",
    "NotRetryError",
    "OrbwebError",
    "PipelineError",
    "Request",
    "RequestError",
    "Response",
    "ResponseError",
    "Spider",
    "SpiderError",
    "TaskSpider",
    "UpdateItem",
    "ValidationError",
    "__version__",
    "get_logger",
    "log",
    "on_config",
]

_LAZY = {
    "AirSpider": "orbweb.spiders.air",
    "BaseParser": "orbweb.spiders.base",
    "BasePipeline": "orbweb.pipelines.base",
    "BatchSpider": "orbweb.spiders.batch",
    "Item": "orbweb.model.item",
    "Request": "orbweb.model.request",
    "Response": "orbweb.model.response",
    "Spider": "orbweb.spiders.distributed",
    "TaskSpider": "orbweb.spiders.task",
    "UpdateItem": "orbweb.model.item",
    "on_config": "orbweb.spiders.live_view",
}


def __getattr__(name: str) -> Any:
    """Import what costs time only when it is asked for."""
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name == "__version__":
        value = importlib.import_module("importlib.metadata").version("orbweb")
    else:
        raise AttributeError(f"module 'orbweb' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
