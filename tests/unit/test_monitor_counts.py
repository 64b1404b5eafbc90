"""What a node counts of its work adds up, and its heartbeat stays small."""

from __future__ import annotations

import json
from collections.abc import Callable

from orbweb.engine.gauge import MOST_BYTES, with_counts
from orbweb.engine.teller import Teller
from orbweb.model.reasons import Reason
from orbweb.monitor.counts import MOST_TABLES, OTHER, Counts, added_up, decode, encode, total
from orbweb.monitor.quality import Tally
from orbweb.monitor.vitals import VitalSigns, memory_total


def counted(pages: int = 3) -> Counts:
    counts = Counts()
    for number in range(pages):
        counts.answered(200, 0.03 * number, 5000)
        counts.ended(Reason.DONE)
        counts.item("shop", "stored")
        counts.store_answered(0.002)
        counts.waited(0.5)
    counts.answered(0, 0.0, 0)
    counts.again(Reason.TIMEOUT)
    counts.permits += 2
    tally = Tally()
    tally.see("shop", {"name": "x", "price": None})
    tally.see("shop", {"name": "y"})
    tally.checked, tally.repeated = 2, 1
    counts.see(tally)
    return counts


def test_what_two_nodes_counted_adds_up_and_is_taken_away_again():
    one, two = counted(3), counted(5)
    both = total([one, two])
    assert both.statuses == {"2xx": 8, "none": 2}
    assert both.outcomes == {"done": 8}
    assert both.items == {"shop": {"stored": 8}}
    assert both.missing() == {"shop": {"price": 4}}
    assert (both.checked, both.repeated, both.permits) == (4, 2, 4)
    assert both.download.count == 8
    assert both.download.sum == one.download.sum + two.download.sum
    left = both.less(one)
    assert left.statuses == two.statuses
    assert left.download.classes == two.download.classes
    assert decode(added_up([encode(one), encode(two)])) == both


def test_a_measure_falls_into_the_class_whose_bound_it_does_not_pass():
    counts = Counts()
    for seconds in (0.01, 0.011, 61.0):
        counts.answered(200, seconds, 256)
    assert counts.download.classes[:2] == [1, 1]
    assert counts.download.classes[-1] == 1
    assert counts.size.classes[0] == 3


def test_names_of_items_are_bounded():
    counts = Counts()
    for number in range(MOST_TABLES + 30):
        counts.item(f"table{number}", "stored")
    assert len(counts.items) == MOST_TABLES + 1
    assert counts.items[OTHER] == {"stored": 30}


def test_a_beat_stays_small_whatever_was_counted():
    counts = Counts()
    for reason in Reason:
        counts.ended(reason, 10**12)
        for _ in range(3):
            counts.again(reason)
    tally = Tally()
    for number in range(MOST_TABLES):
        table = f"a_table_with_a_rather_long_name_{number}"
        counts.item(table, "stored", 10**9)
        counts.item(table, "failed", 10**9)
        for field in range(40):
            tally.see(table, {f"a_field_with_a_long_name_{field}": None})
    counts.see(tally)
    for seconds in (0.001, 1.0, 100.0):
        counts.waited(seconds)
    text = with_counts({"host": "h" * 200, "pages": 1}, counts)
    assert len(text) <= MOST_BYTES
    beat = json.loads(text)
    assert beat["pages"] == 1
    assert beat["counts"]["wait"]["classes"][-1] == 1


def test_a_beat_tells_which_fields_are_missing():
    beat = json.loads(with_counts({}, counted()))
    assert beat["counts"]["missing"] == {"shop.price": 2}
    assert beat["counts"]["checked"] == 2
    assert "filled" not in beat["counts"]


class Book:
    """Totals in memory, from which a node can be folded away."""

    def __init__(self) -> None:
        self.told: dict[str, bytes] = {}

    def attach(self, epoch: str) -> None: ...

    async def tell(self, node: str, counts: bytes, *, again: bool) -> bool:
        if again and node not in self.told:
            return False
        self.told[node] = counts
        return True

    def total(self) -> Counts:
        return total(map(decode, self.told.values()))


async def test_a_node_that_was_taken_for_dead_counts_nothing_twice():
    book, counts = Book(), Counts()
    teller = Teller(book, "n1", lambda: counts)
    counts.ended(Reason.DONE, 10)
    await teller.tell()
    counts.ended(Reason.DONE, 5)
    await teller.tell()
    book.told = {"": book.told["n1"]}  # folded: 15
    counts.ended(Reason.DONE, 1)
    await teller.tell()
    counts.ended(Reason.DONE, 1)
    await teller.tell()
    assert book.total().outcomes == {"done": 17}
    book.told[""] = added_up(book.told.values())  # and once more
    del book.told["n1.2"]
    counts.ended(Reason.DONE, 3)
    await teller.tell()
    assert book.total().outcomes == {"done": 20}


async def test_what_a_store_has_forgotten_is_told_again():
    book, counts = Book(), Counts()
    teller = Teller(book, "n1", lambda: counts)
    counts.ended(Reason.DONE, 10)
    await teller.tell()
    before = dict(book.told)
    counts.ended(Reason.DONE, 5)
    await teller.tell()
    book.told = before  # the store lost its last writes
    counts.ended(Reason.DONE, 1)
    await teller.tell()
    assert book.total().outcomes == {"done": 16}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_cpu_is_in_percent_of_one_core_over_two_seconds_or_more(tmp_path):
    clock, used = Clock(), Clock()
    signs = VitalSigns(lambda: (7, 3), tmp_path, clock=clock, cpu_clock=used)
    clock.now += 1.0
    used.now += 1.0
    assert signs.read()["cpu"] == 0.0
    clock.now += 3.0
    used.now += 1.0
    assert signs.read()["cpu"] == 50.0


def test_vitals_tell_of_memory_disk_and_traffic(tmp_path):
    read: Callable[[], dict[str, float]] = VitalSigns(lambda: (7, 3), tmp_path).read
    vitals = read()
    assert 1_000_000 < vitals["rss"] < vitals["mem_total"] == memory_total()
    assert 0 < vitals["disk_free"] <= vitals["disk_total"]
    assert (vitals["received"], vitals["sent"]) == (7, 3)
    assert set(vitals) == {
        *("cpu", "rss", "mem_total", "received", "sent", "disk_free", "disk_total"),
    }
