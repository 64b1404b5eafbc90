"""A Kafka topic as the source of a consumer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from orbweb.consume.base import Message
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.kafka.client import Troubles, client_options, confluent_kafka
from orbweb.log import event, get_logger

GATHER_SECONDS = 0.05
"""How long a batch waits for more messages once it has one."""

CALL_SECONDS = 10.0
BUFFER_KIB = 32_768
"""What the client fetches ahead."""
FIXED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "range,roundrobin",
}
"""What this module relies on."""

SESSION_SECONDS = 10.0
"""After this silence of a member others take its partitions over."""

KafkaError, KafkaException = confluent_kafka.KafkaError, confluent_kafka.KafkaException

HOPELESS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.TOPIC_EXCEPTION,
    }
)
"""Answers that another try would get again."""

logger = get_logger("consume.kafka")

Known = Callable[[Sequence[str]], Mapping[str, int]]
"""For places (`topic/partition`), the offsets that the database knows; waits until it answers."""


class TopicSource:
    """Reads a topic as a member of a consumer group, from where the database says.

    Kafka's own offset is committed after the database's, for lag monitors; it counts only where
    the database knows no position of the group.
    """

    def __init__(
        self,
        servers: Iterable[str],
        topic: str,
        group: str,
        known: Known,
        *,
        options: Mapping[str, Any] | None = None,
        from_beginning: bool = False,
    ) -> None:
        """`from_beginning`: read each partition again from its first message.

        Raises `ConfigError` for an option that librdkafka does not know.
        """
        self._known = known
        self._from_beginning = from_beginning
        self._begun: set[str] = set()
        self._member = False
        self._failure: Exception | None = None
        self._topic = topic
        self._next: dict[int, int] = {}
        defaults = {
            "session.timeout.ms": int(SESSION_SECONDS * 1000),
            "queued.max.messages.kbytes": BUFFER_KIB,
        }
        fixed = {**FIXED, "group.id": group}
        given = client_options(servers, options or {}, fixed, logger)
        self._options = {**defaults, **given}
        self._troubles: Troubles = given["error_cb"]
        self._consumer = self._join()

    def reach(self) -> None:
        """Ask the cluster for the topic. Raises `StoreUnavailable` when no broker answers."""
        try:
            self._consumer.list_topics(self._topic, timeout=CALL_SECONDS)
        except KafkaException as error:
            raise StoreUnavailable(f"no Kafka broker answers: {error.args[0].str()}") from error

    def take(self, most: int, seconds: float) -> Sequence[Message]:
        """See `Source`. Raises what the question to the database raised."""
        if self._troubles.fatal:
            self._rejoin()
        found = self._consumer.consume(1, seconds)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if found and most > 1:
            found += self._consumer.consume(most - 1, GATHER_SECONDS)
        messages = []
        for one in found:
            if one.error() is not None:
                self._judge(one.error())
            else:
                messages.append(self._message(one))
        return messages

    def positions(self, messages: Sequence[Message]) -> Mapping[str, int]:
        """See `Source`."""
        return {message.place: int(message.position) + 1 for message in messages}

    def settle(self, messages: Sequence[Message]) -> None:
        """See `Source`. That Kafka does not take the offset does no harm: the database has it."""
        offsets = [
            confluent_kafka.TopicPartition(self._topic, _partition(place), offset)
            for place, offset in self.positions(messages).items()
        ]
        for each in offsets:
            self._next[each.partition] = each.offset
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            event(logger, "offset_not_committed", level=logging.DEBUG, error=str(error))

    def lag(self) -> int | None:
        """Messages after the settled ones in the partitions that this member has."""
        total = 0
        try:
            for each in self._consumer.assignment():
                low, high = self._consumer.get_watermark_offsets(each, timeout=CALL_SECONDS)
                settled = self._next.get(each.partition, low)
                if settled > high:  # of an earlier topic of this name: Kafka begins anew
                    settled = low
                total += high - max(low, settled)
        except KafkaException:
            return None
        return total if self._member else None

    def close(self) -> None:
        """Leave the group, so that its other members take the partitions at once."""
        self._consumer.close()

    def _join(self) -> Any:
        try:
            consumer = confluent_kafka.Consumer(self._options)
        except (KafkaException, ValueError, TypeError) as error:
            raise ConfigError(f"KAFKA_OPTIONS: librdkafka refuses them: {error}") from error
        revoked = self._revoked
        consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=revoked, on_lost=revoked
        )
        return consumer

    def _rejoin(self) -> None:
        """Begin anew as another client, from the database's positions.

        A member with a fixed name comes to this when somebody else took the name, or when the
        broker has forgotten who had it.
        """
        event(logger, "consumer_renewed", level=logging.WARNING, error=self._troubles.fatal)
        self._troubles.fatal = ""
        self._member = False
        self._next.clear()
        self._consumer.close()
        self._consumer = self._join()

    def _message(self, one: Any) -> Message:
        return Message(f"{one.topic()}/{one.partition()}", str(one.offset()), one.value() or b"")

    def _judge(self, error: Any) -> None:
        if error.code() in HOPELESS:
            raise ConfigError(f"topic {self._topic!r}: Kafka refuses: {error.str()}")
        self._troubles(error)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        places = {f"{each.topic}/{each.partition}": each for each in partitions}
        try:
            known = self._known(list(places))
        except Exception as error:  # the client cannot pass it on: `take` does
            self._failure = error
            consumer.unsubscribe()
            return
        self._member = True
        for place, each in places.items():
            if self._from_beginning and place not in self._begun:
                each.offset = confluent_kafka.OFFSET_BEGINNING
            elif place in known:
                each.offset = known[place]
            self._next.pop(each.partition, None)
            if each.offset >= 0:
                self._next[each.partition] = each.offset
            self._begun.add(place)
        consumer.assign(partitions)
        event(logger, "partitions_assigned", partitions=_numbers(partitions))

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        """Nothing to hand over: what was not settled is read again by the next owner."""
        for each in partitions:
            self._next.pop(each.partition, None)
        event(logger, "partitions_revoked", partitions=_numbers(partitions))


def _partition(place: str) -> int:
    return int(place.rpartition("/")[2])


def _numbers(partitions: Iterable[Any]) -> str:
    return ",".join(str(each.partition) for each in sorted(partitions)) or "none"
