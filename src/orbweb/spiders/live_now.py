"""What holds in a node of settings and live values, and what differs between two times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orbweb.config.check import SWITCH_PREFIX
from orbweb.settings import DECLARATIONS, Settings, When
from orbweb.settings.load import USER_PREFIX

Values = Mapping[str, Any]
HostValues = Mapping[str, Values]


@dataclass(frozen=True, slots=True)
class Now:
    """All that holds in a node: every setting, the spider's own values, and those of hosts."""

    settings: Settings
    own: Values
    hosts: HostValues
    ends: Mapping[tuple[str, str], int]
    """By host and key, when what holds for a host ends (the store's wall clock, ms)."""
    version: int
    """Of the store's values."""
    by_store: frozenset[tuple[str, str]] = frozenset()
    """By host and key, what of hosts the store says; the rest comes from other sources."""

    def of_host(self, host: str, name: str) -> Any:
        """A setting as it holds for one host."""
        return self.hosts.get(host, {}).get(name, self.settings[name])


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the node that goes by some settings, and how it takes other ones.

    `apply` raises what it likes when it cannot: then it is called with the old values.
    """

    name: str
    names: frozenset[str]
    apply: Callable[[Now], Awaitable[None]]
    always: bool = False
    """Also when none of its settings have changed: what others share may have."""
    repeat: Callable[[Now], Awaitable[None]] | None = None
    """Says again what counts for a while only."""


def is_hot(name: str) -> bool:
    """Whether a setting may change while a node runs."""
    return name.startswith(USER_PREFIX) or (
        name in DECLARATIONS and DECLARATIONS[name].when is When.HOT
    )


def value_of(now: Now, name: str) -> Any:
    """What holds under a full name; None when nothing does."""
    return now.own.get(name) if name.startswith(SWITCH_PREFIX) else now.settings.get(name)


def differences(before: Now, after: Now) -> set[str]:
    """Names of what differs, by host too."""
    names = {
        name
        for name in {**before.settings, **after.settings}
        if before.settings.get(name) != after.settings.get(name)
    }
    names |= {
        name
        for name in {**before.own, **after.own}
        if value_of(before, name) != value_of(after, name)
    }
    for host in {**before.hosts, **after.hosts}:
        old, new = before.hosts.get(host, {}), after.hosts.get(host, {})
        names |= {name for name in {**old, **new} if old.get(name) != new.get(name)}
        names |= {
            name for name in new if before.ends.get((host, name)) != after.ends.get((host, name))
        }
    return names


def without(wanted: Now, before: Now, refused: Mapping[str, str]) -> Now:
    """What is wanted, with the old values of what is refused."""
    if not refused:
        return wanted
    names = [name for name in refused if name in before.settings]
    settings = wanted.settings.changed(
        {name: before.settings[name] for name in names},
        {name: before.settings.origin(name) for name in names},
    )
    own = {**wanted.own, **{name: before.own[name] for name in refused if name in before.own}}
    hosts = {
        host: {
            **{
                name: value
                for name, value in wanted.hosts.get(host, {}).items()
                if name not in refused
            },
            **{
                name: value for name, value in before.hosts.get(host, {}).items() if name in refused
            },
        }
        for host in {**wanted.hosts, **before.hosts}
    }
    return Now(settings, own, hosts, wanted.ends, wanted.version, wanted.by_store)
