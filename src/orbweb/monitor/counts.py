"""What a node has counted of its work: totals that add up over nodes, and never go down."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

import msgspec

from orbweb.errors import OrbwebError
from orbweb.monitor.quality import Tally

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the classes of a time, in seconds."""

STORE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""The same of a call of the store."""

BYTES = tuple(float(4**power) for power in range(4, 14))
"""Upper bounds of the classes of a size: 256 B, 1 KiB, … 64 MiB."""

MOST_TABLES = 20
MOST_FIELDS = 40
"""Names of items, and of fields of one, that are counted apart. Items beyond them are `OTHER`."""

OTHER = "other"


class Histogram(msgspec.Struct, omit_defaults=True):
    """How often a measure fell into each class, and its sum.

    The bounds are those of the field that holds it; the last class is what exceeds all of them.
    """

    sum: float = 0.0
    classes: list[int] = []

    @property
    def count(self) -> int:
        return sum(self.classes)

    def padded(self, length: int) -> list[int]:
        """So many classes; a histogram that nothing was noted in has none."""
        return self.classes or [0] * length

    def note(self, value: float, bounds: tuple[float, ...]) -> None:
        """Count one measure."""
        if not self.classes:
            self.classes = [0] * (len(bounds) + 1)
        self.classes[bisect_left(bounds, value)] += 1
        self.sum += value

    def add(self, other: Histogram, sign: int = 1) -> None:
        """Add what was measured elsewhere, with the same bounds; `sign` -1 takes it away."""
        missing = len(other.classes) - len(self.classes)
        self.classes += [0] * max(0, missing)
        for place, number in enumerate(other.classes):
            self.classes[place] += sign * number
        self.sum = round(self.sum + sign * other.sum, 6)


class Counts(msgspec.Struct, omit_defaults=True):
    """One node's totals since it began; those of nodes add up to those of the run."""

    outcomes: dict[str, int] = {}
    """How requests ended, and why links were not taken: by reason."""
    retried: dict[str, int] = {}
    """Attempts that failed and are made again: by reason."""
    statuses: dict[str, int] = {}
    """Answers by class: `2xx`, `4xx`…; `none` = there was none."""
    items: dict[str, dict[str, int]] = {}
    """By table, then `stored`, `filtered` (known before) or `failed`."""
    looked: dict[str, int] = {}
    """By table: items whose fields were looked at."""
    filled: dict[str, dict[str, int]] = {}
    """By table and field: in how many of those it was there and not empty."""
    checked: int = 0
    """Items that were compared with all others; `repeated` of them were there already."""
    repeated: int = 0
    download: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds from the send of a request to the end of its answer."""
    size: Histogram = msgspec.field(default_factory=Histogram)
    """Bytes of a body, decompressed."""
    wait: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds from the claim of a request to its first send: the host's turn, and connecting."""
    store: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds of a call of the store that was answered."""
    outages: int = 0
    """How often the store stopped answering."""
    permits: int = 0
    """Turns that were missed or passed, and asked for again."""
    late: int = 0
    """Sends that were later than their turn after all."""
    lost: int = 0
    """Leases that another node has taken over."""

    def answered(self, status: int, seconds: float, size_bytes: int) -> None:
        """A page's answer has come, or (status 0) has not."""
        name = f"{status // 100}xx" if status else "none"
        self.statuses[name] = self.statuses.get(name, 0) + 1
        if status:
            self.download.note(seconds, SECONDS)
            self.size.note(size_bytes, BYTES)

    def ended(self, reason: str, number: int = 1) -> None:
        """Requests have ended, or links were not taken."""
        self.outcomes[reason] = self.outcomes.get(reason, 0) + number

    def again(self, reason: str) -> None:
        """An attempt has failed and is made again."""
        self.retried[reason] = self.retried.get(reason, 0) + 1

    def item(self, table: str, outcome: str, number: int = 1) -> None:
        """Items have had that outcome."""
        if number:
            of_table = _part(self.items, table)
            of_table[outcome] = of_table.get(outcome, 0) + number

    def waited(self, seconds: float) -> None:
        """A request was sent for the first time, so long after its claim."""
        self.wait.note(seconds, SECONDS)

    def store_answered(self, seconds: float) -> None:
        """A call of the store has been answered."""
        self.store.note(seconds, STORE_SECONDS)

    def see(self, tally: Tally) -> None:
        """Take over what the fields of items look like, in the place of what was known before."""
        self.checked, self.repeated = tally.checked, tally.repeated
        tables = dict(islice(tally.tables.items(), MOST_TABLES))
        self.looked = {name: table.items for name, table in tables.items()}
        self.filled = {
            name: {
                field: count.filled for field, count in islice(table.fields.items(), MOST_FIELDS)
            }
            for name, table in tables.items()
        }

    def missing(self) -> dict[str, dict[str, int]]:
        """By table and field: items in which it was empty or not there, if there are any."""
        return {
            table: found
            for table, fields in self.filled.items()
            if (
                found := {
                    field: self.looked.get(table, 0) - number
                    for field, number in fields.items()
                    if self.looked.get(table, 0) > number
                }
            )
        }

    def add(self, other: Counts, sign: int = 1) -> None:
        """Add what another node has counted; `sign` -1 takes it away."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + sign * getattr(other, name))
        for name in NAMED:
            _add(getattr(self, name), getattr(other, name), sign)
        for name in BY_TABLE:
            for table, numbers in getattr(other, name).items():
                _add(_part(getattr(self, name), table), numbers, sign)
        for name in MEASURED:
            getattr(self, name).add(getattr(other, name), sign)

    def less(self, other: Counts) -> Counts:
        """What was counted since `other` was."""
        found = total([self])
        found.add(other, -1)
        return found


NUMBERS = ("checked", "repeated", "outages", "permits", "late", "lost")
NAMED = ("outcomes", "retried", "statuses", "looked")
BY_TABLE = ("items", "filled")
MEASURED = ("download", "size", "wait", "store")


def _part(tables: dict[str, dict[str, int]], table: str) -> dict[str, int]:
    """The numbers of a table, or those of all that have no place of their own."""
    if table not in tables and len(tables) >= MOST_TABLES:
        table = OTHER
    return tables.setdefault(table, {})


def _add(numbers: dict[str, int], more: dict[str, int], sign: int) -> None:
    for name, number in more.items():
        numbers[name] = numbers.get(name, 0) + sign * number


def encode(counts: Counts) -> bytes:
    """The counts as they are kept in the store."""
    return msgspec.msgpack.encode(counts)


def decode(counts: bytes) -> Counts:
    """Raises `OrbwebError` for anything that `encode` did not write."""
    try:
        return msgspec.msgpack.decode(counts, type=Counts)
    except msgspec.MsgspecError as error:
        raise OrbwebError(f"these are no counts of a node: {error}") from error


def total(counts: Iterable[Counts]) -> Counts:
    """The sum of what nodes have counted."""
    found = Counts()
    for each in counts:
        found.add(each)
    return found


def total_told(counts: Iterable[bytes]) -> Counts:
    """The sum of what is kept in the store; what another version wrote is left out."""
    found = Counts()
    for each in counts:
        with suppress(OrbwebError):
            found.add(decode(each))
    return found


def added_up(counts: Iterable[bytes]) -> bytes:
    """The same, as it is kept in the store."""
    return encode(total_told(counts))
