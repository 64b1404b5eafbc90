"""What hosts answered a node: how many attempts, which refused, which have no address."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from orbweb.model.reasons import Reason

REFUSING = frozenset({401, 403, 407, 429})
"""Status codes of a host that does not want to be fetched like this."""

MOST_HOSTS = 1000
TOLD_HOSTS = 10
"""Hosts of which the heartbeat tells: those that refused most."""


class Answers:
    """Counts since the node's start; those of hosts that have refused something stand by host."""

    def __init__(self) -> None:
        self.attempts = 0
        self.dns = 0
        """Attempts that found no address for their host."""
        self.dns_host = ""
        self._hosts: OrderedDict[str, list[int]] = OrderedDict()

    def note(self, host: str, status: int, reason: Reason | None) -> None:
        """An attempt has ended; `reason` says why it failed, if it did."""
        self.attempts += 1
        if reason is Reason.DNS:
            self.dns += 1
            self.dns_host = host
            return
        refused = status in REFUSING or reason is Reason.ANTIBOT
        counts = self._hosts.get(host)
        if counts is None:
            if not refused:
                return
            counts = self._hosts[host] = [0, 0]
            if len(self._hosts) > MOST_HOSTS:
                self._hosts.popitem(last=False)
        counts[0] += refused
        counts[1] += 1

    def told(self) -> dict[str, Any]:
        """The counts as a heartbeat has them."""
        worst = sorted(self._hosts.items(), key=lambda item: -item[1][0])[:TOLD_HOSTS]
        return {
            "attempts": self.attempts,
            "dns": self.dns,
            "dns_host": self.dns_host,
            "refused": dict(worst),
        }
