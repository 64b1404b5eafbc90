"""From settings to the policy of notices: routes, quiet hours, waits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from orbweb.alarms.notices import EVERY_CHANNEL, Policy, Quiet, Route
from orbweb.alarms.rules import RULES, Severity
from orbweb.errors import ConfigError

_HOURS = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_ROUTE_WORDS = ("severity", "owner", "job", "rule")


def policy_of(settings: Mapping[str, Any], channels: Sequence[str]) -> Policy:
    """How people want to be told. Raises `ConfigError`."""
    return Policy(
        channels=tuple(channels),
        routes=tuple(_route(text, channels) for text in settings["ALERTS_ROUTES"]),
        quiet=_quiet(settings),
        group_wait_ms=round(settings["ALERTS_GROUP_WAIT"] * 1000),
        cooldown_ms=round(settings["WARNING_INTERVAL"] * 1000),
    )


def _quiet(settings: Mapping[str, Any]) -> Quiet | None:
    text = settings["ALERTS_QUIET_HOURS"]
    if not text:
        return None
    found = _HOURS.fullmatch(text.strip())
    hours = [int(part) for part in found.groups()] if found else []
    if not found or max(hours[0], hours[2]) > 24 or max(hours[1], hours[3]) > 59:
        raise ConfigError(f"ALERTS_QUIET_HOURS = {text!r}: right would be 23:00-07:00")
    zone = settings["ALERTS_TIME_ZONE"]
    try:
        place = ZoneInfo(zone) if zone else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"ALERTS_TIME_ZONE = {zone!r} is no time zone; right would be Asia/Shanghai"
        ) from None
    return Quiet(
        hours[0] * 60 + hours[1],
        hours[2] * 60 + hours[3],
        Severity(settings["ALERTS_QUIET_SEVERITY"]),
        place,
    )


def _route(text: str, channels: Sequence[str]) -> Route:
    words, colon, named = text.partition(":")
    targets = tuple(named.replace(",", " ").split())
    given = dict(word.partition("=")[::2] for word in words.split() if word != "*")
    wrong = next((name for name in given if name not in _ROUTE_WORDS), "")
    if not colon or not targets or wrong:
        raise ConfigError(
            f"ALERTS_ROUTES: {text!r} is no route{f' ({wrong}?)' if wrong else ''}; right would be "
            "`severity=high owner=li: ops mail`"
        )
    unknown = next((name for name in targets if name not in (*channels, EVERY_CHANNEL)), "")
    if unknown:
        raise ConfigError(
            f"ALERTS_ROUTES: {text!r} names a channel {unknown}; there are: "
            f"{', '.join(channels) or 'none'}"
        )
    if given.get("rule") and given["rule"] not in RULES:
        raise ConfigError(f"ALERTS_ROUTES: {text!r} names a rule that does not exist")
    if given.get("severity", "mid") not in list(Severity):
        raise ConfigError(f"ALERTS_ROUTES: {text!r}: severity is info, mid or high")
    severity = Severity(given["severity"]) if given.get("severity") else None
    return Route(
        targets, severity, given.get("owner", ""), given.get("job", ""), given.get("rule", "")
    )
