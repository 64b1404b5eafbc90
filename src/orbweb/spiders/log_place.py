"""Where the settings put the crawl log; light to import, for commands that only read it."""

from __future__ import annotations

from pathlib import Path

from orbweb.monitor.log_folder import Keeping, LogFolder
from orbweb.settings import Settings

DEFAULT = Path(".orbweb", "log")
"""Beside the data of the embedded store."""


def log_folder(settings: Settings, directory: Path) -> LogFolder:
    """The folder of the lines; `directory` is that of the project."""
    return LogFolder(
        directory / (settings["CRAWL_LOG_DIR"] or DEFAULT),
        Keeping(
            segment_bytes=settings["CRAWL_LOG_MAX_SIZE"],
            segment_seconds=settings["CRAWL_LOG_MAX_AGE"],
            total_bytes=settings["CRAWL_LOG_KEEP_SIZE"],
            total_seconds=settings["CRAWL_LOG_KEEP_AGE"],
        ),
    )
