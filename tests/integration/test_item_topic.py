"""Items through Kafka: refused records, positions from the database, members that come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError
from tests.brokers import GIVEN, GivenCluster, MockBroker, Noida, new_topic, noida_program

import orbweb
from orbweb.consume.base import Message
from orbweb.consume.topics import TopicSource
from orbweb.errors import PipelineError, StoreUnavailable
from orbweb.kafka.envelope import decode
from orbweb.model.item import Origin, item_record
from orbweb.pipelines.base import Page
from orbweb.pipelines.kafka import KafkaPipeline
from orbweb.testing.site import SiteThread

needs_noida = pytest.mark.skipif(
    not GIVEN and noida_program() is None, reason="noida-db is not installed"
)


@pytest.fixture(scope="module", params=["given"] if GIVEN else ["mock", "noida"])
def broker(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "noida" and noida_program() is None:
        pytest.skip("noida-db is not installed")
    broker = {"mock": MockBroker, "noida": Noida, "given": GivenCluster}[request.param]()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def noida() -> Iterator[Any]:
    """A broker with rebalances, which the mock does not have."""
    broker = GivenCluster() if GIVEN else Noida()
    yield broker
    broker.stop()


def page(*numbers: int, size: int = 10, id: str = "r1") -> Page:
    records = tuple(
        item_record(
            {"n": n, "text": "x" * size}, run="e1", request_id=id, position=at, default_table="t"
        )
        for at, n in enumerate(numbers)
    )
    return Page(Origin("e1", id, "a:1", 170), records)


class Members:
    """Consumers of one topic; each is closed at the end."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.topic = new_topic()
        broker.make_topic(self.topic, 4)
        self.group = f"group-{self.topic}"
        self.open: list[TopicSource] = []

    def pipeline(self, **options: Any) -> KafkaPipeline:
        return KafkaPipeline(self.broker.servers, topic=self.topic, options=options)

    def join(
        self,
        known: Callable[[Sequence[str]], Mapping[str, int]] = lambda places: {},
        **options: Any,
    ) -> TopicSource:
        servers = self.broker.servers.split(",")
        self.open.append(TopicSource(servers, self.topic, self.group, known, **options))
        return self.open[-1]

    def read(self, source: TopicSource, count: int, seconds: float = 40) -> list[Message]:
        """Take until `count` messages came."""
        found: list[Message] = []
        end = time.monotonic() + seconds
        while len(found) < count:
            assert time.monotonic() < end, f"{len(found)} of {count} messages in {seconds} s"
            found += source.take(100, 0.2)
        return found

    def leave(self, source: TopicSource) -> None:
        self.open.remove(source)
        source.close()


@pytest.fixture
def members(broker: Any) -> Iterator[Members]:
    members = Members(broker)
    yield members
    for each in members.open:
        each.close()


@pytest.fixture
def group(noida: Any) -> Iterator[Members]:
    members = Members(noida)
    yield members
    for each in members.open:
        each.close()


def numbers(messages: Sequence[Message]) -> list[int]:
    return sorted(decode(message.value).row["n"] for message in messages)


def test_a_topic_that_was_made_anew_is_not_taken_for_an_empty_one(group: Members) -> None:
    group.pipeline().save_pages([page(1, 2, 3)])
    source = group.join(lambda places: dict.fromkeys(places, 5000))
    found: list[Message] = []
    while len(found) < 3:
        lag = source.lag()
        assert lag in (None, 3), "the database's positions are those of another topic"
        found += source.take(100, 0.2)
    assert numbers(found) == [1, 2, 3]
    source.settle(found)
    assert source.lag() == 0


def test_a_page_travels_with_all_that_a_consumer_needs(members: Members) -> None:
    sent = page(*range(20))
    pipeline = members.pipeline()
    assert pipeline.save_pages([sent]) == []
    assert pipeline.targets == (f"kafka:{members.topic}",)
    messages = members.read(members.join(), 20)
    assert numbers(messages) == list(range(20))
    first = min((decode(message.value) for message in messages), key=lambda one: one.row["n"])
    assert first.key == sent.records[0].key
    assert (first.run, first.version, first.table) == ("e1", 170, "t")


def test_one_record_that_is_too_large_is_refused_and_the_rest_is_stored(members: Members) -> None:
    huge = page(3, size=2_000_000, id="r2")
    (refusal,) = members.pipeline().save_pages([page(1, 2), huge, page(4, id="r3")])
    assert refusal.record is huge.records[0]
    assert "MSG_SIZE_TOO_LARGE" in str(refusal.error)
    assert numbers(members.read(members.join(), 3)) == [1, 2, 4]


@needs_noida
def test_one_record_that_the_broker_refuses_is_refused_and_the_rest_is_stored(
    group: Members,
) -> None:
    pipeline = group.pipeline(**{"message.max.bytes": 50_000_000})
    huge = page(3, size=5_000_000, id="r2")
    for each in huge.records:
        each.row["text"] = "".join(chr(33 + n * n % 9001) for n in range(5_000_000))  # packs badly
    (refusal,) = pipeline.save_pages([page(1, 2), huge, page(4, id="r3")])
    assert refusal.record is huge.records[0]
    assert set(numbers(group.read(group.join(), 3))) >= {1, 2, 4}


