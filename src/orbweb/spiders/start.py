"""How a run is started, and the settings that come of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbweb.engine.engine import Engine
from orbweb.settings import Settings, load_settings
from orbweb.spiders.base import BaseSpider


@dataclass(frozen=True, slots=True)
class Start:
    """How a run is started from the command line. Everything is optional."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that win over all others; text is read as in the environment."""
    directory: Path | None = None
    """Where the project file and the embedded store are; default: the working directory."""
    stop_after_pages: int = 0
    on_engine: Callable[[Engine], None] | None = None
    """Called on the engine's loop before the run begins."""
    on_new_run: Callable[[], None] | None = None
    """Called when this node has made the run."""
    live: bool | None = None
    """A live line on stderr; None = when that is a terminal."""
    monitor: bool = False
    """A `BatchSpider` is also the master of its batches."""
    once: bool = False
    """With `monitor`: end with the batch that is open or due now."""
    go_on: str = ""
    """How a run that has stopped is gone on with, where that is not by its id."""
    watch: bool = True
    """Take part in the watch over alarms; False where the caller does."""


def settings_of(spider: BaseSpider, start: Start | None = None) -> Settings:
    """The settings that this instance runs with. Raises `ConfigError`."""
    start = start or Start()
    return load_settings(
        spider_settings=spider.class_settings(),
        spider_name=type(spider).__name__,
        arguments=spider.setting_arguments,
        overrides=start.overrides,
        directory=start.directory or Path.cwd(),
        environ=os.environ,
    )
