"""RedisStatsCollector: local counters, their sum over all workers in one hash."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from scrapy import Spider
from tests.scrapy.crawls import made_crawler
from tests.servers import Server

from orbweb.adapters.scrapy.stats import RedisStatsCollector


def collector(store: Server, **settings: Any) -> RedisStatsCollector:
    crawler = made_crawler(Spider, REDIS_URL=store.url, STATS_DUMP=False, **settings)
    return RedisStatsCollector(crawler, Spider("shop"))


def test_the_hash_holds_the_sum_of_all_workers(store: Server) -> None:
    one, two = collector(store), collector(store)
    for worker, pages in ((one, 3), (two, 4)):
        for _ in range(pages):
            worker.inc_value("pages")
        worker.inc_value("seconds", 0.5)
        worker.max_value("depth", pages)
        worker.min_value("shortest", pages)
        worker.flush()
    one.inc_value("pages")
    one.flush()
    found = one.cluster_stats()
    assert (found["pages"], found["seconds"]) == (8, 1.0)
    assert (found["depth"], found["shortest"]) == (4, 3)
    assert (one.get_value("pages"), two.get_value("pages")) == (4, 4)


def test_values_keep_their_types(store: Server) -> None:
    worker = collector(store)
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    values = {"finish_reason": "finished", "ratio": 0.25, "none": None, "flag": True, "at": at}
    for name, value in values.items():
        worker.set_value(name, value)
    worker.flush()
    assert worker.cluster_stats() == {**values, "at": at.timestamp()}
    assert store.client().hget("shop:stats", "at") == str(at.timestamp()).encode()


def test_a_batch_whose_answer_was_lost_counts_once(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = collector(store)
    worker.inc_value("pages", 5)
    send = worker.server.eval

    def lose_the_answer(*words: Any) -> Any:
        send(*words)
        raise ConnectionError("the answer is lost")

    monkeypatch.setattr(worker.server, "eval", lose_the_answer)
    worker.flush()
    monkeypatch.setattr(worker.server, "eval", send)
    worker.inc_value("pages", 2)
    worker.flush()
    assert worker.cluster_stats()["pages"] == 7


def test_the_last_worker_that_closes_removes_the_hash_unless_it_is_kept(store: Server) -> None:
    one, two = collector(store), collector(store)
    for worker in (one, two):
        worker.inc_value("pages")
        worker.open_spider()
        worker.flush()
    one.close_spider(reason="finished")
    assert two.cluster_stats()["pages"] == 2
    two.close_spider(reason="finished")
    assert not store.client().keys("*")
    kept = collector(store, SCHEDULER_PERSIST="True")
    kept.inc_value("pages")
    kept.open_spider()
    kept.close_spider(reason="finished")
    assert kept.cluster_stats() == {"pages": 1}


def test_a_persistence_of_false_as_text_is_false(store: Server) -> None:
    assert collector(store, SCHEDULER_PERSIST="False").persist is False
