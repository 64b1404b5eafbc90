"""Where a setting's value comes from: file and line, and what it overrides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orbweb.cli.about import Asked, explain_setting, version
from orbweb.cli.live_view import applied
from orbweb.cli.places import place_of
from orbweb.config.values import Canary, Entry, LiveValues
from orbweb.settings import load_settings

TOML = """
# DOWNLOAD_DELAY = 9
X_NOTE = "DOWNLOAD_DELAY"
DOWNLOAD_DELAY = 2.0
DOWNLOAD_TIMEOUT = 7
"""
SPIDER = """
import orbweb

class Base(orbweb.Spider):
    custom_settings = {"ROBOTS_OBEY": False}

class Placed(Base):
    custom_settings = {
        "DEPTH_LIMIT": 4,
        "DOWNLOAD_DELAY": 1.0,
    }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "orbweb.toml").write_text(TOML)
    (tmp_path / "placed_spider.py").write_text(SPIDER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORBWEB_DOWNLOAD_DELAY", "3")
    return tmp_path


def explained(capsys: pytest.CaptureFixture[str], key: str, *changes: str) -> dict[str, Any]:
    explain_setting(key, Asked("placed_spider.py:Placed", changes, as_json=True))
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_all_places_of_a_value_are_named_the_one_that_wins_first(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = explained(capsys, "DOWNLOAD_DELAY", "DOWNLOAD_DELAY=0.25")
    assert [(each["value"], each["place"]) for each in found["sources"]] == [
        (0.25, "command line"),
        (1.0, "Placed.custom_settings, placed_spider.py line 10"),
        (3.0, "environment ORBWEB_DOWNLOAD_DELAY"),
        (2.0, "file orbweb.toml, line 4"),
        (0.0, "default"),
    ]
    assert (found["value"], found["place"], found["limit"]) == (0.25, "command line", ">= 0")


def test_a_class_above_and_another_name_are_found_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    robots = explained(capsys, "ROBOTS_OBEY")
    assert robots["place"] == "Placed.custom_settings, placed_spider.py line 5"
    assert explained(capsys, "REQUEST_TIMEOUT")["place"] == "file orbweb.toml, line 5"


def test_people_see_what_a_value_overrides(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explain_setting("DOWNLOAD_DELAY", Asked())
    said = capsys.readouterr().out
    assert "from: environment ORBWEB_DOWNLOAD_DELAY" in said
    assert "overrides   2.0          file orbweb.toml, line 4" in said


def test_a_file_that_is_named_elsewhere_is_read_where_it_is(folder: Path) -> None:
    (folder / "conf").mkdir()
    (folder / "conf/my.toml").write_text("\nDEPTH_LIMIT = 1\n")
    environ = {"ORBWEB_SETTING": "conf/my.toml"}
    assert place_of("DEPTH_LIMIT", "file my.toml", None, folder, environ) == (
        "file my.toml, line 2"
    )


def test_a_line_that_cannot_be_found_is_left_out(folder: Path) -> None:
    assert place_of("DEPTH_LIMIT", "file gone.py", None, folder, {}) == "file gone.py"
    assert place_of("DEPTH_LIMIT", "command line", None, folder, {}) == "command line"


def test_versions_of_the_packages_that_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    version(as_json=True, packages=True)
    found = json.loads(capsys.readouterr().out)
    assert {"orbweb", "python", "platform", "aiohttp", "redis", "sqlalchemy"} <= found.keys()
    assert "ruff" not in found


def live(place: str, value: object, **more: object) -> Entry:
    return Entry(place, value, by="li", version=7, **more)  # type: ignore[arg-type]


def test_live_values_win_and_those_for_some_are_named(tmp_path: Path) -> None:
    settings = load_settings(directory=tmp_path, environ={"ORBWEB_DOWNLOAD_DELAY": "3"})
    values = LiveValues(
        entries=(
            live("DOWNLOAD_DELAY", 1.0),
            live("job:Shop/DOWNLOAD_DELAY", 2.0),
            live("job:News/DOWNLOAD_DELAY", 9.0),
            live("host:shop.example/DOWNLOAD_DELAY", 5.0),
            live("CONCURRENT_REQUESTS", 4, canary=Canary(percent=25)),
            live("DEPTH_LIMIT", 1, until_ms=500),
        )
    )
    found, some = applied(settings, values, 1000, "Shop")
    assert found["DOWNLOAD_DELAY"] == 2.0
    assert [origin for origin, _ in found.sources("DOWNLOAD_DELAY")] == [
        "live v7 (job:Shop) by li",
        "live v7 (global) by li",
        "environment ORBWEB_DOWNLOAD_DELAY",
        "default",
    ]
    assert some["DOWNLOAD_DELAY"] == [{"place": "live v7 (host:shop.example) by li", "value": 5.0}]
    assert [each["place"] for each in some["CONCURRENT_REQUESTS"]] == [
        "live v7 (global, canary: 25 %) by li"
    ]
    assert (found["CONCURRENT_REQUESTS"], found["DEPTH_LIMIT"]) == (16, 0)
