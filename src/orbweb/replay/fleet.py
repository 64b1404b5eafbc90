"""The fleet whose hosts a trial touches, as its store knows it. See `Fleet`."""

from __future__ import annotations

import math

from orbweb.errors import HostBusy
from orbweb.frontier.admin import Admin, RunInfo


class StoreFleet:
    """See `Fleet`. Without a living run nobody is held off: nobody fetches."""

    def __init__(self, admin: Admin, info: RunInfo | None) -> None:
        self._admin = admin
        self._info = info

    async def wait_seconds(self, host: str) -> float:
        row = await self._admin.hosts.look(host)
        if row.host.pause is not None:
            raise HostBusy(f"{host} is {row.wait.text}; to go on: orbweb resume {host}")
        until = max(row.host.next_at, row.host.held_until)
        return max(0.0, until - row.host.clock_ms) / 1000

    async def gap_seconds(self, host: str) -> float:
        return (await self._admin.hosts.look(host)).gap.ms / 1000

    async def hold_off(self, host: str, seconds: float) -> None:
        if self._info is not None:
            await self._admin.hold_off(self._info, host, math.ceil(seconds * 1000))
