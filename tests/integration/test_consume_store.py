"""Messages into real databases: each item once, poison aside, newer data never overwritten."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from tests.databases import KINDS, Database, open_database

from orbweb.consume.base import Message
from orbweb.consume.consumer import Consumer
from orbweb.consume.dead import DeadLetterSource
from orbweb.consume.ledger import Ledger
from orbweb.consume.store import Counts, ItemStore
from orbweb.kafka.envelope import Envelope, encode
from orbweb.pipelines.sql_rows import Conflict, RowWriter
from orbweb.pipelines.sql_tables import Tables
from orbweb.sql.databases import open_engine

ALL = ("items", "orbweb_keys", "orbweb_versions", "orbweb_positions", "orbweb_dead_letters")
TABLE = "CREATE TABLE items (sku VARCHAR(40) NOT NULL, price INT, note VARCHAR(5))"
"""Without a key: nothing but the ledger keeps a row from coming twice."""


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Database]:
    database = open_database(request.param)
    yield database
    database.stop()


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    server.execute(TABLE)
    yield server
    server.execute(*(f"DROP TABLE IF EXISTS {table}" for table in ALL))


class Bench:
    """A store on a database, and messages for it."""

    def __init__(self, database: Database, *, group: str = "g", dead_letters: bool = False) -> None:
        self.engine = open_engine(database.url)
        self.ledger = Ledger(self.engine, group)
        tables = Tables(self.engine, create=False)
        rows = RowWriter(self.engine, tables, Conflict.NOTHING)
        self.store = ItemStore(self.engine, self.ledger, rows, tables, dead_letters=dead_letters)
        self.store.prepare()

    def consume(self, messages: Sequence[Message]) -> Counts:
        consumer = Consumer(Once(messages), self.store, stop=threading.Event())
        assert consumer.run(until_empty=True)
        return consumer.counts


class Once:
    """A source that has some messages, once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._left = list(messages)
        self.settled: list[Message] = []

    def take(self, most: int, seconds: float) -> Sequence[Message]:
        taken, self._left = self._left[:most], self._left[most:]
        return taken

    def positions(self, messages: Sequence[Message]) -> Mapping[str, int]:
        return {message.place: int(message.position) + 1 for message in messages}

    def settle(self, messages: Sequence[Message]) -> None:
        self.settled += messages

    def lag(self) -> int:
        return len(self._left)

    def close(self) -> None:
        pass


@pytest.fixture
def bench(database: Database) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        made.append(Bench(database, **options))
        return made[-1]

    yield make
    for each in made:
        each.engine.dispose()


def items(*skus: str, start: int = 0, **fields: Any) -> list[Message]:
    return [
        Message(
            "topic/0",
            str(start + number),
            encode(Envelope(f"k-{sku}", "items", {"sku": sku, "_key": f"k-{sku}", **fields})),
        )
        for number, sku in enumerate(skus)
    ]


def change(key: str, sku: str, price: int, version: int, position: int = 0) -> Message:
    row = {"sku": sku, "price": price, "_key": key}
    envelope = Envelope(key, "items", row, update_keys=("sku",), version=version)
    return Message("topic/1", str(position), encode(envelope))


def skus(database: Database) -> list[object]:
    return [row[0] for row in database.rows("SELECT sku FROM items ORDER BY sku")]


def test_an_item_is_stored_once_however_often_its_message_comes(
    database: Database, bench: Callable[..., Bench]
) -> None:
    messages = items("a", "b", "a", "c")
    assert bench().consume(messages) == Counts(new=3, duplicate=1)
    assert bench().consume(items("c", "d", start=4)) == Counts(new=1, duplicate=1)
    assert bench(group="another").consume(messages) == Counts(duplicate=4)
    assert skus(database) == ["a", "b", "c", "d"]


def test_the_position_is_kept_with_the_rows_for_each_group(bench: Callable[..., Bench]) -> None:
    bench().consume(items("a", "b"))
    bench(group="other").consume(items("a"))
    assert bench().ledger.positions(["topic/0", "topic/7"]) == {"topic/0": 2}
    assert bench(group="other").ledger.positions(["topic/0"]) == {"topic/0": 1}


@pytest.mark.parametrize(
    ("poison", "said"),
    [
        (Message("topic/0", "1", b"\x00rubbish"), "version 00"),
        (items("p", start=1, colour="red")[0], "no column 'colour'"),
        (items("p", start=1, note="too long for it")[0], ""),
        (items("p", start=1, price="dear")[0], ""),
        (items("p" * 41, start=1)[0], ""),
        (items("p", start=1, price=2**80)[0], "out of range|too large"),
        (Message("topic/0", "1", encode(Envelope("k", "nowhere", {"a": 1}))), "'nowhere'"),
        (change("k", "nobody", 1, 1, position=1), "no row to change with sku = 'nobody'"),
    ],
    ids=["bytes", "column", "length", "type", "key-length", "huge", "table", "update"],
)
def test_poison_becomes_a_dead_letter_and_the_partition_goes_on(
    database: Database, bench: Callable[..., Bench], poison: Message, said: str
) -> None:
    if isinstance(database.url, str) and database.url.startswith("sqlite") and not said:
        pytest.skip("SQLite takes any value in any column")
    before, after = items("a", "x", "b"), items("y", start=3)
    counts = bench().consume([before[0], poison, before[2], *after])
    assert counts == Counts(new=3, dead=1)
    assert skus(database) == ["a", "b", "y"]
    (letter,) = bench().ledger.book().dead_letters(5)
    assert re.search(said, letter["error"], re.IGNORECASE)
    assert "INSERT" not in letter["error"]
    assert bytes(letter["message"]) == poison.value
    assert (letter["place"], letter["position"]) == (poison.place, poison.position)
    assert bench().ledger.positions(["topic/0"]) == {"topic/0": 4}
    assert bench().consume([poison]) == Counts(dead=1)
    assert bench().ledger.book().count_dead() == 1


