"""Items to a Kafka topic."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from orbweb.errors import ConfigError, ItemError, PipelineError
from orbweb.kafka.client import client_options, confluent_kafka, option_pairs
from orbweb.kafka.envelope import Envelope, encode, partition_key
from orbweb.log import event
from orbweb.model.item import ItemRecord
from orbweb.pipelines.base import Page, PagePipeline, Refusal

DELIVERY_SECONDS = 10.0
"""After this the client gives a record up, and the buffer tries it again."""

FIXED = {"enable.idempotence": True, "acks": "all"}
"""What makes a confirmation worth something."""

ROOM_SECONDS = 0.1

KafkaError, KafkaException = confluent_kafka.KafkaError, confluent_kafka.KafkaException

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
"""The broker says this of a batch as a whole: which record it means shows when each goes alone."""

REFUSED = frozenset({KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP}) | TOO_LARGE
"""Answers that a record would get again."""

OF_ANOTHER = KafkaError._INVALID_DIFFERENT_RECORD
"""A record was not stored because one beside it was refused."""


@dataclass(slots=True, eq=False)
class _Sent:
    """One record on its way, and what the broker said of it."""

    record: ItemRecord
    topic: str
    key: bytes
    value: bytes
    answered: bool = False
    error: Any = None

    def report(self, error: Any, message: Any) -> None:
        self.answered, self.error = True, error


class KafkaPipeline(PagePipeline):
    """Sends each item as one message; `orbweb consume` stores each of them once.

    The producer is idempotent and waits for all in-sync replicas. A batch counts as stored when
    the broker has confirmed each of its records. A record that it refuses for good, as one that is
    too large, is an item error of that record; all other refusals are tried again by the buffer.
    A page that is fetched twice sends its items twice, with the same keys. A message holds all that
    a consumer needs (see `orbweb.kafka.envelope`), its key is that of the item, or for an update
    the identity of the row, so that changes of one row stay in order.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = ("localhost:9092",),
        *,
        topic: str = "orbweb-items",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`topic`: `{table}` in it stands for the item's table. `options`: those of librdkafka.

        Does not connect yet. Raises `ConfigError`.
        """
        servers = [bootstrap_servers] if isinstance(bootstrap_servers, str) else bootstrap_servers
        self._topic = topic
        self._options = {
            "delivery.timeout.ms": int(DELIVERY_SECONDS * 1000),
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            **client_options(servers, options or {}, FIXED, self.logger),
        }
        self._producer = self._make_producer()
        self._topics: dict[str, None] = {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        return cls(
            settings["KAFKA_BOOTSTRAP_SERVERS"],
            topic=settings["KAFKA_TOPIC"],
            options=option_pairs(settings["KAFKA_OPTIONS"], "KAFKA_OPTIONS"),
        )

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(f"kafka:{topic}" for topic in self._topics)

    def save_pages(self, pages: Sequence[Page]) -> list[Refusal]:
        """See `PagePipeline`. Raises `PipelineError` while the broker does not take records."""
        refused: list[Refusal] = []
        waiting = []
        for page in pages:
            for record in page.records:
                try:
                    waiting.append(self._sent(page, record))
                except ItemError as error:
                    refused.append(Refusal(record, error))
        self._topics |= dict.fromkeys(sent.topic for sent in waiting)
        while waiting:
            self._deliver(waiting)
            if len(waiting) > 1:
                for sent in waiting:
                    if sent.error is not None and sent.error.code() in TOO_LARGE:
                        self._deliver([sent])
            refused += [_refusal(sent) for sent in waiting if _is_refused(sent)]
            waiting = [sent for sent in waiting if sent.error is not None and not _is_refused(sent)]
            self._raise_for(waiting)
        return refused

    def close(self) -> None:
        """Nothing waits in the client: every batch was confirmed or given back."""
        self._producer.purge()
        self._producer.flush(1.0)

    def _sent(self, page: Page, record: ItemRecord) -> _Sent:
        envelope = Envelope.of(record, page.origin)
        value = encode(envelope)
        topic = self._topic.replace("{table}", record.table)
        return _Sent(record, topic, partition_key(envelope), value)

    def _deliver(self, records: Sequence[_Sent]) -> None:
        """Send records and wait until the broker has answered each, or the client gave it up."""
        for sent in records:
            sent.answered, sent.error = False, None
            self._produce(sent)
        try:
            if self._producer.flush(2 * DELIVERY_SECONDS):
                self._producer.purge()
                self._producer.flush(1.0)
        except (KafkaException, SystemError) as error:  # how the client tells that it is of no use
            fatal = error.__cause__ or error
            self._renew(str(fatal))
            raise PipelineError(f"the Kafka client gave up: {fatal}") from error
        unanswered = sum(not sent.answered for sent in records)
        if unanswered:
            raise PipelineError(f"Kafka says nothing about {unanswered} of {len(records)} records")

    def _produce(self, sent: _Sent) -> None:
        while True:
            try:
                self._producer.produce(
                    sent.topic, value=sent.value, key=sent.key, on_delivery=sent.report
                )
            except BufferError:
                self._producer.poll(ROOM_SECONDS)
            except KafkaException as error:
                sent.report(error.args[0], None)
                return
            else:
                return

    def _raise_for(self, waiting: Sequence[_Sent]) -> None:
        """Raise unless those that wait were only held back by records that are refused now."""
        troubles = [sent for sent in waiting if sent.error.code() != OF_ANOTHER]
        if not troubles:
            return
        error = troubles[0].error
        if any(sent.error.fatal() or sent.error.code() == KafkaError._FATAL for sent in troubles):
            self._renew(error.str())
        raise PipelineError(
            f"Kafka did not take {len(troubles)} records for {troubles[0].topic!r}: "
            f"{error.name()}: {error.str()}"
        )

    def _renew(self, why: str) -> None:
        """Begin anew with a producer of another identity: what it repeats, the consumer folds."""
        event(self.logger, "producer_renewed", level=logging.WARNING, error=why)
        self._producer.purge()
        self._producer = self._make_producer()

    def _make_producer(self) -> Any:
        try:
            return confluent_kafka.Producer(self._options)
        except (KafkaException, ValueError, TypeError) as error:
            raise ConfigError(f"KAFKA_OPTIONS: librdkafka refuses them: {error}") from error


def _is_refused(sent: _Sent) -> bool:
    return sent.error is not None and sent.error.code() in REFUSED


def _refusal(sent: _Sent) -> Refusal:
    size = len(sent.value)
    text = f"Kafka refuses the item ({size} bytes): {sent.error.name()}: {sent.error.str()}"
    return Refusal(sent.record, ItemError(text))
