"""Items in folders of parts: Parquet and JSON Lines, on disk and in a store of objects."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fsspec
import pyarrow.parquet as pq
import pytest

from orbweb.cli.run import emptying
from orbweb.errors import ConfigError, ItemError
from orbweb.pipelines import parts as module
from orbweb.pipelines.dedup import dedup_file
from orbweb.pipelines.folders import open_folder
from orbweb.pipelines.jsonl import JsonLinesPipeline
from orbweb.pipelines.parquet import ParquetPipeline
from orbweb.pipelines.parts import CsvParts, JsonLinesParts, parts_for


def rows(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    return [{"_key": f"k{number}", "n": number, **more} for number in numbers]


def read(place: Path) -> list[dict[str, Any]]:
    return sorted(pq.read_table(place).to_pylist(), key=lambda row: row["_key"])


@pytest.fixture
def memory() -> Any:
    yield "memory://bucket/shop"
    fsspec.filesystem("memory").store.clear()


def test_a_folder_of_parts_reads_as_one_table(tmp_path: Path) -> None:
    pipeline = ParquetPipeline(str(tmp_path))
    value = {"price": Decimal("1.50"), "id": UUID(int=7), "tags": {"b", "a"}, "deep": {"x": [1]}}
    pipeline.save_items("items", rows(1, **value))
    pipeline.save_items("items", rows(2, 3))
    pipeline.close()
    found = read(tmp_path / "items")
    assert [row["n"] for row in found] == [1, 2, 3]
    assert found[0]["price"] == Decimal("1.50")
    assert (found[0]["id"], found[0]["tags"]) == (str(UUID(int=7)), ["a", "b"])
    assert found[1]["price"] is None
    assert len(list((tmp_path / "items").iterdir())) == 1
    assert pipeline.targets == (f"{tmp_path}/items",)


def test_a_batch_that_is_tried_again_replaces_itself(tmp_path: Path) -> None:
    pipeline = ParquetPipeline(str(tmp_path))
    for _ in range(3):
        pipeline.save_items("items", rows(1, 2))
    assert len(read(tmp_path / "items")) == 2


def test_no_half_part_is_ever_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = ParquetPipeline(str(tmp_path))
    pipeline.save_items("items", rows(1))

    def dies(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("orbweb.pipelines.folders.os.fsync", dies)
    with pytest.raises(OSError, match="no space"):
        pipeline.save_items("items", rows(2))
    assert read(tmp_path / "items") == [{"_key": "k1", "n": 1}]


def test_parts_are_put_together_as_they_gather(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGE_AT", 4)
    pipeline = ParquetPipeline(str(tmp_path))
    for number in range(20):
        pipeline.save_items("items", rows(number))
        assert len(list((tmp_path / "items").iterdir())) <= 4
    assert len(read(tmp_path / "items")) == 20


def test_a_part_that_has_become_large_is_not_read_again(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGE_AT", 4)
    monkeypatch.setattr(module, "WHOLE_BYTES", 100)
    pipeline = JsonLinesParts(memory)
    for number in range(40):
        pipeline.save_items("items", rows(number))
    pipeline.close()
    folder = open_folder(f"{memory}/items")
    contents = [folder.read(name) for name in folder.names()]
    assert len(contents) > 5
    assert max(map(len, contents)) < 300
    assert sum(part.count(b"\n") for part in contents) == 40


def test_a_merge_that_fails_half_way_goes_on_and_loses_nothing(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGE_AT", 4)
    pipeline = JsonLinesParts(memory)
    folder = open_folder(f"{memory}/items")
    remove, calls = type(folder).remove, []

    def fails_at_times(self: Any, name: str) -> None:
        calls.append(name)
        if len(calls) % 2:
            raise OSError("the store of objects is away")
        remove(self, name)

    monkeypatch.setattr(type(folder), "remove", fails_at_times)
    tries = 0
    for number in range(20):
        while True:
            tries += 1
            try:
                pipeline.save_items("items", rows(number))
                break
            except OSError:
                continue
    assert tries > 20
    found = [line for name in folder.names() for line in folder.read(name).splitlines()]
    assert sorted(json.loads(line)["n"] for line in found) == list(range(20))


def test_a_part_that_was_taken_away_is_not_missed(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGE_AT", 4)
    pipeline = JsonLinesParts(memory)
    folder = open_folder(f"{memory}/items")
    for number in range(10):
        pipeline.save_items("items", rows(number))
        if number == 2:
            folder.remove(folder.names()[0])
    pipeline.close()
    (name,) = folder.names()
    assert folder.read(name).count(b"\n") == 9


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, [1, "a"], 2**70, Decimal("NaN")])
def test_a_value_that_cannot_be_written_is_the_items_fault(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ItemError, match="field 'odd'"):
        ParquetPipeline(str(tmp_path)).save_items("items", rows(1, odd=value))


def test_an_empty_dict_is_null(tmp_path: Path) -> None:
    ParquetPipeline(str(tmp_path)).save_items("items", rows(1, odd={}, deep=[{}], more={"a": {}}))
    (row,) = read(tmp_path / "items")
    assert (row["odd"], row["deep"], row["more"]) == (None, [None], {"a": None})


def test_a_value_that_parquet_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ItemError, match="field 'odd' \\(complex\\)"):
        ParquetPipeline(str(tmp_path)).save_items("items", rows(1, odd=1j))


def test_parts_whose_column_changed_its_type_stay_apart(tmp_path: Path) -> None:
    pipeline = ParquetPipeline(str(tmp_path))
    pipeline.save_items("items", [{"_key": "a", "n": 1}])
    pipeline.save_items("items", [{"_key": "b", "n": "one"}])
    pipeline.close()
    assert len(list((tmp_path / "items").iterdir())) == 2
    assert dedup_file(tmp_path / "items") == (2, 0)


@pytest.mark.parametrize("kind", [ParquetPipeline, JsonLinesParts, CsvParts])
def test_rows_of_two_processes_fold_by_their_key(memory: str, kind: Any) -> None:
    kind(memory).save_items("items", rows(1, 2))
    kind(memory).save_items("items", rows(2, 3))
    assert len(open_folder(f"{memory}/items").names()) == 2
    assert dedup_file(f"{memory}/items") == (3, 1)
    assert dedup_file(f"{memory}/items") == (3, 0)
    assert len(open_folder(f"{memory}/items").names()) == 1


def test_json_lines_at_a_url(tmp_path: Path) -> None:
    pipeline = JsonLinesParts(f"file://{tmp_path}/out")
    pipeline.save_items("items", rows(1, 2))
    pipeline.save_items("items", rows(3))
    pipeline.close()
    (part,) = (tmp_path / "out" / "items").iterdir()
    assert [json.loads(line)["n"] for line in part.read_text().splitlines()] == [1, 2, 3]


def test_csv_at_a_url_has_a_header_in_each_part(tmp_path: Path) -> None:
    pipeline = CsvParts(f"file://{tmp_path}/out")
    pipeline.save_items("items", rows(1, text='a, "b"\nc'))
    pipeline.save_items("items", rows(2, text=None))
    pipeline.close()
    (part,) = (tmp_path / "out" / "items").iterdir()
    assert part.read_bytes() == b'_key,n,text\r\nk1,1,"a, ""b""\nc"\r\nk2,2,\r\n'


def test_csv_parts_with_other_columns_stay_apart_and_fold_by_their_key(tmp_path: Path) -> None:
    pipeline = CsvParts(str(tmp_path))
    pipeline.save_items("items", rows(1, 2))
    pipeline.save_items("items", rows(2, 3, price=1))
    pipeline.close()
    assert len(list((tmp_path / "items").iterdir())) == 2
    assert dedup_file(tmp_path / "items") == (3, 1)
    assert dedup_file(tmp_path / "items") == (3, 0)
    headers = sorted(part.read_text().partition("\n")[0] for part in (tmp_path / "items").iterdir())
    assert headers == ["_key,n", "_key,n,price"]


def test_all_tables_go_to_the_one_folder_of_dash_o(memory: str) -> None:
    settings = {"OUTPUT_FILE": f"{memory}.parquet", "OUTPUT_DIR": ""}
    pipeline = ParquetPipeline.from_settings(settings)
    pipeline.save_items("a", rows(1))
    pipeline.save_items("b", rows(2))
    names = open_folder(f"{memory}.parquet").names()
    assert sorted(name.partition("-")[0] for name in names) == ["a", "b"]
    emptying(f"{memory}.parquet")()
    assert open_folder(f"{memory}.parquet").names() == []


def test_which_targets_are_folders_of_parts() -> None:
    assert parts_for("items.jsonl") is None
    assert parts_for("items.parquet") == "orbweb.pipelines.parquet.ParquetPipeline"
    assert parts_for("s3://b/x.jsonl") == "orbweb.pipelines.parts.JsonLinesParts"
    assert parts_for("s3://b/x.csv") == "orbweb.pipelines.parts.CsvParts"
    with pytest.raises(ConfigError, match=r"\.jsonl, \.csv and \.parquet at a URL"):
        parts_for("s3://b/x.xml")


def test_a_pipeline_that_appends_refuses_a_url() -> None:
    with pytest.raises(ConfigError, match="JsonLinesParts"):
        JsonLinesPipeline.from_settings({"OUTPUT_DIR": "s3://bucket/x"})


def test_an_unknown_kind_of_url_is_an_error() -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        open_folder("nosuch://bucket/x")


def test_a_place_that_cannot_be_had_is_an_error_at_the_start() -> None:
    for settings in (
        {"OUTPUT_FILE": "nosuch://bucket/x.jsonl", "OUTPUT_DIR": ""},
        {"OUTPUT_FILE": "", "OUTPUT_DIR": "nosuch://bucket"},
    ):
        with pytest.raises(ConfigError, match="nosuch"):
            JsonLinesParts.from_settings(settings)
