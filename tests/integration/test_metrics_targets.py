"""Scrape targets: of a node while it crawls, and of the fleet from the command line."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.ports import free_port
from tests.servers import Server

import orbweb as mw
from orbweb.cli.metrics import show_metrics, write_shipped
from orbweb.engine.engine import Engine
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.metrics import catalogue
from orbweb.metrics.server import serving
from orbweb.metrics.targets import address, write_targets
from orbweb.settings import Settings, load_settings
from orbweb.spiders.build import run_spider
from orbweb.spiders.start import Start

NODE_METRICS = {
    metric.name
    for metric in (*catalogue.OF_FLEET["Nodes"], *catalogue.OF_NODE, catalogue.BUILD_INFO)
    if metric not in (catalogue.CONFIG_VERSION, catalogue.SINK_WAITING)
}


def names(page: str) -> set[str]:
    """The metrics of a page, with the ending of counters."""
    lines = re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE)
    assert list(text_string_to_metric_families(page))
    return set(lines)


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = answer.read().decode()
        return text


class Curious(mw.AirSpider):
    """Looks at its own metrics."""

    __custom_setting__: ClassVar = {
        "METRICS_PORT": 0,
        "ITEM_PIPELINES": [],
        "LOG_LEVEL": "ERROR",
    }
    engines: list[Engine]
    pages: list[str]

    def start_requests(self) -> Iterator[mw.Request]:
        yield mw.Request("http://unused.test/1", auto_request=False)

    def parse(self, request: mw.Request, response: Any) -> Iterator[mw.Request]:
        time.sleep(0.6)  # the next description of the node: it is made every half a second
        self.pages.append(read(f"http://{self.engines[0].place['metrics']}/metrics"))
        if len(self.pages) < 2:
            yield mw.Request("http://unused.test/2", auto_request=False)


def test_a_node_serves_its_own_metrics_while_it_crawls(tmp_path: Path) -> None:
    spider = Curious()
    spider.engines, spider.pages = [], []
    report = run_spider(spider, Start(directory=tmp_path, on_engine=spider.engines.append))
    assert report.exit_code == 0
    page = spider.pages[1]
    without = NODE_METRICS - names(page)
    assert without == {catalogue.NODE_RETRIES.name, catalogue.NODE_RESPONSES.name}
    assert 'orbweb_node_requests_total{node="' in page
    assert re.search(r'reason="done"} 1$', page, re.MULTILINE)


async def test_a_port_that_is_taken_is_an_error_or_replaced_as_is_asked() -> None:
    async def page() -> str:
        return "x 1\n"

    async with serving(page, "127.0.0.1", 0) as first:
        with pytest.raises(ConfigError, match="something else listens there"):
            async with serving(page, "127.0.0.1", first):
                pass
        async with serving(page, "127.0.0.1", first, or_free=True) as second:
            assert second != first
            told = await asyncio.to_thread(read, f"http://127.0.0.1:{second}/metrics")
            assert told == "x 1\n"


def test_the_address_is_one_under_which_others_reach_the_node() -> None:
    assert address("127.0.0.1", 1) == "127.0.0.1:1"
    assert address("::1", 1) == "[::1]:1"
    assert not address("0.0.0.0", 1).startswith("0.0.0.0")
    assert address("10.1.2.3", 1) == "10.1.2.3:1"


def test_the_file_of_targets_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = write_targets(tmp_path / "new", [{"targets": ["a:1"], "labels": {}}])
    assert path.read_text() == (
        '[\n  {\n    "targets": [\n      "a:1"\n    ],\n    "labels": {}\n  }\n]\n'
    )
    write_targets(tmp_path / "new", [])
    assert path.read_text() == "[]\n"
    assert list(path.parent.iterdir()) == [path]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


def test_metrics_serve_goes_on_until_it_is_told_to_end(server: Server, tmp_path: Path) -> None:
    command = ("metrics", "serve", "--port", "0", "--store", server.url)
    with subprocess.Popen(
        [sys.executable, "-m", "orbweb", *command], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", url)
            assert "orbweb_store_up 1" in read(url)
            base = url.removesuffix("/metrics")
            with urllib.request.urlopen(f"{base}/", timeout=10) as answer:
                assert "/metrics, /healthz, /targets" in answer.read().decode()
            for path, text in (("/healthz", "ok\n"), ("/targets", "[]")):
                with urllib.request.urlopen(base + path, timeout=10) as answer:
                    assert answer.read().decode() == text
            server.kill()
            assert "orbweb_store_up 0" in read(url)
            server.start()
            assert "orbweb_store_up 1" in read(url)
            process.terminate()
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()


def settings_of(url: str, folder: Path) -> Settings:
    return load_settings(overrides={"REDIS_URL": url}, directory=folder, environ={})


def test_metrics_show_prints_text_or_json(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(server.url, tmp_path)
    show_metrics(settings, as_json=False)
    assert "orbweb_build_info" in names(capsys.readouterr().out)
    show_metrics(settings, as_json=True)
    samples = json.loads(capsys.readouterr().out)
    up = {"name": "orbweb_store_up", "kind": "gauge", "labels": {}, "value": 1}
    assert up in samples


def test_a_store_that_is_not_there_is_an_error_of_show_but_not_of_serve(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    with pytest.raises(StoreUnavailable, match="no Redis or Valkey answers"):
        show_metrics(settings_of(url, tmp_path), as_json=False)


def test_dashboards_and_rules_are_written_but_no_change_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shipped("grafana", tmp_path / "boards", as_json=False)
    boards = sorted(path.name for path in (tmp_path / "boards").iterdir())
    assert boards == ["orbweb-fleet.json", "orbweb-quality.json", "orbweb-spider.json"]
    assert f"undo: rm {tmp_path}/boards/orbweb-fleet.json" in capsys.readouterr().err
    rules = tmp_path / "rules" / "orbweb.rules.yml"
    write_shipped("rules", rules.parent, as_json=False)
    write_shipped("rules", rules.parent, as_json=True)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == [str(rules)]
    rules.write_text(rules.read_text().replace("100000", "5000"))
    with pytest.raises(ConfigError, match="it may hold changes of yours"):
        write_shipped("rules", rules.parent, as_json=False)
    assert "5000" in rules.read_text()
