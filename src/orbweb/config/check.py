"""Whether a live value may hold: its kind and range, its place, and how it goes with others."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orbweb.config.place import Place, Scope
from orbweb.errors import ConfigError
from orbweb.model.proxy import BadProxyError, Proxy
from orbweb.model.rate import rate_text
from orbweb.settings import DECLARATIONS, When
from orbweb.settings.kinds import COUNT, FLAG, NUMBER, TEXT, TEXTS, Kind, NotThisKind
from orbweb.settings.load import USER_PREFIX, read_setting
from orbweb.settings.log import logger_levels

SWITCH_PREFIX = "PARSE."
"""Keys of a spider's own live values, which its `live` declares."""

FLEET = frozenset(
    {
        *("DOWNLOAD_DELAY", "CONCURRENT_REQUESTS_PER_DOMAIN", "RANDOMIZE_DOWNLOAD_DELAY"),
        *("AUTOTHROTTLE_ENABLED", "AUTOTHROTTLE_START_DELAY", "AUTOTHROTTLE_MAX_DELAY"),
        *("CIRCUIT_FAILURE_THRESHOLD", "CIRCUIT_COOLDOWN", "HOST_BACKLOG_LIMIT"),
        "SPIDER_MAX_RETRY_TIMES",
    }
)
"""Decided in the store, for all nodes of a run together."""

TOGETHER = "is decided in the store for all nodes together, as they share hosts and requests"

BY_HOST = frozenset(
    {
        *("DOWNLOAD_DELAY", "CONCURRENT_REQUESTS_PER_DOMAIN", "USER_AGENT"),
        *("REQUEST_TIMEOUT", "CONNECT_TIMEOUT", "READ_TIMEOUT", "MAX_RESPONSE_SIZE"),
    }
)
"""May differ from host to host."""

NOT_ABOVE = (
    ("AUTOTHROTTLE_START_DELAY", "AUTOTHROTTLE_MAX_DELAY"),
    ("SPIDER_RETRY_INTERVAL", "RETRY_MAX_INTERVAL"),
)
"""The first of each pair must not be greater than the second."""

KINDS: Mapping[type, Kind] = {
    bool: FLAG, int: COUNT, float: NUMBER, str: TEXT, list: TEXTS, tuple: TEXTS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Switches:
    """The live values of their own that jobs have declared: by job, the defaults by name."""

    of_jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def job_of(self, place: Place) -> str:
        """The job for which a value holds; empty when it is not for one job.

        Names of jobs and runs may have colons: of a run's place the longest known job counts.
        """
        if place.scope is Scope.JOB:
            return place.whose
        if place.scope is not Scope.RUN:
            return ""
        known = (job for job in self.of_jobs if place.whose.startswith(f"{job}:"))
        return max(known, key=len, default=place.whose.partition(":")[0])

    def default(self, name: str, job: str = "") -> Any:
        """That of a job, or of the first that has it. Raises `ConfigError`: did you mean …"""
        jobs = [job] if job else sorted(self.of_jobs)
        known: dict[str, Any] = {}
        for each in jobs:
            known |= self.of_jobs.get(each, {})
        if name in known:
            return known[name]
        whose = f"job {job}" if job else "any job of this store"
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {SWITCH_PREFIX}{close[0]}?" if close else ""
        if not known:
            hint = f': it has none, as far as its nodes have told (live = {{"{name}": …}})'
        raise ConfigError(f"{SWITCH_PREFIX}{name} is no live value of {whose}{hint}")


def checked(place: Place, value: Any, origin: str, switches: Switches, *, textual: bool) -> Any:
    """The value in its final type. Raises `ConfigError` that says what would be right.

    `textual`: text is read as on the command line.
    """
    key = place.key
    if key.startswith(SWITCH_PREFIX):
        job = switches.job_of(place)
        default = switches.default(key.removeprefix(SWITCH_PREFIX), job)
        read = _read_switch(place, value, default, origin, textual=textual)
    elif key.startswith(USER_PREFIX):
        read = value
    else:
        name, read = read_setting(key, value, origin, textual=textual)
        _check_when(name, key)
        _check_form(name, read, origin)
    _check_scope(place)
    return list(read) if isinstance(read, tuple) else read


def _read_switch(place: Place, value: Any, default: Any, origin: str, *, textual: bool) -> Any:
    kind = KINDS.get(type(default))
    if kind is None:
        return value
    try:
        if textual and isinstance(value, str):
            return kind.parse(value)
        return kind.check(value)
    except NotThisKind as error:
        text = f"{place.key} = {value!r} ({origin}): {error}, for example {kind.example}"
        raise ConfigError(text) from None


def _check_when(name: str, given: str) -> None:
    when = DECLARATIONS[name].when if name in DECLARATIONS else When.HOT
    if when is When.HOT:
        return
    reason = {
        When.RESTART: "counts when a node is started again",
        When.NEXT_RUN: "counts when a run is made, and a run keeps it for its life",
    }[when]
    raise ConfigError(
        f"{given} cannot change in nodes that run: it {reason}. Right would be orbweb.toml, "
        f"ORBWEB_{name} in the environment, or -s {name}=VALUE"
    )


def _check_form(name: str, value: Any, origin: str) -> None:
    """What the kind of a setting does not say of its value."""
    if name in ("EXCLUDE_URLS", "INCLUDE_URLS"):
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(
                    f"{name} ({origin}): {pattern!r} is no regular expression: {error}"
                ) from None
    if name == "LOG_LEVELS":
        logger_levels(value)
    if name == "PROXY_LIST":
        for number, address in enumerate(value, 1):
            try:
                Proxy.parse(address)
            except BadProxyError as error:
                raise ConfigError(f"{name} ({origin}), entry {number}: {error}") from None


def _check_scope(place: Place) -> None:
    key, scope = place.key, place.scope
    if scope is Scope.HOST and key in DECLARATIONS and key not in BY_HOST:
        raise ConfigError(
            f"{key} does not differ from host to host: its scopes are all, a job, a run"
            f"{'' if key in FLEET else ' and a node'}. By host: {', '.join(sorted(BY_HOST))}"
        )
    if scope is Scope.NODE and key in FLEET:
        raise ConfigError(
            f"{key} {TOGETHER}, so no node has one of its own: its scopes are all, a job (--job), "
            f"a run (--run-id){' and a host (--host)' if key in BY_HOST else ''}. What one node "
            "does at once is CONCURRENT_REQUESTS"
        )


def check_canary(place: Place) -> None:
    """Raises `ConfigError` for what cannot be tried out on some of the nodes."""
    if place.key in FLEET:
        narrow = "one host (--host HOST)" if place.key in BY_HOST else "one job (--job JOB)"
        raise ConfigError(
            f"{place.key} {TOGETHER}, so some nodes cannot try it out: try it on {narrow} for a "
            "time (--for 10m), without --canary"
        )


def check_together(values: Mapping[str, Any]) -> dict[str, str]:
    """By name what contradicts another value; empty when all go together."""
    wrong = {}
    for low, high in NOT_ABOVE:
        if low in values and high in values and values[low] > values[high]:
            text = f"{low} = {values[low]:g} is greater than {high} = {values[high]:g}"
            wrong[low] = wrong[high] = text
    return wrong


def slower_text(gap_ms: float, ceiling_ms: float) -> str:
    """What to say of a delay that asks for more than the approved rate."""
    return (
        f"the approved {rate_text(ceiling_ms)} holds all the same: what is asked for "
        f"({rate_text(gap_ms) if gap_ms else 'no delay'}) is faster"
    )
