"""The ledger: which leases this node holds, and until when it may act on them."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from orbweb.frontier.base import Held


class _Entry:
    __slots__ = ("open", "sent", "since")

    def __init__(self, sent: float, since: float) -> None:
        self.sent = sent
        self.since = since
        self.open = True


class Ledger:
    """Held leases, keyed by (id, token), with the time of the last good renewal.

    A lease is valid for `lease_seconds - margin_seconds` from the moment at which the call that
    gave or renewed it was *sent*: the store cannot have started to count earlier. Times are
    seconds of one monotonic clock that all callers share. Safe to use from several threads, for
    the keeper renews on its own.
    """

    def __init__(self, lease_seconds: float, margin_seconds: float) -> None:
        self._valid_seconds = lease_seconds - margin_seconds
        self._entries: dict[Held, _Entry] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, held: Held) -> bool:
        return held in self._entries

    def add(self, held: Held, sent: float) -> None:
        """Enter a lease that a call sent at `sent` has given."""
        with self._lock:
            self._entries[held] = _Entry(sent, sent)

    def renewed(self, held: Iterable[Held], sent: float) -> None:
        """Note a good renewal sent at `sent`; leases that have left meanwhile stay out."""
        with self._lock:
            for each in held:
                entry = self._entries.get(each)
                if entry is not None:
                    entry.sent = max(entry.sent, sent)

    def remove(self, held: Held) -> bool:
        """Take a lease out because it is settled or lost; False when it was out already."""
        with self._lock:
            return self._entries.pop(held, None) is not None

    def finishing(self, held: Held) -> None:
        """The page's work is over and only storage is awaited: no limit of holding any more."""
        with self._lock:
            entry = self._entries.get(held)
            if entry is not None:
                entry.open = False

    def valid(self, held: Held, now: float) -> bool:
        """True when nobody else can hold the lease at `now`; False means: renew first."""
        entry = self._entries.get(held)
        return entry is not None and now < entry.sent + self._valid_seconds

    def held(self) -> list[Held]:
        """All leases, in the order in which they came."""
        with self._lock:
            return list(self._entries)

    def overdue(self, now: float, max_hold_seconds: float) -> list[Held]:
        """Leases whose work has gone on for longer than `max_hold_seconds`."""
        with self._lock:
            return [
                held
                for held, entry in self._entries.items()
                if entry.open and now - entry.since > max_hold_seconds
            ]
