"""Options, their contradictions, and how commands print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from orbweb import AirSpider, Spider
from orbweb.cli import show
from orbweb.cli.failed_find import Filter, chosen
from orbweb.cli.items import refuse_unclear
from orbweb.cli.options import overrides, pairs
from orbweb.cli.run import RunPlan, file_settings, new_run_id, run_spider
from orbweb.errors import ConfigError
from orbweb.frontier.base import DeadLetter
from orbweb.spiders.start import Start, settings_of

CONSOLE = "orbweb.pipelines.console.ConsolePipeline"


def letter(id: str, reason: str = "timeout", host: str = "a.example") -> DeadLetter:
    return DeadLetter(id, reason, "", 4, 0, host, 300, b"")


def test_pairs_keep_all_behind_the_first_equals_sign() -> None:
    assert pairs(["a=1", "b=x=y", "c="], "-a") == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("texts", [["a"], ["=1"], ["a=1", "a=2"]])
def test_pairs_that_are_none_are_refused(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="-a"):
        pairs(texts, "-a")


def test_the_store_is_a_setting() -> None:
    assert overrides(["X_A=1"], "redis://h") == {"X_A": "1", "REDIS_URL": "redis://h"}
    with pytest.raises(ConfigError, match="keep one"):
        overrides(["REDIS_URL=redis://g"], "redis://h")


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (RunPlan("x.py", append="a.jsonl", overwrite="b.jsonl"), "keep one"),
        (RunPlan("x.py", overwrite="items.json"), r"items\.jsonl"),
        (RunPlan("x.py", append="items.xml"), r"\.jsonl and \.csv files, and to a \.parquet"),
        (RunPlan("x.py", fresh=True, resume=True), "exclude"),
        (RunPlan("x.py", run_id="a", fresh=True), "exclude"),
    ],
)
def test_contradictions_are_refused_before_anything_is_loaded(plan: RunPlan, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        run_spider(plan)


@pytest.mark.parametrize(
    "plan", [RunPlan("", workers=2), RunPlan("", resume=True), RunPlan("", run_id="x")]
)
def test_an_air_spider_shares_nothing(
    plan: RunPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "air_shares_nothing.py"
    path.write_text("import orbweb\nclass A(orbweb.AirSpider):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    values = {name: getattr(plan, name) for name in RunPlan.__slots__}
    with pytest.raises(ConfigError, match="AirSpider"):
        run_spider(RunPlan(**{**values, "target": str(path)}))


def test_a_file_takes_the_place_of_the_default_pipeline_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain(Spider):
        pass

    class Chooses(Spider):
        custom_settings: ClassVar = {"ITEM_PIPELINES": [CONSOLE]}

    class Brings(AirSpider):
        pass

    monkeypatch.chdir(tmp_path)
    file = "out.csv"
    plain, chooses = Plain(), Chooses()
    own = "orbweb.pipelines.onefile.CsvFile"
    found = file_settings(plain, settings_of(plain), file)
    assert found == {"OUTPUT_FILE": str(tmp_path / "out.csv"), "ITEM_PIPELINES": own}
    found = file_settings(chooses, settings_of(chooses), file)
    assert found["ITEM_PIPELINES"] == f"{CONSOLE},{own}"
    assert settings_of(plain, Start(found))["ITEM_PIPELINES"][1] == own
    brings = Brings(pipelines=[object()])
    with pytest.raises(ConfigError, match="its own pipelines"):
        file_settings(brings, settings_of(brings), file)


def test_run_ids_sort_by_time() -> None:
    assert new_run_id()[:15] <= new_run_id()[:15]
    assert new_run_id() != new_run_id()


def test_a_filter_wants_every_part_to_fit() -> None:
    which = Filter(ids=("ab", "cd"), reason="timeout", host="a.example")
    assert which.fits(letter("abc"))
    assert which.fits(letter("cd0"))
    assert not which.fits(letter("b"))
    assert not which.fits(letter("abc", reason="dns"))
    assert not which.fits(letter("abc", host="b.example"))
    assert Filter().fits(letter("x"))


def test_acts_on_everything_must_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="--all"):
        chosen(Filter(), everything=False)
    with pytest.raises(ConfigError, match="exclude"):
        chosen(Filter(("ab",)), everything=True)
    with pytest.raises(ConfigError, match="--reason"):
        chosen(Filter(reason="tiemout"), everything=False)
    assert chosen(Filter(), everything=True).empty


@pytest.mark.parametrize("empty", [{"ids": ("",)}, {"node": ""}, {"group": ""}, {"host": ""}])
def test_what_is_empty_does_not_mean_all(empty: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="empty"):
        Filter(**empty)


def test_an_empty_key_does_not_mean_all_items() -> None:
    with pytest.raises(ConfigError, match="empty"):
        refuse_unclear(["ab", ""], everything=False)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (59, "59 s"),
        (60, "1 m 0 s"),
        (3725, "1 h 2 m"),
        (180_000, "2 d 2 h"),
    ],
)
def test_times_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert show.duration(seconds) == text


def test_tables_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    show.as_table(("NAME", "COUNT"), [("a", 12_345), ("longer", 7)])
    assert capsys.readouterr().out.splitlines() == [
        "NAME     COUNT",
        "a       12 345",
        "longer       7",
    ]


def test_json_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    show.as_json({"path": Path("/x"), "text": "茶"})
    assert json.loads(capsys.readouterr().out) == {"path": "/x", "text": "茶"}


def test_nobody_to_ask_means_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    with pytest.raises(ConfigError, match="--yes"):
        show.agree("Forget all?", yes=False)
    assert show.agree("Forget all?", yes=True)
