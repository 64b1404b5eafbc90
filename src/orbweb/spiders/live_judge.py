"""Which of the values that are said for a node are to hold in it, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orbweb.config.check import SWITCH_PREFIX, Switches, check_together, checked
from orbweb.config.place import Scope
from orbweb.config.resolve import Found, Resolution
from orbweb.errors import ConfigError
from orbweb.settings import DECLARATIONS, Settings
from orbweb.settings.load import USER_PREFIX
from orbweb.spiders.live_now import Now, Values


@dataclass(frozen=True, slots=True)
class LiveJudge:
    """Judges values against what holds in a node. Asks nobody, changes nothing."""

    job: str
    declared: Values
    """The spider's own live values, with their defaults."""
    base: Settings
    """The settings without live values."""
    before: Now
    live: frozenset[str]
    """Settings that a live value holds of."""

    def judge(self, found: Resolution, version: int) -> tuple[Now, dict[str, str]]:
        """What is to hold, and by place of each value why it does not (empty: it does).

        A value that is refused leaves in force what held before it.
        """
        said: dict[str, str] = dict(found.refused)
        switches = Switches({self.job: self.declared})
        values, origins = self._accepted(found.values, switches, said)
        together = {**self.base, **values}
        for name, text in check_together(together).items():
            if name in values:
                said[str(found.values[name].place)] = text
                self._keep_old(name, values, origins)
        settings = {name: value for name, value in values.items() if _is_setting(name)}
        own = {f"{SWITCH_PREFIX}{name}": value for name, value in self.declared.items()}
        own |= {name: value for name, value in values.items() if name.startswith(SWITCH_PREFIX)}
        hosts: dict[str, dict[str, Any]] = {}
        ends: dict[tuple[str, str], int] = {}
        by_store = set()
        for host, of_host in found.hosts.items():
            for name, value in self._accepted(of_host, switches, said)[0].items():
                hosts.setdefault(host, {})[name] = value
                ends[host, name] = of_host[name].until_ms
                if of_host[name].by_store:
                    by_store.add((host, name))
        changed = self.base.changed(settings, origins)
        return Now(changed, own, hosts, ends, version, frozenset(by_store)), said

    def _accepted(
        self, found: Mapping[str, Found], switches: Switches, said: dict[str, str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for name, each in found.items():
            try:
                value = checked(each.place, each.value, each.origin, switches, textual=each.textual)
            except ConfigError as error:
                said[str(each.place)] = str(error)
                if each.place.scope is not Scope.HOST:
                    self._keep_old(name, values, origins)
                continue
            values[name] = tuple(value) if isinstance(value, list) else value
            origins[name] = each.origin
            said[str(each.place)] = ""
        return values, origins

    def _keep_old(self, name: str, values: dict[str, Any], origins: dict[str, str]) -> None:
        before = self.before.settings
        if name in self.live:
            values[name], origins[name] = before[name], before.origin(name)
        elif name in self.before.own:
            values[name] = self.before.own[name]
        else:
            values.pop(name, None)
            origins.pop(name, None)


def _is_setting(name: str) -> bool:
    return name in DECLARATIONS or name.startswith(USER_PREFIX)