def test_a_dead_letter_is_stored_once_its_cause_is_gone(
    database: Database, bench: Callable[..., Bench]
) -> None:
    poison = items("p", colour="red")
    running = bench()
    assert running.consume([*poison, change("u", "nobody", 1, 1)]) == Counts(dead=2)
    database.execute("ALTER TABLE items ADD COLUMN colour VARCHAR(10)")
    again = bench(dead_letters=True)
    source = DeadLetterSource(again.ledger.book())
    consumer = Consumer(source, again.store, stop=threading.Event())
    assert consumer.run(until_empty=True)
    assert consumer.counts == Counts(new=1, dead=1)
    assert database.rows("SELECT sku, colour FROM items") == [("p", "red")]
    (letter,) = again.ledger.book().dead_letters(5)
    assert letter["item_key"] == "u"
    assert running.consume(items("q", start=5, colour="blue")) == Counts(new=1), (
        "a consumer that runs sees the new column"
    )


def test_a_change_that_comes_before_its_row_waits_as_a_dead_letter(
    database: Database, bench: Callable[..., Bench]
) -> None:
    running = bench()
    early = [change("u", "a", 7, version=2), change("v", "nobody", 7, version=2, position=1)]
    assert running.consume(early) == Counts(dead=2)
    assert running.consume(items("a")) == Counts(new=2, dead=-1)
    assert database.rows("SELECT sku, price FROM items") == [("a", 7)]
    (letter,) = running.ledger.book().dead_letters(5)
    assert letter["item_key"] == "v"
    assert running.consume(early) == Counts(duplicate=1, dead=1)


def test_a_change_that_came_too_early_is_retried_by_a_person_as_well(
    database: Database, bench: Callable[..., Bench]
) -> None:
    running = bench()
    assert running.consume([change("u", "a", 7, version=2)]) == Counts(dead=1)
    again = bench(dead_letters=True)
    again.consume(items("a"))
    source = DeadLetterSource(again.ledger.book())
    assert Consumer(source, again.store, stop=threading.Event()).run(until_empty=True)
    assert running.consume([]) == Counts(duplicate=1, dead=-1)
    assert database.rows("SELECT sku, price FROM items") == [("a", 7)]
    assert running.ledger.book().count_dead() == 0


def test_a_late_change_does_not_overwrite_a_newer_one(
    database: Database, bench: Callable[..., Bench]
) -> None:
    running = bench()
    running.consume(items("a", price=1))
    assert running.consume([change("u2", "a", 20, version=2)]) == Counts(new=1)
    assert running.consume([change("u1", "a", 10, version=1)]) == Counts(stale=1)
    assert running.consume([change("u2b", "a", 25, version=2)]) == Counts(new=1)
    assert running.consume([change("u2", "a", 20, version=2)]) == Counts(duplicate=1)
    assert database.rows("SELECT price FROM items") == [(25,)]


def test_many_consumers_at_once_store_each_item_once(
    database: Database, bench: Callable[..., Bench]
) -> None:
    names = [f"s{number:03}" for number in range(300)]
    benches = [bench() for _ in range(4)]
    total, failed = [], []
    start = threading.Barrier(4)

    def run(number: int, one: Bench) -> None:
        order = names[number * 75 :] + names[: number * 75]
        try:
            start.wait(10)
            for at in range(0, 300, 50):
                total.append(one.consume(items(*order[at : at + 50])))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(benches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert skus(database) == names
    assert sum(counts.new for counts in total) == 300
    assert sum(counts.duplicate for counts in total) == 900


def test_a_transaction_that_fails_leaves_nothing(
    database: Database, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = bench()

    def lost(*_: object) -> None:
        raise sa.exc.OperationalError("COMMIT", {}, Exception("connection lost"))

    with monkeypatch.context() as broken:
        broken.setattr(running.ledger, "keep_positions", lost)
        with pytest.raises(sa.exc.OperationalError):
            running.store.store(items("a"), lambda messages: {})
    assert skus(database) == []
    assert running.consume(items("a")) == Counts(new=1)


def test_the_ledger_is_trimmed_by_run(bench: Callable[..., Bench]) -> None:
    running = bench()
    for run, count in (("monday", 3), ("tuesday", 2)):
        running.consume(
            [
                Message(
                    "topic/0", str(n), encode(Envelope(f"{run}{n}", "items", {"sku": "s"}, run=run))
                )
                for n in range(count)
            ]
        )
    book = running.ledger.book()
    assert [(each.run, each.keys) for each in book.runs()] == [("monday", 3), ("tuesday", 2)]
    assert book.trim("monday") == 3
    assert [(each.run, each.keys) for each in book.runs()] == [("tuesday", 2)]


@pytest.mark.parametrize("table", ["orbweb_keys", "orbweb_positions"])
def test_a_table_of_ours_that_vanishes_is_made_again(
    database: Database, bench: Callable[..., Bench], table: str
) -> None:
    one = bench()
    one.consume(items("a"))
    database.execute(f"DROP TABLE {table}")
    assert one.consume(items("b", start=1)).new == 1
    assert skus(database) == ["a", "b"]


def test_dead_letters_of_one_kind_are_told_once(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    counts = bench().consume([*items("a", "b", "c", nosuch=1), *items("d", other=1, start=3)])
    assert counts == Counts(dead=4)
    told = [each for each in caplog.messages if each.startswith("dead_letter")]
    assert len(told) == 2
