"""The store does not answer: who tells of it, and when, with no store to agree in."""

from __future__ import annotations

from enum import Enum, auto

from orbweb.alarms.notices import Letter, Policy, Silence
from orbweb.alarms.states import Alarm, State

DEPUTY_SECONDS = 300.0
"""So much later the deputy tells too: it cannot know whether the holder could."""


class Standing(Enum):
    """What a process was when the store was last heard of."""

    HOLDER = auto()
    """It judged; it tells."""
    DEPUTY = auto()
    """First of those that wait; tells when the outage lasts."""
    OTHER = auto()
    """Tells nothing: else each of N nodes would."""


class Outage:
    """Follows one outage. Times: seconds of a monotonic clock, and wall clock in ms."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._alarm: Alarm | None = None

    @property
    def lasts(self) -> bool:
        return self._since is not None

    @property
    def told(self) -> bool:
        """It lasts, and somebody was told so from here: its end is to be told too."""
        return self._alarm is not None

    def failed(
        self,
        error: str,
        now: float,
        wall_ms: int,
        limit_seconds: float,
        standing: Standing,
        policy: Policy,
        silences: list[Silence],
    ) -> list[Letter]:
        """A call has failed. The letters to send: once in an outage, when it is this one's turn."""
        if self._since is None:
            self._since = now
        lasted = now - self._since
        wait = limit_seconds + (DEPUTY_SECONDS if standing is Standing.DEPUTY else 0.0)
        if standing is Standing.OTHER or limit_seconds <= 0 or self._alarm or lasted < wait:
            return []
        began_ms = wall_ms - round(lasted * 1000)
        alarm = Alarm("store_unreachable", "", "", "", began_ms, State.FIRING)
        alarm.value, alarm.detail, alarm.fired_ms = lasted, error, wall_ms
        quiet = policy.quiet is not None and policy.quiet.holds(alarm, wall_ms)
        if quiet or any(silence.covers(alarm, wall_ms) for silence in silences):
            return []
        self._alarm = alarm
        return self._letters(alarm, policy, ended=False)

    def answered(self, wall_ms: int, policy: Policy) -> list[Letter]:
        """The store answers again: who has told of the outage tells of its end."""
        alarm, self._since, self._alarm = self._alarm, None, None
        if alarm is None:
            return []
        alarm.state, alarm.resolved_ms = State.RESOLVED, wall_ms
        return self._letters(alarm, policy, ended=True)

    def _letters(self, alarm: Alarm, policy: Policy, *, ended: bool) -> list[Letter]:
        return [
            Letter(f"{alarm.since_ms}-outage-{channel}-{ended}", channel, ended, [alarm])
            for channel in policy.channels_of(alarm)
        ]