def test_a_page_with_a_refused_record_is_kept_as_failed_and_the_others_are_done(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    class Sizes(orbweb.AirSpider):
        custom_settings: ClassVar = {
            "ITEM_PIPELINES": ["orbweb.pipelines.kafka.KafkaPipeline"],
            "KAFKA_BOOTSTRAP_SERVERS": members.broker.servers.split(","),
            "KAFKA_TOPIC": members.topic,
        }

        def start_requests(self) -> Iterator[orbweb.Request]:
            for n in range(5):
                yield orbweb.Request(f"{site.url}/flat?n={n}", callback=self.parse)

        def parse(self, response: orbweb.Response) -> Iterator[dict[str, object]]:
            n = int(response.url.rpartition("=")[2])
            yield {"n": n, "text": ""}
            yield {"n": n + 100, "text": "x" * (2_000_000 if n == 3 else 1)}

    with SiteThread() as site:
        report = Sizes().run().as_dict()
    assert report["reasons"] == {"done": 4, "item_rejected": 1}
    assert report["item_failed"] == 1
    wanted = [*range(5), *(n + 100 for n in range(5) if n != 3)]
    assert numbers(members.read(members.join(), 9)) == wanted


@needs_noida
def test_the_database_says_where_to_begin(group: Members) -> None:
    group.pipeline().save_pages([page(*range(40))])
    messages = group.read(group.join(), 40)
    group.leave(group.open[0])
    half = dict.fromkeys({message.place for message in messages}, 1)
    wanted = [message for message in messages if int(message.position) >= 1]
    assert len(wanted) == 40 - len(half)
    source = group.join(lambda places: half)
    assert sorted(group.read(source, len(wanted)), key=repr) == sorted(wanted, key=repr)
    group.leave(source)
    beginning = group.join(lambda places: half, from_beginning=True)
    assert numbers(group.read(beginning, 40)) == list(range(40))


def test_a_database_that_cannot_be_asked_stops_the_consumer(members: Members) -> None:
    members.pipeline().save_pages([page(1)])

    def asked(places: Sequence[str]) -> Mapping[str, int]:
        raise StoreUnavailable("the database is away")

    source = members.join(asked)
    with pytest.raises(StoreUnavailable, match="the database is away"):
        members.read(source, 1)


def test_lag_counts_what_is_not_settled(members: Members) -> None:
    members.pipeline().save_pages([page(*range(30))])
    source = members.join()
    messages = members.read(source, 30)
    source.settle(messages[:10])
    assert source.lag() == 20
    source.settle(messages[10:])
    assert source.lag() == 0


def test_no_broker_is_a_matter_of_waiting() -> None:
    pipeline = KafkaPipeline("127.0.0.1:1", options={"delivery.timeout.ms": 300, "linger.ms": 0})
    with pytest.raises(PipelineError, match="_MSG_TIMED_OUT"):
        pipeline.save_pages([page(1)])
    pipeline.close()
    source = TopicSource(["127.0.0.1:1"], "t", "g", lambda places: {})
    assert source.take(10, 0.05) == []
    source.close()


@needs_noida
def test_members_share_the_partitions_and_one_that_leaves_hands_its_over(group: Members) -> None:
    positions: dict[str, int] = {}

    def consumed(count: int, *sources: TopicSource) -> list[Message]:
        seen: list[Message] = []
        while len(seen) < count:
            for each in sources:
                taken = each.take(50, 0.1)
                positions.update(each.positions(taken))
                each.settle(taken)
                seen += taken
        return seen

    def known(places: Sequence[str]) -> Mapping[str, int]:
        return {place: positions[place] for place in places if place in positions}

    pipeline = group.pipeline()
    one, two = group.join(known), group.join(known)
    until(lambda: spread(one, two) == [2, 2])
    pipeline.save_pages([page(*range(200))])
    assert numbers(consumed(200, one, two)) == list(range(200))
    group.leave(one)
    pipeline.save_pages([page(*range(200, 260), id="r2")])
    assert numbers(consumed(60, two)) == list(range(200, 260)), "from the database's positions"


@needs_noida
def test_a_client_that_gave_up_is_replaced_and_reads_on_from_the_database(group: Members) -> None:
    group.pipeline().save_pages([page(*range(8))])
    positions: dict[str, int] = {}
    source = group.join(lambda places: positions)
    first = group.read(source, 8)
    positions |= source.positions(first)
    source._troubles(KafkaError(KafkaError._FATAL, "fenced"))
    group.pipeline().save_pages([page(8, 9, id="r2")])
    assert numbers(group.read(source, 2)) == [8, 9]
    assert source.lag() == 2


@needs_noida
@pytest.mark.skipif(bool(GIVEN), reason="the given cluster is not killed")
def test_a_broker_that_is_killed_and_returns_loses_nothing() -> None:
    broker = Noida()
    members = Members(broker)
    try:
        pipeline = members.pipeline(**{"delivery.timeout.ms": 3000})
        source = members.join()
        assert pipeline.save_pages([page(*range(50))]) == []
        seen = members.read(source, 50)
        broker.wait_until_saved()
        broker.kill()
        with pytest.raises(PipelineError):
            pipeline.save_pages([page(*range(50, 60), id="r2")])
        broker.start()
        until(lambda: stored(pipeline, page(*range(50, 60), id="r2")))
        while set(numbers(seen)) != set(range(60)):
            seen += members.read(source, 1)
    finally:
        for each in members.open:
            each.close()
        broker.stop()


def stored(pipeline: KafkaPipeline, one: Page) -> bool:
    try:
        return pipeline.save_pages([one]) == []
    except (PipelineError, StoreUnavailable):
        return False


def spread(*sources: TopicSource) -> list[int]:
    """How many partitions each member has, after it has heard of changes."""
    for each in sources:
        assert each.take(1, 0.1) == []
    return [len(each._consumer.assignment()) for each in sources]


def until(condition: Callable[[], bool], seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
