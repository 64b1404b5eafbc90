"""Metrics and traces to a collector of OpenTelemetry (a stand-in that decodes real OTLP)."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.collectors import Collector, collecting, values
from tests.ports import free_port

import orbweb as mw
from orbweb.engine.report import RunReport
from orbweb.errors import ConfigError
from orbweb.metrics import catalogue
from orbweb.spiders.build import run_spider
from orbweb.spiders.start import Start


class Site(BaseHTTPRequestHandler):
    """One page; all others are not there."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


class Pages(mw.AirSpider):
    """One good page with an item, and one that is not there."""

    def start_requests(self) -> Iterator[mw.Request]:
        yield mw.Request(self.start)
        yield mw.Request(self.start + "gone?password=secret")

    def parse(self, request: mw.Request, response: Any) -> Iterator[dict[str, str]]:
        time.sleep(0.05)
        yield {"url": response.url}


def crawl(folder: Path, start: str, **settings: Any) -> RunReport:
    spider = Pages()
    spider.start = start
    given = {
        "LOG_LEVEL": "ERROR",
        "CRAWL_LOG_ENABLE": False,
        "ITEM_PIPELINES": "orbweb.pipelines.jsonl.JsonLinesPipeline",
        "ROBOTS_OBEY": False,
        **settings,
    }
    return run_spider(spider, Start(directory=folder, overrides=given, live=False))


def test_every_attempt_is_a_span_with_its_phases(
    site: str, collector: Collector, tmp_path: Path
) -> None:
    report = crawl(tmp_path, site, OTLP_ENDPOINT=collector.endpoint, OTLP_TRACE_RATIO=1)
    assert report.pages == 1
    described = [span for span in collector.spans if span.attributes]
    roots = {values(span.attributes)["url.full"]: span for span in described}
    assert len(roots) == 2
    good, gone = roots[site], roots[f"{site}gone?password=***"]
    told = values(good.attributes)
    assert (told["orbweb.reason"], told["http.response.status_code"]) == ("done", 200)
    assert values(gone.attributes)["orbweb.reason"] == "status_rejected"
    assert gone.status.code == 2
    phases = [span for span in collector.spans if span.parent_span_id == good.span_id]
    assert [span.name for span in phases] == ["claim", "fetch", "parse", "items", "ack"]
    for before, after in pairwise(phases):
        assert before.end_time_unix_nano == after.start_time_unix_nano
    assert phases[0].start_time_unix_nano == good.start_time_unix_nano
    assert phases[-1].end_time_unix_nano == good.end_time_unix_nano
    parse = phases[2]
    assert parse.end_time_unix_nano - parse.start_time_unix_nano >= 50_000_000
    assert abs(good.end_time_unix_nano / 1e9 - time.time()) < 60


def test_the_nodes_metrics_are_told_at_the_end_at_the_latest(
    site: str, collector: Collector, tmp_path: Path
) -> None:
    crawl(
        tmp_path,
        site,
        OTLP_ENDPOINT=f"{collector.endpoint}/",
        OTLP_HEADERS="x-token=abc",
        OTLP_TRACE_RATIO=0,
    )
    metrics = collector.last_metrics()
    assert metrics.keys() <= catalogue.METRICS.keys()
    responses = metrics["orbweb_node_responses_total"].sum
    assert responses.is_monotonic
    found = {values(each.attributes)["status"]: each.as_int for each in responses.data_points}
    assert found == {"2xx": 1, "4xx": 1}
    (times,) = metrics["orbweb_node_download_seconds"].histogram.data_points
    assert (times.count, sum(times.bucket_counts)) == (2, 2)
    assert tuple(times.explicit_bounds) == catalogue.NODE_DOWNLOAD.bounds
    assert metrics["orbweb_node_cpu_ratio"].WhichOneof("data") == "gauge"
    told = collector.resource()
    assert (told["service.name"], told["orbweb.job"]) == ("orbweb", "Pages")
    assert collector.headers[0]["x-token"] == "abc"
    assert collector.traces == []


def test_a_collector_that_is_away_does_not_hold_up_the_end(site: str, tmp_path: Path) -> None:
    began = time.monotonic()
    away = f"http://127.0.0.1:{free_port()}"
    report = crawl(tmp_path, site, OTLP_ENDPOINT=away, OTLP_TRACE_RATIO=1, LOG_LEVEL="CRITICAL")
    assert report.pages == 1
    assert time.monotonic() - began < 12


def test_headers_that_are_none_are_refused(site: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"OTLP_HEADERS .*each is to be name=value"):
        crawl(tmp_path, site, OTLP_ENDPOINT="http://127.0.0.1:1", OTLP_HEADERS="secret")


def test_without_it_the_library_is_not_even_loaded(tmp_path: Path) -> None:
    code = (
        "import sys, orbweb.spiders.build; "
        "wanted = 'orbweb.metrics.otel', 'orbweb.metrics.server', 'opentelemetry.exporter'; "
        "print([name for name in sys.modules if name.startswith(wanted)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
