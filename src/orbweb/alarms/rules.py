"""The rules: what counts as wrong, how bad it is, and which settings change that. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

NO_LIMIT = 0.0


class Severity(StrEnum):
    """How bad it is. `high` passes quiet hours."""

    INFO = "info"
    MID = "mid"
    HIGH = "high"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. What it is called and says to people stands in `texts.py`."""

    name: str
    severity: Severity
    setting: str
    """Its threshold; 0 switches the rule off."""
    hold: str | float = 0.0
    """How long it must be so before it is told: seconds, or the setting that says so."""
    unit: str = ""
    """Of the threshold: `%` (a part of 1), `s` or nothing."""
    hidden_by: tuple[str, ...] = ()
    """Rules that are its cause: while one of them holds for the run, this one says nothing new."""

    said_by_end: tuple[str, ...] = ()
    """Rules on the end of a run that say the same: they are told in its place."""


_RULES = (
    Rule("node_silent", Severity.HIGH, "ALERTS_NODE_SILENT", unit="s", hidden_by=("zombie",)),
    Rule("zombie", Severity.HIGH, "ALERTS_NODE_STUCK", unit="s"),
    Rule("backlog", Severity.MID, "ALERTS_BACKLOG", hold="ALERTS_BACKLOG_FOR"),
    Rule(
        "no_progress",
        Severity.HIGH,
        "WARNING_STALL_SECONDS",
        unit="s",
        hidden_by=("node_silent", "zombie", "blocked", "dns_failure", "sink_down", "disk_full"),
    ),
    Rule("nothing_done", Severity.HIGH, "ALERTS_NOTHING_DONE", unit="s"),
    Rule("run_lost", Severity.HIGH, "ALERTS_RUN_LOST", unit="s"),
    Rule("schedule_missed", Severity.HIGH, "ALERTS_SCHEDULE_LATE", unit="s"),
    Rule(
        "failure_rate",
        Severity.MID,
        "WARNING_FAILED_RATE",
        unit="%",
        hidden_by=("blocked", "dns_failure"),
        said_by_end=("nothing_done",),
    ),
    Rule(
        "failed_requests",
        Severity.MID,
        "WARNING_FAILED_COUNT",
        hidden_by=("failure_rate",),
        said_by_end=("nothing_done",),
    ),
    Rule("blocked", Severity.HIGH, "ALERTS_BLOCKED_RATE", unit="%"),
    Rule("dns_failure", Severity.HIGH, "ALERTS_DNS_RATE", unit="%"),
    Rule("duplicates", Severity.HIGH, "QUALITY_MAX_DUPLICATES", unit="%"),
    Rule("field_missing", Severity.HIGH, "QUALITY_BASELINE_RUNS"),
    Rule("dedup_fill", Severity.HIGH, "DEDUP_WARN_FILL_RATE", unit="%"),
    Rule("sink_down", Severity.HIGH, "ALERTS_SINK_DOWN", unit="s", hidden_by=("disk_full",)),
    Rule("disk_full", Severity.HIGH, "ALERTS_DISK", unit="%"),
    Rule("cpu", Severity.MID, "ALERTS_CPU", hold="ALERTS_CPU_FOR", unit="%"),
    Rule("store_memory", Severity.HIGH, "ALERTS_STORE_MEMORY", unit="%"),
    Rule("store_unreachable", Severity.HIGH, "ALERTS_STORE_DOWN", unit="s"),
    Rule("consumer_stuck", Severity.HIGH, "ALERTS_CONSUMER_STUCK", unit="s"),
    Rule("config_drift", Severity.MID, "ALERTS_CONFIG_DRIFT", unit="s"),
    Rule("source_unreachable", Severity.MID, "ALERTS_SOURCE_DOWN", unit="s"),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in _RULES})
"""All rules by name, in the order in which they are documented."""


IN_FORCE = tuple(
    sorted(
        {rule.setting for rule in _RULES}
        | {rule.hold for rule in _RULES if isinstance(rule.hold, str)}
        | {"ALERTS_CALM", "ALERTS_WINDOW", "WARNING_INTERVAL", "WARNING_MIN_REQUESTS"}
    )
)
"""Settings that rules go by: what the judge went by last stands in its record."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the settings say of the rules."""

    values: Mapping[str, float]
    """Threshold of each rule."""
    holds: Mapping[str, float]
    """Seconds for which each must hold."""
    window_seconds: float
    """Over how long rates are measured."""
    least_requests: int
    """A rate over fewer requests says nothing."""
    in_force: Mapping[str, float]
    """All that the rules go by, by setting."""
    telling_seconds: float = 0.0
    """From a finding until people are told, at most: the next look, and the wait for others."""

    def of(self, rule: str) -> float:
        """The threshold of a rule; 0 = the rule is off."""
        return self.values[rule]


def limits_of(settings: Mapping[str, Any]) -> Limits:
    """The thresholds as the settings have them now."""

    def seconds(hold: str | float) -> float:
        return float(settings[hold]) if isinstance(hold, str) else hold

    return Limits(
        values={rule.name: float(settings[rule.setting]) for rule in _RULES},
        holds={rule.name: seconds(rule.hold) for rule in _RULES},
        window_seconds=settings["ALERTS_WINDOW"],
        least_requests=settings["WARNING_MIN_REQUESTS"],
        in_force={name: float(settings[name]) for name in IN_FORCE},
        telling_seconds=settings["ALERTS_INTERVAL"] + settings["ALERTS_GROUP_WAIT"],
    )
