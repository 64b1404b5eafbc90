"""SIGKILL of nodes, consumers, brokers and databases: every item is in its table exactly once.

The brokers of a cluster that ORBWEB_TEST_KAFKA names are not killed, all else is.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.brokers import GIVEN, GivenCluster, Noida, new_topic, noida_program
from tests.crash.fleet import Fleet, Node
from tests.databases import Database, open_database
from tests.servers import Server

ITEMS = 10
SETTINGS = {
    "ORBWEB_SPIDER_TASK_LEASE": 1,
    "ORBWEB_CONCURRENT_REQUESTS_PER_DOMAIN": 0,
    "ORBWEB_MAX_DELIVERIES": 1000,  # a node that dies often kills no page
    "ORBWEB_LOGSTATS_INTERVAL": 1,
    "ORBWEB_CONCURRENT_REQUESTS": 4,
    "ITEMS": ITEMS,
}
VICTIMS = ("consumer", "node", "broker", "consumer", "database")
NOT_THE_BROKER = ("consumer", "node", "consumer", "database")


KillBroker = Callable[["Line"], None]


class Line:
    """From pages to rows: nodes, a buffer, consumers, a database; any of them can be killed."""

    def __init__(self, fleet: Fleet, database: Database, *source: str) -> None:
        self.fleet = fleet
        self.database = database
        self.source = source
        self.nodes = [fleet.start(), fleet.start()]
        self.consumers = [self.consumer(0), self.consumer(1)]

    def consumer(self, number: int) -> Node:
        """Start a consumer; the one that takes a dead one's place is the same to the broker.

        noida-db never forgets a dead member, as Kafka does after `session.timeout.ms`, and waits
        for all members to join again as long as the poll interval allows.
        """
        command = [sys.executable, "-m", "orbweb", "consume", "--to", self.database.url]
        options = f"group.instance.id=c{number},max.poll.interval.ms=12000"
        member = ("-s", f"KAFKA_OPTIONS={options}")
        node = Node([*command, *member, *self.source], self.fleet.directory, self.fleet.environment)
        self.fleet.nodes.append(node)
        return node

    def kill(self, victim: str, rng: random.Random, kill_broker: KillBroker | None) -> None:
        which = rng.randrange(2)
        if victim == "node":
            self.nodes[which].kill()
            self.nodes[which] = self.fleet.start()
        elif victim == "consumer":
            self.consumers[which].kill()
            self.consumers[which] = self.consumer(which)
        elif victim == "database":
            self.database.kill()
            time.sleep(rng.uniform(0, 0.5))
            self.database.start()
        else:
            assert kill_broker is not None
            kill_broker(self)

    def stored(self) -> int:
        (count,) = self.database.rows("SELECT COUNT(*) FROM items")[0]
        assert isinstance(count, int)
        return count

    def until_stored(self, rows: int, seconds: float = 60) -> None:
        self.fleet.until_true(lambda: self.stored() >= rows, seconds, f"{rows} rows")

    def end(self) -> list[dict[str, int]]:
        """Stop the consumers gracefully; returns what each that had begun says of itself."""
        for each in self.consumers:
            each.signal(signal.SIGTERM)
        codes = [each.wait(30) for each in self.consumers]
        assert set(codes) <= {0, 75, -signal.SIGTERM}  # the last two: it had not begun
        ended = zip(self.consumers, codes, strict=True)
        return [summary(each) for each, code in ended if code == 0]


def summary(node: Node) -> dict[str, int]:
    line = next(each for each in node.text().splitlines() if "_CONSUME_SUMMARY" in each)
    found: dict[str, int] = json.loads(line.partition(" ")[2])
    return found


def survive(line: Line, pages: int, kills: int, kill_broker: KillBroker | None) -> None:
    """Crawl and consume while `kills` processes die. Without `kill_broker` it is left alone."""
    rng = random.Random(11)
    victims = VICTIMS if kill_broker else NOT_THE_BROKER
    for number in range(kills):
        line.until_stored(pages * ITEMS * (number + 1) // (kills + 2))
        time.sleep(rng.uniform(0, 0.3))
        line.kill(victims[number % len(victims)], rng, kill_broker)
    assert {node.wait(240) for node in line.nodes} <= {0, 3}  # 3: it came when all was done
    line.until_stored(pages * ITEMS)
    assert all(each["dead"] == 0 for each in line.end())
    rows = Counter(line.database.rows("SELECT page, number FROM items"))
    assert rows == Counter((page, number) for page in range(pages) for number in range(ITEMS))


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    database = open_database(request.param)
    # Without a key: nothing but the ledger of the consumer keeps a row from coming twice.
    database.execute("CREATE TABLE items (page INT NOT NULL, number INT NOT NULL)")
    yield database
    database.stop()


def through_kafka(
    directory: Path, broker: Noida | GivenCluster, database: Database, pages: int, kills: int
) -> None:
    topic = new_topic()
    settings = {
        **SETTINGS,
        "PAGES": pages,
        "WORK": 0.4 if kills < 10 else 1.5,  # seconds a page, so that nodes live until the end
        "ORBWEB_ITEM_PIPELINES": "orbweb.pipelines.kafka.KafkaPipeline",
        "ORBWEB_KAFKA_BOOTSTRAP_SERVERS": broker.servers,
        "ORBWEB_KAFKA_TOPIC": topic,
    }

    def kill_broker(line: Line) -> None:
        assert isinstance(broker, Noida)
        for node in line.nodes:
            node.signal(signal.SIGSTOP)
        broker.wait_until_saved()
        broker.kill()
        broker.start()
        for node in line.nodes:
            node.signal(signal.SIGCONT)

    broker.make_topic(topic, 4)
    with Fleet(directory, "RowsSpider", latency=0.02, **settings) as fleet:
        line = Line(fleet, database, "--topic", topic)
        survive(line, pages, kills, kill_broker if isinstance(broker, Noida) else None)


def through_a_stream(directory: Path, database: Database, pages: int, kills: int) -> None:
    store = Server("valkey", aof="everysec")
    settings = {
        **SETTINGS,
        "PAGES": pages,
        "WORK": 0.4 if kills < 10 else 1.5,  # seconds a page, so that nodes live until the end
        "ORBWEB_ITEM_PIPELINES": "orbweb.pipelines.valkey.StreamPipeline",
        "ORBWEB_REDIS_URL": store.url,
    }

    def kill_broker(line: Line) -> None:
        store.kill()
        store.start()

    try:
        with Fleet(directory, "RowsSpider", latency=0.02, **settings) as fleet:
            survive(Line(fleet, database), pages, kills, kill_broker)
    finally:
        store.stop()


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Noida | GivenCluster]:
    broker = GivenCluster() if request.param == "given" else Noida()
    yield broker
    broker.stop()


BROKERS = [
    pytest.param("given", marks=pytest.mark.skipif(not GIVEN, reason="no ORBWEB_TEST_KAFKA")),
    pytest.param(
        "noida",
        marks=[
            pytest.mark.skipif(noida_program() is None, reason="noida-db is not installed"),
            pytest.mark.skipif(
                bool(GIVEN), reason="the brokers of the cluster in ORBWEB_TEST_KAFKA are not killed"
            ),
        ],
    ),
]


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_kafka_to_postgres_survives_kills(
    tmp_path: Path, broker: Noida | GivenCluster, database: Database
) -> None:
    through_kafka(tmp_path, broker, database, pages=60, kills=5)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_stream_to_sqlite_survives_kills(tmp_path: Path, database: Database) -> None:
    through_a_stream(tmp_path, database, pages=60, kills=5)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
@pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True)
def test_kafka_survives_fifty_kills(
    tmp_path: Path, broker: Noida | GivenCluster, database: Database
) -> None:
    through_kafka(tmp_path, broker, database, pages=500, kills=50)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
def test_a_stream_survives_fifty_kills(tmp_path: Path, database: Database) -> None:
    through_a_stream(tmp_path, database, pages=500, kills=50)
