"""The hosts with the longest queues, found a piece at a time: no look walks over all hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from orbweb.frontier.hosts import Host, RunRules
from orbweb.frontier.hosttable import HostTable, Sort

FIRST_PAGES = 400
"""Pages (of about 250 hosts) of the first look; later ones go on where the last one ended."""

PAGES = 4

ROOM = 2
"""So many times the hosts that are shown are watched, so that the order among them is exact."""

Base = tuple[str, str, str]
"""A run: job, run id and the beginning of its keys."""


@dataclass(slots=True)
class _Place:
    """How far the walk over the runs of a shard has come."""

    cursor: bytes = b"0"
    run: str = ""
    turned: bool = False
    """It has seen all hosts once."""


@dataclass(slots=True)
class BusiestHosts:
    """Watches the hosts of one shard.

    Hosts that are watched are read exactly at each look. A host that grows long is found when the
    walk comes by: after `hosts / 250 / PAGES` looks at most.
    """

    table: HostTable
    most: int = 50
    _backlogs: dict[str, int] = field(default_factory=dict)
    _place: _Place = field(default_factory=_Place)

    async def look(self, runs: Sequence[Base]) -> list[tuple[Host, list[RunRules]]]:
        """The hosts with the longest queues now, and what runs ask for there."""
        for _ in range(PAGES if self._place.turned else FIRST_PAGES):
            await self._go_on(runs)
            if self._place.turned and self._place.cursor == b"0":
                break
        names = list(self._backlogs)
        if not names:
            return []
        rules, hosts = await self.table.look(runs, names)
        hosts.sort(key=lambda host: (-host.backlog, host.name))
        kept = [host for host in hosts if host.backlog or host.slots][: ROOM * self.most]
        self._backlogs = {host.name: host.backlog for host in kept}
        return [(host, rules) for host in kept[: self.most]]

    async def _go_on(self, runs: Sequence[Base]) -> None:
        """Read one page of the hosts of one run, then of the next."""
        place, bases = self._place, [base for _, _, base in runs]
        if not bases:
            place.turned = True
            return
        if place.run not in bases:
            place.run, place.cursor = bases[0], b"0"
        at = bases.index(place.run)
        place.cursor, _, seen = await self.table.page(
            "ready", at + 1, bases, Sort.BACKLOG, self._floor(), place.cursor
        )
        for host in seen:
            self._offer(host.name, int(host.score))
        if place.cursor == b"0":
            place.run = bases[(at + 1) % len(bases)]
            place.turned = place.turned or at + 1 == len(bases)

    def _floor(self) -> float:
        """Shorter queues need not be told of."""
        full = len(self._backlogs) >= ROOM * self.most
        return float(min(self._backlogs.values())) if full else -1.0

    def _offer(self, name: str, backlog: int) -> None:
        self._backlogs[name] = backlog
        if len(self._backlogs) > 2 * ROOM * self.most:
            longest = sorted(self._backlogs, key=lambda host: -self._backlogs[host])
            self._backlogs = {host: self._backlogs[host] for host in longest[: ROOM * self.most]}
