"""One file for all items, and how a new run empties it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbweb.errors import ConfigError
from orbweb.pipelines.onefile import (
    CsvFile,
    JsonLinesFile,
    empty_unchanged,
    mark,
    pipeline_for,
)


def test_all_tables_go_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "all.jsonl"
    pipeline = JsonLinesFile(file)
    assert pipeline.save_items("a", [{"x": 1}])
    assert pipeline.save_items("b/c", [{"y": 2}])
    assert [json.loads(row) for row in file.read_text().splitlines()] == [{"x": 1}, {"y": 2}]
    assert pipeline.targets == (str(file),)


def test_tables_of_other_columns_widen_the_csv_file(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    pipeline = CsvFile(file)
    pipeline.save_items("a", [{"x": 1}])
    pipeline.save_items("b", [{"y": 2}])
    assert file.read_text().splitlines() == ["x,y", "1,", ",2"]


def test_the_file_comes_from_the_settings() -> None:
    with pytest.raises(ConfigError, match="OUTPUT_FILE"):
        JsonLinesFile.from_settings({"OUTPUT_FILE": ""})
    pipeline = CsvFile.from_settings({"OUTPUT_FILE": "/x/y.csv"})
    assert pipeline.path_of("any") == Path("/x/y.csv")


def test_the_extension_chooses_the_pipeline() -> None:
    assert pipeline_for(Path("a.JSONL")).endswith(".JsonLinesFile")
    assert pipeline_for(Path("a.csv")).endswith(".CsvFile")


def test_a_file_that_nobody_wrote_to_is_emptied(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("old\n")
    before = mark(file)
    assert empty_unchanged(file, before)
    assert file.read_text() == ""


def test_a_file_with_rows_of_the_new_run_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("old\n")
    before = mark(file)
    JsonLinesFile(file).save_items("t", [{"x": 1}])
    assert not empty_unchanged(file, before)
    assert '{"x":1}' in file.read_text()


def test_a_file_that_was_not_there_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    before = mark(file)
    assert empty_unchanged(file, before)
    JsonLinesFile(file).save_items("t", [{"x": 1}])
    assert empty_unchanged(file, before)
    assert file.read_text() == '{"x":1}\n'
