"""What an item costs on its way: producer and consumer beside a bare loop of the same libraries.

    python benchmarks/items.py [--items 50000] [--rounds 3]

Producer: `KafkaPipeline.save_pages` beside a loop that encodes the row as JSON and calls
`Producer.produce` with the same options, in pages of 10 and batches of 500, on librdkafka's mock
cluster in a process of its own. Consumer: `orbweb.consume` beside a loop that decodes JSON and
inserts with `executemany`, 500 rows in one transaction, into SQLite (and into the database of
`--to URL`). Both read the same messages from memory, so that what is measured is what happens after
the broker.
Memory: the resident set of a consumer after each tenth of `--soak` items (default 1,000,000).
CPU is user + system time of the process (getrusage). Rounds are interleaved; medians are printed.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import sqlalchemy as sa

from orbweb.consume.base import Message
from orbweb.consume.consumer import Consumer
from orbweb.consume.ledger import Ledger
from orbweb.consume.store import ItemStore
from orbweb.kafka.envelope import Envelope, encode
from orbweb.model.item import Origin, item_record
from orbweb.pipelines.base import Page
from orbweb.pipelines.kafka import KafkaPipeline
from orbweb.pipelines.sql_rows import Conflict, RowWriter
from orbweb.pipelines.sql_tables import Tables
from orbweb.sql.databases import open_engine

BATCH, PAGE_ITEMS = 500, 10
TABLE = "CREATE TABLE items (url VARCHAR(200), title VARCHAR(200), price FLOAT, number INTEGER)"


def row(number: int) -> dict[str, Any]:
    return {
        "url": f"https://shop.example/products/{number}?from=list",
        "title": f"Product {number} " + "lorem ipsum dolor sit amet " * 3,
        "price": number / 7,
        "number": number,
    }


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def measured(work: Callable[[], None], items: int) -> dict[str, float]:
    gc.collect()
    cpu, began = cpu_seconds(), time.perf_counter()
    work()
    return {
        "cpu_us": (cpu_seconds() - cpu) / items * 1e6,
        "items_s": items / (time.perf_counter() - began),
    }


# -- producing


def pages(count: int) -> list[Page]:
    found = []
    for first in range(0, count, PAGE_ITEMS):
        id = f"r{first}"
        records = tuple(
            item_record(row(n), run="e1", request_id=id, position=n, default_table="items")
            for n in range(first, first + PAGE_ITEMS)
        )
        found.append(Page(Origin("e1", id, "a:1", 170), records))
    return found


def produce_with_pipeline(servers: str, whole: Sequence[Page]) -> Callable[[], None]:
    pipeline = KafkaPipeline(servers, topic="bench")

    def work() -> None:
        step = BATCH // PAGE_ITEMS
        for at in range(0, len(whole), step):
            assert pipeline.save_pages(whole[at : at + step]) == []

    return work


def produce_bare(servers: str, whole: Sequence[Page]) -> Callable[[], None]:
    options = KafkaPipeline(servers)._options
    producer = confluent_kafka.Producer(options)
    records = [record for page in whole for record in page.records]

    def work() -> None:
        for at in range(0, len(records), BATCH):
            for record in records[at : at + BATCH]:
                value = json.dumps(record.row).encode()
                producer.produce("bench", value=value, key=record.key.encode())
            assert producer.flush(30) == 0

    return work


# -- consuming


class MemorySource:
    """Messages without a broker."""

    def __init__(self, messages: Iterator[Message], total: int) -> None:
        self._messages = messages
        self._left = total

    def take(self, most: int, seconds: float) -> Sequence[Message]:
        taken = [next(self._messages) for _ in range(min(most, self._left))]
        self._left -= len(taken)
        return taken

    def positions(self, messages: Sequence[Message]) -> Mapping[str, int]:
        return {message.place: int(message.position) + 1 for message in messages}

    def settle(self, messages: Sequence[Message]) -> None:
        pass

    def lag(self) -> int:
        return self._left

    def close(self) -> None:
        pass


def messages(count: int) -> Iterator[Message]:
    for number in range(count):
        key = f"{number:024x}"
        value = encode(Envelope(key, "items", {**row(number), "_key": key}, run="e1"))
        yield Message(f"bench/{number % 4}", str(number // 4), value)


def fresh_database(url: str) -> sa.Engine:
    engine = open_engine(url)
    with engine.begin() as connection:
        for table in ("items", "orbweb_keys", "orbweb_positions", "orbweb_versions"):
            connection.execute(sa.text(f"DROP TABLE IF EXISTS {table}"))
        connection.execute(sa.text(TABLE))
    return engine


def consume_with_orbweb(
    url: str, source: MemorySource, on_progress: Callable[[Any], None] = lambda counts: None
) -> Callable[[], None]:
    engine = fresh_database(url)
    tables = Tables(engine, create=False)
    rows = RowWriter(engine, tables, Conflict.NOTHING)
    store = ItemStore(engine, Ledger(engine, "bench"), rows, tables)
    store.prepare()
    consumer = Consumer(source, store, stop=threading.Event(), on_progress=on_progress)

    def work() -> None:
        assert consumer.run(until_empty=True)
        assert consumer.counts.dead == 0
        engine.dispose()

    return work


def consume_bare(url: str, values: Sequence[bytes]) -> Callable[[], None]:
    engine = fresh_database(url)
    table = sa.Table("items", sa.MetaData(), autoload_with=engine)

    def work() -> None:
        for at in range(0, len(values), BATCH):
            with engine.begin() as connection:
                rows = [json.loads(value) for value in values[at : at + BATCH]]
                connection.execute(sa.insert(table), rows)
        engine.dispose()

    return work


def soak(url: str, items: int) -> list[float]:
    """Resident megabytes of a consumer at each tenth of its way."""
    seen: list[float] = []

    def look(counts: Any) -> None:
        if counts.new >= items // 10 * (len(seen) + 1):
            seen.append(resident_mb())

    consume_with_orbweb(url, MemorySource(messages(items), items), look)()
    return seen


def serve_mock() -> None:
    """Be a broker until stdin is closed."""
    keeper = confluent_kafka.Producer(
        {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}
    )
    (broker,) = keeper.list_topics(timeout=10).brokers.values()
    print(f"{broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


def table(title: str, runs: Mapping[str, list[dict[str, float]]]) -> None:
    print(f"\n{title}\n\n| | CPU µs an item | ratio | items/s | ratio |\n|---|---|---|---|---|")
    base: dict[str, float] = {}
    for name, found in runs.items():
        middle = {key: statistics.median(each[key] for each in found) for key in found[0]}
        base = base or middle
        print(
            f"| {name} | {middle['cpu_us']:.1f} | {middle['cpu_us'] / base['cpu_us']:.2f} "
            f"| {middle['items_s']:,.0f} | {middle['items_s'] / base['items_s']:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=int, default=1_000_000)
    parser.add_argument("--to", action="append", help="databases besides SQLite")
    parser.add_argument("--broker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.broker:
        serve_mock()
        return
    count = options.items
    directory = tempfile.TemporaryDirectory(prefix="orbweb-bench-")
    sqlite = f"sqlite:///{directory.name}/bench.db"

    command = [sys.executable, __file__, "--broker"]
    broker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert broker.stdout
    servers = broker.stdout.readline().strip()
    whole = pages(count)
    kinds = {"bare client": produce_bare, "KafkaPipeline": produce_with_pipeline}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, make in kinds.items():
            runs[name].append(measured(make(servers, whole), count))
    table(f"Producer, {count:,} items", runs)
    broker.communicate()
    del whole

    ready = list(messages(count))
    bare = [json.dumps(row(number)).encode() for number in range(count)]
    for url in (sqlite, *(options.to or ())):
        runs = {"bare executemany": [], "orbweb consume": []}
        for _ in range(options.rounds):
            runs["bare executemany"].append(measured(consume_bare(url, bare), count))
            work = consume_with_orbweb(url, MemorySource(iter(ready), count))
            runs["orbweb consume"].append(measured(work, count))
        table(f"Consumer into {sa.make_url(url).get_backend_name()}, {count:,} items", runs)
    del ready, bare
    if options.soak:
        found = soak(sqlite, options.soak)
        print(f"\nResident MB of a consumer at each tenth of {options.soak:,} items:")
        print(", ".join(f"{each:.0f}" for each in found))


if __name__ == "__main__":
    main()
