"""Queues, pickles and duplicate filters by scrapy-redis's names, used by themselves."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import pytest
from scrapy import FormRequest, Request, Spider
from tests.scrapy.crawls import made_crawler
from tests.servers import Server

from orbweb.adapters.scrapy import picklecompat
from orbweb.adapters.scrapy.dupefilter import RFPDupeFilter, set_fingerprint
from orbweb.adapters.scrapy.queue import FifoQueue, LifoQueue, PriorityQueue, SpiderQueue
from orbweb.errors import UnserialisableError

executed: list[str] = []


class Shop(Spider):
    name = "shop"

    def parse_item(self, response: Any) -> None: ...


class Planted:
    """As somebody would plant it who can write to the store."""

    def __reduce__(self) -> Any:
        return executed.append, ("code ran",)


def test_a_planted_pickle_is_refused_and_not_executed(store: Server) -> None:
    queue = FifoQueue(store.client(), Shop(), "%(spider)s:requests")
    store.client().lpush("shop:requests", pickle.dumps(Planted()))
    with pytest.raises(UnserialisableError, match="which is no plain type"):
        queue.pop()
    assert executed == []


def test_a_pickle_of_a_class_by_name_is_refused() -> None:
    with pytest.raises(picklecompat.RefusedPickleError, match="SCHEDULER_SERIALIZER = 'pickle'"):
        picklecompat.loads(pickle.dumps(Shop))


def test_bytes_that_are_no_pickle_have_a_clear_error() -> None:
    with pytest.raises(UnserialisableError, match="this is no pickle"):
        picklecompat.loads(b"\x80\x05nonsense")


def test_plain_values_travel() -> None:
    value = {"d": datetime.datetime(2026, 1, 1), "s": {1}, "t": (b"x", 2.5, None), "i": 10**30}
    assert picklecompat.loads(picklecompat.dumps(value)) == value
    assert picklecompat.loads(pickle.dumps(value)) == value


def test_what_could_not_be_read_again_is_refused_when_it_is_written() -> None:
    with pytest.raises(UnserialisableError, match="cannot travel through the store"):
        picklecompat.dumps({"meta": Shop()})


def test_a_stored_request_can_only_be_of_a_class_that_is_loaded(store: Server) -> None:
    queue = SpiderQueue(store.client(), Shop(), "q")
    record = {"url": "http://e.com/", "_class": "subprocess.Popen"}
    store.client().lpush("q", picklecompat.dumps(record))
    with pytest.raises(UnserialisableError, match=r"subprocess\.Popen"):
        queue.pop()


def test_a_form_request_returns_as_it_was(store: Server) -> None:
    spider = Shop()
    queue = LifoQueue(store.client(), spider, "q")
    queue.push(FormRequest("http://e.com/", formdata={"a": "1"}, callback=spider.parse_item))
    found = queue.pop()
    assert isinstance(found, FormRequest)
    assert (found.body, found.callback) == (b"a=1", spider.parse_item)


def test_equal_requests_are_never_merged(store: Server) -> None:
    queue = PriorityQueue(store.client(), Shop(), "q")
    for _ in range(3):
        queue.push(Request("http://e.com/", dont_filter=True))
    assert len(queue) == 3


def test_scrapy_redis_can_read_what_the_queue_has_written(store: Server) -> None:
    queue = PriorityQueue(store.client(), Shop(), "q")
    queue.push(Request("http://e.com/", priority=7))
    ((stored, score),) = store.client().zrange("q", 0, -1, withscores=True)
    record = pickle.loads(stored)
    assert (record["url"], score) == ("http://e.com/", -7)


@pytest.mark.parametrize("missing", ["loads", "dumps"])
def test_a_serializer_needs_both_functions(missing: str) -> None:
    serializer = type("S", (), {"loads": 1, "dumps": 1})
    delattr(serializer, missing)
    with pytest.raises(TypeError, match=missing):
        FifoQueue(None, Shop(), "q", serializer)


def test_the_fingerprint_is_that_of_scrapy_redis() -> None:
    assert set_fingerprint(Request("http://e.com/")) == set_fingerprint(Request("http://e.com"))
    assert set_fingerprint(Request("http://e.com/")).startswith("4cf416")


class Constant:
    def fingerprint(self, request: Request) -> bytes:
        return b"same"


def test_the_filter_asks_the_fingerprinter_that_the_project_names(store: Server) -> None:
    crawler = made_crawler(Shop, REDIS_URL=store.url, REQUEST_FINGERPRINTER_CLASS=Constant)
    found = RFPDupeFilter.from_crawler(crawler)
    assert not found.request_seen(Request("http://e.com/1"))
    assert found.request_seen(Request("http://e.com/2"))
    found.close()
    assert not store.client().keys("*")


def test_the_filter_of_a_spider_uses_the_set_that_exists(store: Server) -> None:
    spider = Shop.from_crawler(made_crawler(Shop, REDIS_URL=store.url))
    store.client().sadd("shop:dupefilter", set_fingerprint(Request("http://e.com/1")))
    found = RFPDupeFilter.from_spider(spider)
    assert found.request_seen(Request("http://e.com/1"))
    assert not found.request_seen(Request("http://e.com/2"))


def test_scrapys_own_settings_make_no_fingerprinter_of_the_project() -> None:
    assert RFPDupeFilter.from_crawler(made_crawler(Shop)).fingerprinter is None
