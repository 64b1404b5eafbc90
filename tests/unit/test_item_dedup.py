"""`orbweb items dedup`: second copies and half rows go, everything else stays as it is."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from orbweb.errors import ConfigError
from orbweb.pipelines.csv import CsvPipeline
from orbweb.pipelines.dedup import dedup_file
from orbweb.pipelines.jsonl import JsonLinesPipeline


def test_the_first_row_of_each_key_stays_in_its_place(tmp_path: Path):
    pipeline = JsonLinesPipeline(tmp_path)
    keys = [f"k{random.Random(1).randrange(50)}" for _ in range(5)] + [
        f"k{n % 40}" for n in range(200)
    ]
    pipeline.save_items("t", [{"n": n, "_key": key} for n, key in enumerate(keys)])
    expected = [n for n, key in enumerate(keys) if keys.index(key) == n]
    assert dedup_file(tmp_path / "t.jsonl") == (len(expected), len(keys) - len(expected))
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [row["n"] for row in rows] == expected
    assert dedup_file(tmp_path / "t.jsonl") == (len(expected), 0)
    assert os.listdir(tmp_path) == ["t.jsonl"]


def test_half_rows_go_and_rows_without_a_key_stay(tmp_path: Path):
    file = tmp_path / "t.jsonl"
    lines = ['{"_key":"a"}', '{"_key":"b","x"', '{"x":1}', '{"x":1}', "", '{"_key":null}', "[1]"]
    file.write_text("\n".join([*lines, '{"_key": "a", "again": 1}', '{"_key":"c"}', '{"_ke']))
    assert dedup_file(file) == (6, 3)
    kept = ['{"_key":"a"}', '{"x":1}', '{"x":1}', '{"_key":null}', "[1]", '{"_key":"c"}']
    assert file.read_text() == "\n".join(kept) + "\n"


def test_csv_is_folded_by_record_not_by_line(tmp_path: Path):
    pipeline = CsvPipeline(tmp_path)
    rows = [{"a": 'x\n"y",' * 3, "_key": key, "b": "1"} for key in "abacb"]
    pipeline.save_items("t", rows)
    file = tmp_path / "t.csv"
    before = file.read_bytes()
    file.write_bytes(before + b'"half\nof a, row')
    assert dedup_file(file) == (3, 3)
    again = CsvPipeline(tmp_path / "expected")
    again.save_items("t", [rows[0], rows[1], rows[3]])
    assert file.read_bytes() == (tmp_path / "expected" / "t.csv").read_bytes()


def test_bytes_that_are_not_utf8_are_kept_as_they_are(tmp_path: Path):
    file = tmp_path / "t.csv"
    file.write_bytes(b"a,_key\n\xff,1\n\xfe,2\n\xff,1\n")
    assert dedup_file(file) == (2, 1)
    assert file.read_bytes() == b"a,_key\n\xff,1\n\xfe,2\n"


def test_csv_cells_may_be_large(tmp_path: Path):
    rows = [{"html": "x" * 300_000, "_key": key} for key in "aab"]
    CsvPipeline(tmp_path).save_items("t", rows)
    assert dedup_file(tmp_path / "t.csv") == (2, 1)


def test_a_writer_goes_on_in_the_folded_file(tmp_path: Path):
    for pipeline, name in (
        (JsonLinesPipeline(tmp_path), "t.jsonl"),
        (CsvPipeline(tmp_path), "t.csv"),
    ):
        pipeline.save_items("t", [{"_key": "a"}, {"_key": "a"}])
        assert dedup_file(tmp_path / name) == (1, 1)
        pipeline.save_items("t", [{"_key": "b"}])
        assert dedup_file(tmp_path / name) == (2, 0)


def test_what_cannot_be_folded_is_said_and_left_alone(tmp_path: Path):
    with pytest.raises(ConfigError, match="there is no file"):
        dedup_file(tmp_path / "t.jsonl")
    other = tmp_path / "t.json"
    other.write_text("[]")
    with pytest.raises(ConfigError, match=r"only \.jsonl and \.csv"):
        dedup_file(other)
    foreign = tmp_path / "t.csv"
    foreign.write_text("a,b\n1,2\n1,2\n")
    with pytest.raises(ConfigError, match="no column '_key'"):
        dedup_file(foreign)
    assert foreign.read_text() == "a,b\n1,2\n1,2\n"
    assert sorted(os.listdir(tmp_path)) == ["t.csv", "t.json"]


def test_an_empty_file_stays_empty_and_keeps_its_mode(tmp_path: Path):
    for name in ("t.jsonl", "t.csv"):
        file = tmp_path / name
        file.touch()
        file.chmod(0o600)
        assert dedup_file(file) == (0, 0)
        assert file.stat().st_mode & 0o777 == 0o600
