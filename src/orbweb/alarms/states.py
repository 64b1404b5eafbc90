"""The states of alarms: pending, firing, resolved. A pure step from findings to new states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from orbweb.alarms.finding import Finding
from orbweb.alarms.rules import RULES, Severity

CALM_MS = 10_000
"""So long a thing must be well again before its alarm is resolved."""

MOST_ALARMS = 500
KEPT_MS = 86_400_000
"""For so long a resolved alarm is still listed."""


class State(StrEnum):
    """What an alarm is."""

    PENDING = "pending"
    """It is so, but not yet for long enough."""
    FIRING = "firing"
    RESOLVED = "resolved"


class Alarm(msgspec.Struct, omit_defaults=True):
    """One rule, broken for one thing. Times: milliseconds since 1970, the store's clock."""

    rule: str
    job: str
    run: str
    subject: str
    since_ms: int
    """Since when it is so."""
    state: State = State.PENDING
    value: float = 0.0
    detail: str = ""
    owner: str = ""
    fired_ms: int = 0
    well_ms: int = 0
    """Since when it has been well again; 0 = it is not."""
    resolved_ms: int = 0
    told: bool = False
    """People have been told, or a letter is on its way."""
    told_end: bool = False

    @property
    def key(self) -> str:
        """What it is known by; the words of `orbweb alerts silence` are the beginning of it."""
        return "/".join((self.rule, self.job, self.run, self.subject))

    @property
    def severity(self) -> Severity:
        return RULES[self.rule].severity


Alarms = dict[str, Alarm]


def step(
    alarms: Alarms,
    found: Iterable[Finding],
    at_ms: int,
    holds: Mapping[str, float],
    calm_ms: int = CALM_MS,
) -> Alarms:
    """The alarms after a look. `holds`: seconds for which each rule must be broken first."""
    new: Alarms = {}
    for each in found:
        key = "/".join((each.rule, each.job, each.run, each.subject))
        old = alarms.get(key)
        going = old is not None and old.state is not State.RESOLVED
        if each.hidden and not (going and old is not None and old.state is State.FIRING):
            continue
        new[key] = _broken(old if going else None, each, at_ms, holds[each.rule])
    for key, alarm in alarms.items():
        if key not in new and (left := _well(alarm, at_ms, calm_ms)) is not None:
            new[key] = left
    return _bounded(new)


def _broken(old: Alarm | None, found: Finding, at_ms: int, hold_seconds: float) -> Alarm:
    alarm = old or Alarm(found.rule, found.job, found.run, found.subject, at_ms)
    value, detail, owner = found.value, found.detail, found.owner or alarm.owner
    alarm = msgspec.structs.replace(alarm, value=value, detail=detail, owner=owner, well_ms=0)
    if alarm.state is State.PENDING and at_ms - alarm.since_ms >= hold_seconds * 1000:
        alarm.state, alarm.fired_ms = State.FIRING, at_ms
    return alarm


def _well(alarm: Alarm, at_ms: int, calm_ms: int) -> Alarm | None:
    """An alarm whose rule holds again; None when nothing is left to say of it."""
    if alarm.state is State.PENDING:
        return None
    if alarm.state is State.RESOLVED:
        return alarm if at_ms - alarm.resolved_ms < KEPT_MS else None
    alarm = msgspec.structs.replace(alarm, well_ms=alarm.well_ms or at_ms)
    if at_ms - alarm.well_ms >= calm_ms:
        alarm.state, alarm.resolved_ms = State.RESOLVED, at_ms
    return alarm


def _bounded(alarms: Alarms) -> Alarms:
    """At most `MOST_ALARMS`: what fires goes first, then what is worse, then what is older."""
    if len(alarms) <= MOST_ALARMS:
        return alarms
    order = [State.FIRING, State.PENDING, State.RESOLVED]
    kept = sorted(
        alarms.values(),
        key=lambda each: (order.index(each.state), -each.severity.rank, each.since_ms),
    )
    return {each.key: each for each in kept[:MOST_ALARMS]}
