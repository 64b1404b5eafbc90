"""Spiders with each filter, against a real site and a real store."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.servers import Server

import orbweb
from orbweb.errors import ConfigError
from orbweb.spiders.build import run_spider
from orbweb.spiders.start import Start
from orbweb.testing.site import SiteThread

SHARED = ["exact", "compact", "set", "bloom"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey", aof="everysec")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def site() -> Iterator[SiteThread]:
    with SiteThread() as site:
        yield site


def started(spider: Any, tmp_path: Path, **settings: Any) -> Any:
    quiet = {"ITEM_PIPELINES": [], "RUN_SUMMARY_ENABLE": False}
    return run_spider(
        spider, Start(overrides={**quiet, **settings}, directory=tmp_path, live=False)
    )


def counted_spider(
    base: type, site: SiteThread, numbers: range, job: str, entries: str = "ab"
) -> Any:
    class Pages(base):  # type: ignore[misc]
        name = job
        asked: ClassVar[Counter[str]] = Counter()

        def start_requests(self) -> Any:
            for entry in entries:
                yield orbweb.Request(f"{site.url}/flat?n=1&entry={entry}&job={job}")

        def parse(self, request: Any, response: Any) -> Any:
            self.asked[response.url] += 1
            if "entry" in response.url:
                for n in numbers:
                    yield orbweb.Request(f"{site.url}/flat?n={n}&job={job}")

    return Pages()


@pytest.mark.parametrize("kind", SHARED)
def test_a_page_that_two_entries_link_to_is_fetched_once(
    server: Server, site: SiteThread, tmp_path: Path, kind: str
) -> None:
    spider = counted_spider(orbweb.Spider, site, range(40), f"once-{kind}")
    started(spider, tmp_path, REDIS_URL=server.url, DEDUP_FILTER=kind)
    assert len(spider.asked) == 42
    assert set(spider.asked.values()) == {1}


@pytest.mark.parametrize("kind", ["exact", "compact", "set", "bloom", "memory", "lite"])
def test_an_air_spider_has_each_filter_of_one_process(
    site: SiteThread, tmp_path: Path, kind: str
) -> None:
    spider = counted_spider(orbweb.AirSpider, site, range(20), f"air-{kind}")
    started(spider, tmp_path, DEDUP_FILTER=kind)
    assert len(spider.asked) == 22
    assert set(spider.asked.values()) == {1}


@pytest.mark.parametrize("kind", ["memory", "lite"])
def test_a_shared_job_with_a_filter_of_one_process_is_refused(
    server: Server, site: SiteThread, tmp_path: Path, kind: str
) -> None:
    spider = counted_spider(orbweb.Spider, site, range(5), f"refused-{kind}")
    with pytest.raises(ConfigError, match="DEDUP_ALLOW_LOCAL"):
        started(spider, tmp_path, REDIS_URL=server.url, DEDUP_FILTER=kind)
    assert not spider.asked


@pytest.mark.parametrize("kind", ["memory", "lite"])
def test_a_filter_of_one_process_works_where_it_is_allowed(
    server: Server, site: SiteThread, tmp_path: Path, kind: str
) -> None:
    settings = {"REDIS_URL": server.url, "DEDUP_FILTER": kind, "DEDUP_ALLOW_LOCAL": True}
    spider = counted_spider(orbweb.Spider, site, range(20), f"local-{kind}")
    started(spider, tmp_path, **settings)
    assert set(spider.asked.values()) == {1}
    assert len(spider.asked) == 22


@pytest.mark.parametrize("base", [orbweb.Spider, orbweb.AirSpider])
def test_a_filter_that_fills_up_warns_once_and_an_over_full_one_is_an_error(
    server: Server,
    site: SiteThread,
    tmp_path: Path,
    base: type,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orbweb.spiders.build.configure_log", lambda *words: None)
    caplog.set_level(logging.INFO, logger="orbweb")
    job = f"full-{base.__name__}"
    settings = {
        "REDIS_URL": server.url,
        "DEDUP_FILTER": "bloom",
        "DEDUP_INITIAL_CAPACITY": 10,
        "DEDUP_MAX_LAYERS": 2,
        "DEDUP_ERROR_RATE": 1e-9,
        "DEDUP_SCOPE": "spider",
    }

    def crawl(numbers: range, run: str) -> list[str]:
        caplog.clear()
        spider = counted_spider(base, site, numbers, job, entries=run or "a")
        started(spider, tmp_path, RUN_ID=run, **settings)
        lines = [(record.levelname, record.getMessage()) for record in caplog.records]
        return [f"{level} {text.split()[0]}" for level, text in lines if text.startswith("dedup_")]

    if base is orbweb.AirSpider:
        assert crawl(range(12), "") == []
        assert crawl(range(24), "") == ["WARNING dedup_filling"]
        assert crawl(range(40), "") == ["WARNING dedup_filling", "ERROR dedup_over_full"]
        return
    assert crawl(range(12), "1") == []
    assert crawl(range(24), "2") == ["WARNING dedup_filling"]
    assert crawl(range(25), "3") == [], "once"
    assert crawl(range(40), "4") == ["ERROR dedup_over_full"]
    assert crawl(range(41), "5") == [], "once"
