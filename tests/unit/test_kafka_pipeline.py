"""Every delivery report counts: what is refused, what is tried again, and what stands beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from orbweb.errors import ConfigError, PipelineError
from orbweb.kafka.envelope import decode
from orbweb.model.item import Origin, item_record
from orbweb.pipelines.base import Page
from orbweb.pipelines.kafka import KafkaPipeline

Answer = Callable[[list[str]], dict[str, int]]
"""Given the items that are flushed together, the error code of those that fail."""


class ScriptedProducer:
    """Takes the place of the client: answers each flush as the test says."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.flushed: list[list[str]] = []
        self.stored: list[str] = []
        self._waiting: list[tuple[str, Callable[[Any, Any], None]]] = []

    def produce(self, topic: str, *, value: bytes, key: bytes, on_delivery: Any) -> None:
        self._waiting.append((decode(value).row["name"], on_delivery))

    def flush(self, seconds: float) -> int:
        waiting, self._waiting = self._waiting, []
        names = [name for name, _ in waiting]
        self.flushed.append(names)
        codes = self.answer(names)
        for name, report in waiting:
            if name in codes:
                report(KafkaError(codes[name]), None)
            else:
                self.stored.append(name)
                report(None, None)
        return 0

    def purge(self) -> None:
        self._waiting.clear()


def page(*names: str) -> Page:
    records = tuple(
        item_record({"name": n}, run="e1", request_id="r1", position=i, default_table="items")
        for i, n in enumerate(names)
    )
    return Page(Origin("e1", "r1", "a:1", 5), records)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], tuple[Any, list[Any]]]:
    def make(answer: Answer) -> tuple[KafkaPipeline, list[ScriptedProducer]]:
        made: list[ScriptedProducer] = []

        def producer(self: KafkaPipeline) -> ScriptedProducer:
            made.append(ScriptedProducer(answer))
            return made[-1]

        monkeypatch.setattr(KafkaPipeline, "_make_producer", producer)
        return KafkaPipeline("broker:9092"), made

    return make


def refused_names(pipeline: KafkaPipeline, *pages: Page) -> list[str]:
    return [refusal.record.row["name"] for refusal in pipeline.save_pages(pages)]


def test_a_record_that_is_refused_for_good_is_the_only_one(scripted: Any) -> None:
    pipeline, made = scripted(
        lambda names: {"bad": KafkaError.INVALID_RECORD} if "bad" in names else {}
    )
    assert refused_names(pipeline, page("a", "bad", "b"), page("c")) == ["bad"]
    assert made[0].stored == ["a", "b", "c"]


def test_records_held_back_by_a_refused_one_are_sent_at_once(scripted: Any) -> None:
    def answer(names: list[str]) -> dict[str, int]:
        if "bad" not in names:
            return {}
        codes = dict.fromkeys(names, KafkaError._INVALID_DIFFERENT_RECORD)
        return codes | {"bad": KafkaError.INVALID_RECORD}

    pipeline, made = scripted(answer)
    assert refused_names(pipeline, page("a", "bad", "b")) == ["bad"]
    assert made[0].stored == ["a", "b"]


def test_a_batch_that_is_too_large_is_sent_one_by_one(scripted: Any) -> None:
    def answer(names: list[str]) -> dict[str, int]:
        whole = len(names) > 1 or names == ["huge"]
        return dict.fromkeys(names, KafkaError.MSG_SIZE_TOO_LARGE) if whole else {}

    pipeline, made = scripted(answer)
    assert refused_names(pipeline, page("a", "huge", "b")) == ["huge"]
    assert made[0].stored == ["a", "b"]


@pytest.mark.parametrize(
    "code",
    [KafkaError._MSG_TIMED_OUT, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.UNKNOWN_TOPIC_OR_PART],
)
def test_a_temporary_refusal_is_left_to_the_buffer(scripted: Any, code: int) -> None:
    codes = {"b": code}
    pipeline, made = scripted(lambda names: {n: codes[n] for n in names if n in codes})
    with pytest.raises(PipelineError, match=KafkaError(code).name()):
        pipeline.save_pages([page("a", "b")])
    codes.clear()
    assert pipeline.save_pages([page("a", "b")]) == []
    assert made[0].stored == ["a", "a", "b"]


def test_a_client_that_gave_up_is_replaced(scripted: Any) -> None:
    fatal = KafkaException(KafkaError(KafkaError._FATAL))
    pipeline, made = scripted(lambda names: {})

    def gives_up(seconds: float) -> int:
        raise fatal

    made[0].flush = gives_up
    with pytest.raises(PipelineError, match="gave up"):
        pipeline.save_pages([page("a")])
    assert pipeline.save_pages([page("a")]) == []
    assert made[1].stored == ["a"]


def test_silence_is_no_confirmation(scripted: Any) -> None:
    pipeline, made = scripted(lambda names: {})
    made[0].flush = lambda seconds: 1
    with pytest.raises(PipelineError, match="1 of 1"):
        pipeline.save_pages([page("a")])


def test_an_item_that_cannot_travel_is_refused_and_the_rest_is_sent(scripted: Any) -> None:
    pipeline, made = scripted(lambda names: {})
    good = page("a")
    broken = item_record(
        {"name": "b", "half": "\ud800"}, run="e1", request_id="r2", position=0, default_table="x"
    )
    refusals = pipeline.save_pages([Page(good.origin, (*good.records, broken))])
    assert [refusal.record for refusal in refusals] == [broken]
    assert made[0].stored == ["a"]


def test_options_that_librdkafka_does_not_know_are_a_mistake_of_the_settings() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.thing"):
        KafkaPipeline("broker:9092", options={"no.such.thing": "1"})
    with pytest.raises(ConfigError, match="acks cannot be changed"):
        KafkaPipeline("broker:9092", options={"acks": "1"})
    with pytest.raises(ConfigError, match="BOOTSTRAP"):
        KafkaPipeline([])
    settings = {
        "KAFKA_BOOTSTRAP_SERVERS": ("b:1",),
        "KAFKA_TOPIC": "t",
        "KAFKA_OPTIONS": ("sasl.password",),
    }
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        KafkaPipeline.from_settings(settings)
