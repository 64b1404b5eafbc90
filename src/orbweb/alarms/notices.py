"""Who is told what, and when: grouping, cool-down, silences, quiet hours, routes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo

import msgspec

from orbweb.alarms.rules import RULES, Severity
from orbweb.alarms.states import Alarm, Alarms, State

MOST_LETTERS = 200
"""Letters that wait; of more the oldest are given up."""

MOST_OF_A_RULE = 3
"""So many letters on one rule of a run come within a cool-down, whatever its subjects."""

LATELY_MS = 10_000

EVERY_CHANNEL = "*"


class Letter(msgspec.Struct, omit_defaults=True):
    """One message to one channel, until the channel has taken it."""

    id: str
    channel: str
    ended: bool
    """It says that the alarms are over."""
    alarms: list[Alarm]
    tries: int = 0
    next_ms: int = 0
    error: str = ""


class Silence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Alarms of which nobody is told until then; they are listed all the same."""

    pattern: str
    """A rule, `RULE/JOB` or the beginning of an alarm's key; `*` = all."""
    until_ms: int
    by: str = ""
    reason: str = ""

    def covers(self, alarm: Alarm, at_ms: int) -> bool:
        if at_ms >= self.until_ms:
            return False
        words, key = self.pattern.split("/"), alarm.key.split("/", 3)
        return all(word in ("*", part) for word, part in zip(words, key, strict=False))


@dataclass(frozen=True, slots=True)
class Quiet:
    """Hours of the day in which alarms up to a severity wait."""

    from_minute: int
    to_minute: int
    most: Severity
    zone: tzinfo | None = None

    def holds(self, alarm: Alarm, at_ms: int) -> bool:
        if alarm.severity.rank > self.most.rank:
            return False
        moment = datetime.fromtimestamp(at_ms / 1000, self.zone)
        minute = moment.hour * 60 + moment.minute
        if self.from_minute <= self.to_minute:
            return self.from_minute <= minute < self.to_minute
        return minute >= self.from_minute or minute < self.to_minute


@dataclass(frozen=True, slots=True)
class Route:
    """Which channels get the alarms that all its words fit."""

    channels: tuple[str, ...]
    severity: Severity | None = None
    """This bad or worse."""
    owner: str = ""
    job: str = ""
    rule: str = ""

    def fits(self, alarm: Alarm) -> bool:
        return (
            (self.severity is None or alarm.severity.rank >= self.severity.rank)
            and self.owner in ("", alarm.owner)
            and self.job in ("", alarm.job)
            and self.rule in ("", alarm.rule)
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """How people want to be told. Times in milliseconds."""

    channels: tuple[str, ...]
    routes: tuple[Route, ...] = ()
    """Without any, every channel gets all."""
    quiet: Quiet | None = None
    group_wait_ms: int = 5000
    """How long a first alarm of a run waits for others."""
    cooldown_ms: int = 300_000
    """Least time between two letters on one alarm."""

    def channels_of(self, alarm: Alarm) -> list[str]:
        """All that have a fitting route; every channel when no route fits, so that none is lost."""
        fitting = [name for route in self.routes if route.fits(alarm) for name in route.channels]
        named = fitting or [EVERY_CHANNEL]
        if EVERY_CHANNEL in named:
            return list(self.channels)
        return [name for name in self.channels if name in named]


class Told(msgspec.Struct):
    """When people were told of what: the cool-down goes by it."""

    at_ms: dict[str, int] = {}
    """By key of the alarm."""
    letters: int = 0
    """So many were made; they are numbered."""


def new_letters(
    alarms: Alarms, told: Told, policy: Policy, silences: Iterable[Silence], at_ms: int
) -> list[Letter]:
    """The letters that are due now. Marks in `alarms` and `told` that they are on their way."""
    hushed = list(silences)
    beginnings: dict[tuple[str, str], list[Alarm]] = {}
    ends: dict[tuple[str, str], list[Alarm]] = {}
    for alarm in alarms.values():
        if alarm.state is State.RESOLVED:
            if alarm.told and not alarm.told_end:
                ends.setdefault((alarm.job, alarm.run), []).append(alarm)
        elif not _said_by_end(alarm, alarms) and _is_due(alarm, told, policy, hushed, at_ms):
            beginnings.setdefault((alarm.job, alarm.run), []).append(alarm)
    letters = []
    for group in beginnings.values():
        if at_ms - min(alarm.fired_ms for alarm in group) < policy.group_wait_ms:
            continue
        for alarm in group:
            alarm.told, alarm.told_end = True, False
            told.at_ms[alarm.key] = at_ms
        letters += _letters(group, told, policy, at_ms, ended=False)
    for group in ends.values():
        for alarm in group:
            alarm.told_end = True
        letters += _letters(group, told, policy, at_ms, ended=True)
    _forget(told.at_ms, at_ms - policy.cooldown_ms)
    return letters


def _is_due(alarm: Alarm, told: Told, policy: Policy, silences: list[Silence], at_ms: int) -> bool:
    if alarm.state is not State.FIRING or alarm.told:
        return False
    if any(silence.covers(alarm, at_ms) for silence in silences):
        return False
    if policy.quiet is not None and policy.quiet.holds(alarm, at_ms):
        return False
    last = told.at_ms.get(alarm.key)
    if last is not None and last <= at_ms < last + policy.cooldown_ms:
        return False
    return _told_lately(alarm, told, policy, at_ms) < MOST_OF_A_RULE


def _told_lately(alarm: Alarm, told: Told, policy: Policy, at_ms: int) -> int:
    """How often the rule of this run was told within a cool-down, whatever the subjects."""
    kind = "/".join((alarm.rule, alarm.job, alarm.run, ""))
    since_ms = at_ms - policy.cooldown_ms
    return len(
        {at for key, at in told.at_ms.items() if key.startswith(kind) and since_ms < at <= at_ms}
    )


def _said_by_end(alarm: Alarm, alarms: Alarms) -> bool:
    """The run has ended before people were told, and an alarm on that end says the same."""
    return bool(alarm.well_ms) and any(
        end.rule in RULES[alarm.rule].said_by_end
        and end.job == alarm.job
        and end.state is State.FIRING
        and end.fired_ms >= alarm.since_ms
        for end in alarms.values()
    )


def _letters(
    group: list[Alarm], told: Told, policy: Policy, at_ms: int, *, ended: bool
) -> list[Letter]:
    by_channel: dict[str, list[Alarm]] = {}
    for alarm in sorted(group, key=lambda each: (-each.severity.rank, each.since_ms)):
        for channel in policy.channels_of(alarm):
            by_channel.setdefault(channel, []).append(msgspec.structs.replace(alarm))
    letters = []
    for channel, alarms in by_channel.items():
        told.letters += 1
        letters.append(Letter(f"{at_ms}-{told.letters}", channel, ended, alarms))
    return letters


def _forget(last: dict[str, int], before_ms: int) -> None:
    for kind in [kind for kind, at_ms in last.items() if at_ms < before_ms]:
        del last[kind]


def bounded(letters: list[Letter]) -> tuple[list[Letter], int]:
    """The letters that are kept, and how many of the oldest were given up."""
    over = max(0, len(letters) - MOST_LETTERS)
    return letters[over:], over


def waits_for_others(alarms: Mapping[str, Alarm], at_ms: int) -> bool:
    """Whether an alarm has begun to fire lately, and people have not been told."""
    return any(
        alarm.state is State.FIRING and not alarm.told and at_ms - alarm.fired_ms < LATELY_MS
        for alarm in alarms.values()
    )
