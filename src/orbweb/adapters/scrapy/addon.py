"""All that a project needs, in one line: `ADDONS = {"orbweb.adapters.scrapy.Addon": 1}`."""

from __future__ import annotations

from scrapy.settings import BaseSettings

SCHEDULER = "orbweb.adapters.scrapy.Scheduler"


class Addon:
    """Puts Orbweb's scheduler in charge. What the project itself sets stays."""

    def update_settings(self, settings: BaseSettings) -> None:
        """See the class."""
        settings.set("SCHEDULER", SCHEDULER, priority="addon")
