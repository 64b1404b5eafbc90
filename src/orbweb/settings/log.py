"""From settings to log lines."""

from __future__ import annotations

from orbweb.log import configure
from orbweb.log_file import Rotation
from orbweb.settings.load import Settings


def configure_log(settings: Settings) -> None:
    """Let log lines go where the settings say. Raises `ConfigError`."""
    configure(
        settings["LOG_LEVEL"],
        settings["LOG_FILE"],
        settings["LOG_FORMAT"] == "json",
        colour=settings["LOG_COLOR"],
        rotation=Rotation.read(settings["LOG_ROTATION"], settings["LOG_RETENTION"]),
    )
