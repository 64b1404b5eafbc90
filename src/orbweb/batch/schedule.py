"""When batches are due: every so often, or by a cron line. Times: milliseconds since 1970."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from orbweb.errors import ConfigError

DAY_MS = 86_400_000
UNITS_MS = {"day": DAY_MS, "hour": 3_600_000}

LOCAL_ZONE = Path("/etc/localtime")

FIELDS = (5, 6)
"""Words of a cron line; six begin with seconds."""


class Due(NamedTuple):
    """When a batch is due, and how many times before that have passed without one."""

    at_ms: int
    missed: int = 0


class Schedule(Protocol):
    """The times at which batches are due."""

    def first(self, now_ms: int) -> int:
        """When the first batch is due, if there has been none."""

    def following(self, due_ms: int, now_ms: int) -> Due:
        """The batch after one that was due then.

        Of several times that have passed by now it is the last: batches are not made up for.
        """

    def __str__(self) -> str:
        """In words, as a person reads it."""


@dataclass(frozen=True, slots=True)
class Every:
    """A batch each `interval_ms`, counted from when the one before was due, so it never drifts."""

    interval_ms: int

    def first(self, now_ms: int) -> int:
        return now_ms

    def following(self, due_ms: int, now_ms: int) -> Due:
        passed = max(1, (now_ms - due_ms) // self.interval_ms)
        return Due(due_ms + passed * self.interval_ms, passed - 1)

    def __str__(self) -> str:
        for unit, length in UNITS_MS.items():
            if self.interval_ms % length == 0:
                count = self.interval_ms // length
                return f"every {unit}" if count == 1 else f"every {count} {unit}s"
        return f"every {self.interval_ms / 1000:g} s"


class Cron:
    """A batch at the times of a cron line, in a time zone, also over changes of summer time."""

    def __init__(self, line: str, zone: tzinfo) -> None:
        """Raises `ConfigError` for a line that is none."""
        try:
            from cronsim import CronSim, CronSimError
        except ImportError as error:
            raise ConfigError(
                f"the cron line {line!r} needs cronsim: pip install 'orbweb[batch]'"
            ) from error
        self._line = line
        self._zone = zone
        self._sim = CronSim
        try:
            self._next(0)
        except (CronSimError, StopIteration) as error:
            raise ConfigError(
                f"{line!r} is no cron line ({error or 'it never comes'}): right would be minute, "
                "hour, day, month and day of the week, such as '30 3 * * *' or '0 */6 * * MON-FRI'"
            ) from None

    def first(self, now_ms: int) -> int:
        return self._next(now_ms)

    def following(self, due_ms: int, now_ms: int) -> Due:
        at, missed = self._next(due_ms), 0
        while (later := self._next(at)) <= now_ms:
            at, missed = later, missed + 1
        return Due(at, missed)

    def __str__(self) -> str:
        return f"cron {self._line}"

    def _next(self, after_ms: int) -> int:
        """The first time after that one. An hour that summer time repeats is no step back."""
        moment = datetime.fromtimestamp(after_ms // 1000, self._zone)
        times = (int(found.timestamp()) * 1000 for found in self._sim(self._line, moment))
        return next(at_ms for at_ms in times if at_ms > after_ms)


def parse_schedule(interval: str, unit: str, zone: str = "") -> Schedule:
    """A number of units (`day`, `hour`), or a cron line.

    `zone` is the time zone of a cron line, such as Europe/Berlin; empty = this machine's. Raises
    `ConfigError`.
    """
    if len(interval.split()) in FIELDS:
        return Cron(interval, _zone(zone))
    try:
        length = float(interval)
    except ValueError:
        length = 0.0
    interval_ms = round(length * UNITS_MS[unit]) if math.isfinite(length) else 0
    if interval_ms < 1:
        raise ConfigError(
            f"BATCH_INTERVAL = {interval!r}: right would be a number of {unit}s, such as 1, or a "
            "cron line of five words, such as '30 3 * * *'"
        )
    return Every(interval_ms)


def _zone(name: str) -> tzinfo:
    """The time zone of that name, or of this machine."""
    name = name or os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            return ZoneInfo(name)
        with LOCAL_ZONE.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError, ZoneInfoNotFoundError) as error:
        if not name:
            return UTC
        raise ConfigError(
            f"BATCH_TIME_ZONE = {name!r} is no time zone ({error}): right would be Asia/Shanghai"
        ) from None
