"""From settings to log lines."""

from __future__ import annotations

from collections.abc import Sequence

from orbweb.errors import ConfigError
from orbweb.log import configure, set_levels
from orbweb.log_file import Rotation
from orbweb.settings.declarations import DECLARATIONS
from orbweb.settings.load import Settings


def configure_log(settings: Settings) -> None:
    """Let log lines go where the settings say. Raises `ConfigError`."""
    levels = logger_levels(settings["LOG_LEVELS"])
    configure(
        settings["LOG_LEVEL"],
        settings["LOG_FILE"],
        settings["LOG_FORMAT"] == "json",
        colour=settings["LOG_COLOR"],
        rotation=Rotation.read(settings["LOG_ROTATION"], settings["LOG_RETENTION"]),
    )
    set_levels(settings["LOG_LEVEL"], levels)


def logger_levels(texts: Sequence[str]) -> dict[str, str]:
    """`LOG_LEVELS` by logger. Raises `ConfigError` for what is no `NAME=LEVEL`."""
    found = {}
    for text in texts:
        name, _, level = text.partition("=")
        level = level.strip().upper()
        if not name.strip() or level not in DECLARATIONS["LOG_LEVEL"].choices:
            raise ConfigError(f"LOG_LEVELS: {text!r} is not like orbweb.keeper=DEBUG")
        found[name.strip()] = level
    return found
