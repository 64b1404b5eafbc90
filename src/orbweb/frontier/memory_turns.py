"""Whose turn it is at which host, in a frontier in memory. The twin of `turn.lua`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha1

from orbweb.frontier.memory_hosts import LOOK_AHEAD_MS, NOTICE_MS, SPARE_MS, Hosts
from orbweb.frontier.memory_state import Run

SILENT_MS = 15_000
HANDS = 256
RATE_TO_SHARE = 10_000
MOST_OWED = 64
RIVAL_MS = 1000


@dataclass(slots=True)
class Turns:
    """What one claim needs to know of the other nodes of its run."""

    hosts: Hosts
    run: Run
    me: str
    now: int
    """The run's clock."""
    nodes: list[str] = field(default_factory=list)
    all_rate: int = 0
    rivals: int = 0
    load: int = 0
    mean: int = 0
    behind: bool = False
    ahead: bool = False

    def read(self) -> None:
        run = self.run
        for other in [n for n, at in run.hungry.items() if at <= self.now - RIVAL_MS]:
            del run.hungry[other]
        self.rivals = len(run.hungry) - (self.me in run.hungry)
        self.all_rate = self.hosts.all_rate()
        living = {n for n, at in run.nodes.at.items() if at >= self.now - SILENT_MS}
        self.nodes = sorted(living | {self.me})
        if len(self.nodes) > 1:
            if run.dealt_to != self.nodes:
                run.dealt_to = self.nodes
                run.deal = [self._owner(hand) for hand in range(HANDS)]
            self._read_loads()

    def _owner(self, hand: int) -> int:
        weights = [weight(hand, name) for name in self.nodes]
        return weights.index(max(weights))

    def is_own(self, host: str) -> bool:
        if len(self.nodes) == 1:
            return True
        hand = hand_of(host)
        if self.nodes[self.run.deal[hand]] == self.me:
            return True
        if host not in self.run.heavy:
            return False
        parts = self._parts(host)
        own = weight(hand, self.me)
        return parts > 1 and sum(weight(hand, name) > own for name in self.nodes) < parts

    def _parts(self, host: str) -> int:
        """How many nodes a host is worth."""
        if self.all_rate < RATE_TO_SHARE:
            return 1
        return int(self.hosts.rate_of(host) * len(self.nodes) / self.all_rate + 0.5)

    def note_weight(self, host: str) -> None:
        """Keep the list of heavy hosts. See `note_weight` in `turn.lua`."""
        if len(self.nodes) == 1:
            return
        heavy, enters = self.run.heavy, self._parts(host) > 1
        if enters == (host in heavy):
            return
        others = [other for other in heavy if other != host]
        if enters:
            others = [*(other for other in others if self._parts(other) > 1), host]
        self.run.heavy = others

    def _read_loads(self) -> None:
        loads = self.run.loads
        known = [loads[name] for name in self.nodes if name in loads]
        self.mean = sum(known) // len(known) if known else 0
        self.load = max(loads.get(self.me, 0), self.mean - MOST_OWED)
        margin = 6 + self.mean // 12
        self.behind = self.load < self.mean - margin
        self.ahead = self.load > self.mean + margin and self.rivals > 0

    def patience(self, own: bool, fresh: bool) -> int:
        """From when on a host is this node's to take. See `patience` in `turn.lua`."""
        if self.behind or (own and not self.ahead):
            return -LOOK_AHEAD_MS
        return NOTICE_MS if fresh else -SPARE_MS


def weight(hand: int, name: str) -> int:
    factor, term = _numbers(name)
    return ((hand + 1) * factor + term) % 2147483647


@lru_cache(maxsize=1024)
def _numbers(name: str) -> tuple[int, int]:
    digest = sha1(name.encode(), usedforsecurity=False).hexdigest()
    return int(digest[:7], 16), int(digest[7:14], 16)


@lru_cache(maxsize=4096)
def hand_of(host: str) -> int:
    """Which hand the host is dealt with."""
    return int(sha1(host.encode(), usedforsecurity=False).hexdigest()[:4], 16) % HANDS
