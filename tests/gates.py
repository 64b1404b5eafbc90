"""A gate for tests of downloads: always open, and it remembers what it was told."""

from __future__ import annotations

from orbweb.download.base import Meeting


class OpenGate:
    """See `orbweb.download.base.Gate`."""

    def __init__(self) -> None:
        self.entered = 0
        self.meetings: list[Meeting] = []
        self.crawl_delays: dict[str, float] = {}
        self.hosts_elsewhere: list[str] = []

    async def ready(self) -> None: ...

    async def enter(self) -> None:
        self.entered += 1

    def sent(self) -> None: ...

    async def met(self, meeting: Meeting) -> None:
        self.meetings.append(meeting)

    async def crawl_delay(self, host: str, seconds: float) -> None:
        self.crawl_delays[host] = seconds

    def elsewhere(self, host: str) -> OpenGate:
        self.hosts_elsewhere.append(host)
        return self
