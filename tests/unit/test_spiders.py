"""Spiders as users start them: settings, pipelines, exit codes, the summary line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import orbweb as mw
from orbweb.engine.report import SUMMARY_PREFIX
from orbweb.errors import ConfigError
from orbweb.spiders.load import load_pipelines
from orbweb.spiders.start import settings_of


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory without settings, and the loggers as they were."""
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("orbweb")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


class Numbers(mw.AirSpider):
    """Pages that need no site."""

    def start_requests(self) -> Any:
        for n in range(10):
            yield mw.Request(f"http://site.test/{n}", auto_request=False)

    def parse(self, request: Any, response: Any) -> Any:
        assert response is None
        yield {"url": request.url}


def summary(text: str) -> dict[str, Any]:
    (line,) = [line for line in text.splitlines() if line.startswith(SUMMARY_PREFIX)]
    found: dict[str, Any] = json.loads(line.removeprefix(SUMMARY_PREFIX))
    return found


def test_start_crawls_stores_and_prints_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spider = Numbers()
    spider.start()
    found = summary(capsys.readouterr().out)
    assert (found["exit_code"], found["state"], found["spider"]) == (0, "done", "Numbers")
    assert found["request_ok"] == found["items"] == found["run"]["pages"] == 10
    assert [Path(output).name for output in found["outputs"]] == ["items.jsonl"]
    assert len((tmp_path / "items.jsonl").read_text().splitlines()) == 10
    assert spider.scheduler.stats.get("request_ok") == 10
    assert "request_ok=10" in spider.scheduler.stats.summary()


def test_a_run_that_did_nothing_leaves_with_its_own_code() -> None:
    class Empty(mw.AirSpider):
        pass

    with pytest.raises(SystemExit) as left:
        Empty().start()
    assert left.value.code == 3


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"CONCURENT_REQUESTS": 3}, "did you mean CONCURRENT_REQUESTS"),
        ({"CONCURRENT_REQUESTS": "many"}, "CONCURRENT_REQUESTS"),
        ({"ITEM_PIPELINES": ["nowhere.Pipeline"]}, "nowhere"),
        ({"ITEM_PIPELINES": ["pathlib.Path"]}, "BasePipeline"),
        ({"UNAPPROVED_RATE": "fast"}, "UNAPPROVED_RATE (Wrong.custom_settings): 'fast' is no rate"),
    ],
)
def test_wrong_settings_are_one_line_and_exit_2(
    settings: dict[str, Any], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrong(Numbers):
        custom_settings = settings

    with pytest.raises(SystemExit) as left:
        Wrong().start()
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert text in error
    assert "Traceback" not in error


def test_settings_belong_to_the_class_and_the_instance() -> None:
    class Base(Numbers):
        __custom_setting__: ClassVar[dict[str, Any]] = {
            "CONCURRENT_REQUESTS": 3,
            "SPIDER_MAX_RETRY_TIMES": 7,
        }

    class Derived(Base):
        custom_settings: ClassVar[dict[str, Any]] = {"CONCURRENT_REQUESTS": 5}

    assert settings_of(Derived())["CONCURRENT_REQUESTS"] == 5
    assert settings_of(Derived())["SPIDER_MAX_RETRY_TIMES"] == 7
    assert settings_of(Derived(thread_count=9))["CONCURRENT_REQUESTS"] == 9
    assert settings_of(Base())["CONCURRENT_REQUESTS"] == 3
    assert settings_of(Numbers(debug=True))["CONCURRENT_REQUESTS"] == 1


def test_an_item_handler_takes_the_place_of_pipelines(tmp_path: Path) -> None:
    got: list[dict[str, Any]] = []
    report = Numbers(item_handler=got.extend).run()
    assert report.exit_code == 0
    assert len(got) == 10
    assert not (tmp_path / "items.jsonl").exists()
    with pytest.raises(ConfigError, match="item_handler"):
        Numbers(item_handler=got.extend, pipelines=[])


def test_pipelines_are_paths_classes_or_objects() -> None:
    class Mine(mw.BasePipeline):
        def save_items(self, table: str, items: list[dict[str, Any]]) -> bool:
            return True

    settings = settings_of(Numbers())
    path = "orbweb.pipelines.console.ConsolePipeline"
    loaded = load_pipelines(Numbers(pipelines=[path, Mine()]), settings)
    assert [type(each).__name__ for each in loaded.values()] == ["ConsolePipeline", "Mine"]
    assert path in loaded
    with pytest.raises(ConfigError, match="twice"):
        load_pipelines(Numbers(pipelines=[Mine, Mine()]), settings)


def test_a_spider_can_stop_itself() -> None:
    class Enough(Numbers):
        custom_settings: ClassVar[dict[str, Any]] = {"CONCURRENT_REQUESTS": 1}

        def parse(self, request: Any, response: Any) -> Any:
            self.stop()
            yield {"url": request.url}

    report = Enough().run()
    assert (report.exit_code, report.state) == (75, "stopped")
    assert 1 <= report.counts["request_ok"] < 10


def test_the_pipeline_that_was_meant_is_named() -> None:
    path = "orbweb.pipelines.jsonl.JsonLinePipeline"
    with pytest.raises(ConfigError, match=r"did you mean JsonLinesPipeline\?$"):
        load_pipelines(Numbers(pipelines=[path]), settings_of(Numbers()))


@pytest.mark.parametrize("library", ["bson", "pymongo"])
def test_a_missing_extra_is_named_with_its_install_line(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = [name for name in sys.modules if name.startswith(f"{library}.")]
    for name in ("orbweb.pipelines.mongo", *loaded):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    path = "orbweb.pipelines.mongo.MongoPipeline"
    with pytest.raises(ConfigError, match=r"pip install 'orbweb\[mongo\]'$"):
        load_pipelines(Numbers(pipelines=[path]), settings_of(Numbers()))


def test_start_urls_that_are_wrong_are_left_out() -> None:
    class Listed(mw.AirSpider):
        start_urls = ("nonsense", None, "mailto:x@site.test")

    problems = [request.problem for request in Listed().start_requests()]
    assert problems == ["bad_url", "scheme"]


def test_two_spiders_of_one_process_do_not_share_settings() -> None:
    class Other(Numbers):
        custom_settings: ClassVar[dict[str, Any]] = {"ITEM_DEFAULT_TABLE": "others"}

    first, second = Numbers().run(), Other().run()
    assert [Path(output).name for output in first.outputs] == ["items.jsonl"]
    assert [Path(output).name for output in second.outputs] == ["others.jsonl"]


def test_one_start_url_may_be_given_as_text() -> None:
    class Once(mw.AirSpider):
        start_urls = "http://site.test/a"

    assert [request.url for request in Once().start_requests()] == ["http://site.test/a"]


def test_a_constructor_that_forgets_the_one_above_it_is_told_so() -> None:
    class Forgetful(mw.AirSpider):
        def __init__(self) -> None:
            self.page = 1

    with pytest.raises(ConfigError, match=r"Forgetful\.__init__ must call super"):
        Forgetful().run()
