"""An AirSpider has no store: SIGHUP lets it read its settings file again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.origin import StampingOrigin

import orbweb
from orbweb.download.middlewares import DownloaderMiddleware
from orbweb.spiders.start import Start

TOLD: list[object] = []


class Listening(DownloaderMiddleware):
    """A middleware that wants to know."""

    def process_request(self, request: orbweb.Request) -> None:
        return None

    @orbweb.on_config("DOWNLOAD_DELAY")
    def changed(self, value: object) -> None:
        TOLD.append(value)


class Air(orbweb.AirSpider):
    name = "air"

    def __init__(self, url: str) -> None:
        super().__init__(pipelines=[])
        self.url = url

    def start_requests(self) -> Iterator[orbweb.Request]:
        for n in range(500):
            yield orbweb.Request(f"{self.url}/p/{n}")

    def parse(self, request: orbweb.Request, response: orbweb.Response) -> None:
        return None


def write(directory: Path, delay: float, shards: int = 1) -> None:
    (directory / "orbweb.toml").write_text(
        f"DOWNLOAD_DELAY = {delay}\nCRAWL_LOG_ENABLE = false\nRUN_SUMMARY_ENABLE = false\n"
        f"GRACEFUL_TIMEOUT = 0.1\nFRONTIER_SHARDS = {shards}\n"
        'DOWNLOADER_MIDDLEWARES = ["tests.live.test_live_air.Listening"]\n'
    )


def test_an_air_spider_reads_its_settings_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 0.01)

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        return (404, {}, b"") if path == "/robots.txt" else (200, {}, b"page")

    with StampingOrigin(answer) as site:
        spider = Air(site.url)

        def operate() -> None:
            deadline = time.monotonic() + 20
            while len(site.arrivals) < 5 and time.monotonic() < deadline:
                time.sleep(0.01)
            write(tmp_path, 0.3, shards=2)
            os.kill(os.getpid(), signal.SIGHUP)
            began = time.time()
            while time.monotonic() < deadline:
                if sum(arrival.at > began + 0.2 for arrival in list(site.arrivals)) >= 4:
                    break
                time.sleep(0.02)
            (tmp_path / "orbweb.toml").write_text("DOWNLOAD_DELAY = 'soon'\n")
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.5)
            spider.stop()

        operator = threading.Thread(target=operate)
        operator.start()
        TOLD.clear()
        spider.run(Start(directory=tmp_path, live=False))
        operator.join()
        late = sorted(arrival.at for arrival in site.arrivals)[-4:]
    assert min(b - a for a, b in pairwise(late)) > 0.29
    assert TOLD == [0.3]
    said = capfd.readouterr().err
    assert "count after a restart: FRONTIER_SHARDS" in said
    assert "settings are not read again, those that hold go on: DOWNLOAD_DELAY = 'soon'" in said
