"""JSON Lines and CSV files: what is written, mended and refused."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from orbweb.errors import ConfigError, ItemError
from orbweb.pipelines.base import UpdateUnsupported
from orbweb.pipelines.csv import CsvPipeline
from orbweb.pipelines.jsonl import JsonLinesPipeline


def json_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


KINDS: Any = pytest.mark.parametrize(
    ("kind", "suffix", "read"),
    [(JsonLinesPipeline, "jsonl", json_rows), (CsvPipeline, "csv", csv_rows)],
    ids=["jsonl", "csv"],
)


@KINDS
def test_each_table_has_its_file_and_batches_are_appended(kind, suffix, read, tmp_path: Path):
    pipeline = kind(tmp_path / "new" / "folder")
    assert pipeline.save_items("news", [{"a": "1", "_key": "x"}]) is True
    assert pipeline.save_items("users", [{"b": "2", "_key": "y"}]) is True
    assert pipeline.save_items("news", [{"a": '茶\n"q",\'', "_key": "z"}]) is True
    news = tmp_path / "new" / "folder" / f"news.{suffix}"
    assert read(news) == [{"a": "1", "_key": "x"}, {"a": '茶\n"q",\'', "_key": "z"}]
    assert pipeline.targets == (str(news), str(news.with_name(f"users.{suffix}")))


@KINDS
def test_a_second_pipeline_goes_on_in_the_same_file(kind, suffix, read, tmp_path: Path):
    for n in range(3):
        kind(tmp_path).save_items("t", [{"n": str(n)}])
    assert read(tmp_path / f"t.{suffix}") == [{"n": "0"}, {"n": "1"}, {"n": "2"}]


@KINDS
def test_the_directory_comes_from_the_setting(kind, suffix, read, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind.from_settings({"OUTPUT_DIR": str(tmp_path / "out")}).save_items("t", [{"n": "1"}])
    kind.from_settings({"OUTPUT_DIR": ""}).save_items("t", [{"n": "2"}])
    assert read(tmp_path / "out" / f"t.{suffix}") == [{"n": "1"}]
    assert read(tmp_path / f"t.{suffix}") == [{"n": "2"}]


@KINDS
def test_a_file_that_was_moved_away_is_made_anew(kind, suffix, read, tmp_path: Path):
    pipeline = kind(tmp_path)
    pipeline.save_items("t", [{"n": "1"}])
    file = tmp_path / f"t.{suffix}"
    file.rename(tmp_path / "old")
    pipeline.save_items("t", [{"n": "2"}])
    assert read(file) == [{"n": "2"}]
    assert read(tmp_path / "old") == [{"n": "1"}]


@KINDS
def test_a_batch_that_the_disk_did_not_take_is_not_stored(
    kind, suffix, read, tmp_path: Path, monkeypatch
):
    pipeline = kind(tmp_path)
    pipeline.save_items("t", [{"n": "1"}])

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="the disk is broken"):
            pipeline.save_items("t", [{"n": "2"}])
    assert read(tmp_path / f"t.{suffix}") == [{"n": "1"}]


@KINDS
@pytest.mark.parametrize("table", ["../up", "a/b", ".hidden", "..", "", "x" * 201])
def test_a_table_name_cannot_lead_out_of_the_directory(kind, suffix, read, table, tmp_path: Path):
    with pytest.raises(ItemError, match="cannot be a file name"):
        kind(tmp_path).save_items(table, [{"n": "1"}])
    assert os.listdir(tmp_path) == []


@KINDS
@pytest.mark.parametrize("value", [object(), "\ud800", {"deep": [object()]}])
def test_a_value_without_text_names_its_field_and_nothing_is_written(
    kind, suffix, read, value, tmp_path: Path
):
    with pytest.raises(ItemError, match="field 'bad'"):
        kind(tmp_path).save_items("t", [{"n": "1"}, {"n": "2", "bad": value}])
    assert os.listdir(tmp_path) == []


@KINDS
def test_updates_are_refused_for_good(kind, suffix, read, tmp_path: Path):
    with pytest.raises(UpdateUnsupported, match=kind.__name__):
        kind(tmp_path).update_items("t", [{"n": "1"}], ["n"])


@KINDS
@pytest.mark.parametrize("cut", [1, 3, 9, 15])
def test_half_a_row_at_the_end_is_moved_aside_by_the_next_writer(
    kind, suffix, read, cut, tmp_path: Path, caplog
):
    kind(tmp_path).save_items("t", [{"text": "one", "_key": "1"}])
    kind(tmp_path).save_items("t", [{"text": 'two\nlines "quoted"', "_key": "2"}])
    file = tmp_path / f"t.{suffix}"
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    kind(tmp_path).save_items("t", [{"text": "three", "_key": "3"}])
    keys = [row["_key"] for row in read(file)]
    if suffix == "jsonl" and cut == 1:  # only the line feed is missing: the row is whole
        assert keys == ["1", "2", "3"]
    else:
        assert keys == ["1", "3"]
        assert "torn_row_cut" in caplog.text
        torn = (tmp_path / f"t.{suffix}.torn").read_bytes()
        assert whole.endswith(torn.removesuffix(b"\n") + whole[-cut:])


def test_json_keeps_what_it_can_and_writes_the_rest_as_text(tmp_path: Path):
    row = {
        "when": datetime(2026, 11, 30, 1, 2, 3, tzinfo=UTC),
        "day": date(2026, 11, 30),
        "price": Decimal("1.20"),
        "id": UUID(int=1),
        "raw": b"\x00\xff",
        "nan": math.nan,
        "big": 10**30,
        "nested": {"a": [1, None, True], 2: ("x",)},
    }
    JsonLinesPipeline(tmp_path).save_items("t", [row])
    assert json_rows(tmp_path / "t.jsonl") == [
        {
            "when": "2026-11-30T01:02:03Z",
            "day": "2026-11-30",
            "price": "1.20",
            "id": "00000000-0000-0000-0000-000000000001",
            "raw": "AP8=",
            "nan": None,
            "big": 10**30,
            "nested": {"a": [1, None, True], "2": ["x"]},
        }
    ]


def test_csv_writes_cells_as_text(tmp_path: Path):
    row = {"none": None, "yes": True, "n": 1.5, "day": date(2026, 1, 2), "list": [1, {"a": "é"}]}
    CsvPipeline(tmp_path).save_items("t", [row])
    assert csv_rows(tmp_path / "t.csv") == [
        {"none": "", "yes": "True", "n": "1.5", "day": "2026-01-02", "list": '[1,{"a":"é"}]'}
    ]


def test_csv_takes_rows_with_other_fields_and_widens_the_header_once(tmp_path: Path):
    first, second = CsvPipeline(tmp_path), CsvPipeline(tmp_path)
    first.save_items("t", [{"a": "1"}, {"a": "2", "b": "x\r\ny"}])
    second.save_items("t", [{"c": "3"}])
    first.save_items("t", [{"b": "4"}])
    file = tmp_path / "t.csv"
    assert csv_rows(file) == [
        {"a": "1", "b": "", "c": ""},
        {"a": "2", "b": "x\r\ny", "c": ""},
        {"a": "", "b": "", "c": "3"},
        {"a": "", "b": "4", "c": ""},
    ]
    assert file.read_bytes().count(b"a,b,c\r\n") == 1
    assert os.listdir(tmp_path) == ["t.csv"]


def test_csv_starts_again_after_half_a_header(tmp_path: Path):
    (tmp_path / "t.csv").write_bytes(b"a,_k")
    CsvPipeline(tmp_path).save_items("t", [{"a": "1", "_key": "k"}])
    assert csv_rows(tmp_path / "t.csv") == [{"a": "1", "_key": "k"}]


@pytest.mark.parametrize("pipeline", [JsonLinesPipeline, CsvPipeline])
def test_an_output_folder_that_cannot_be_is_refused_at_the_start(
    pipeline: type[JsonLinesPipeline | CsvPipeline], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="OUTPUT_DIR"):
        pipeline.from_settings({"OUTPUT_DIR": str(tmp_path / "file" / "out")})
