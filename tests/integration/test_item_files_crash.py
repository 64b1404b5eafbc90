"""Files of items under several writers at once, killed writers and a full disk."""

from __future__ import annotations

import csv
import json
import os
import random
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbweb.pipelines.csv import CsvPipeline
from orbweb.pipelines.dedup import dedup_file
from orbweb.pipelines.files import locked
from orbweb.pipelines.jsonl import JsonLinesPipeline

WRITER = """
import os, resource, signal, sys
from orbweb.pipelines.{module} import {kind}

directory, name, batches, rows, size, limit, killed = sys.argv[1:]
if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
if killed == "killed":
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
pipeline = {kind}(directory)
sys.stdout.write("ready\\n")
sys.stdout.flush()
for batch in range(int(batches)):
    keys = [f"{{name}}-{{batch}}-{{row}}" for row in range(int(rows))]
    text = 'line "one"\\nline two ' + "x" * int(size)
    try:
        pipeline.save_items("t", [{{"text": text, "_key": key}} for key in keys])
    except OSError as error:
        sys.stdout.write(f"error {{error.errno}}\\n")
        break
    sys.stdout.write("".join(f"stored {{key}}\\n" for key in keys))
    sys.stdout.flush()
"""

Kind = type[JsonLinesPipeline] | type[CsvPipeline]


@pytest.fixture(params=[JsonLinesPipeline, CsvPipeline], ids=["jsonl", "csv"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


def start(
    kind: Kind,
    directory: Path,
    name: str,
    *,
    batches: int,
    rows: int,
    size: int = 10,
    limit: int = 0,
    killed: bool = False,
) -> subprocess.Popen[str]:
    code = WRITER.format(module=kind.__module__.rpartition(".")[2], kind=kind.__name__)
    arguments = [directory, name, batches, rows, size, limit, "killed" if killed else "told"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def stored(process: subprocess.Popen[str]) -> list[str]:
    """The keys that a writer, which has ended, said to be stored."""
    assert process.stdout is not None
    with process.stdout as output:  # not communicate(): it forgets what readline() read ahead
        lines = output.read().split("\n")[:-1]
    process.wait()
    return [line.removeprefix("stored ") for line in lines if line.startswith("stored ")]


def file_of(kind: Kind, directory: Path) -> Path:
    return directory / ("t.jsonl" if kind is JsonLinesPipeline else "t.csv")


def keys_in(path: Path) -> Iterator[str]:
    """The keys in a file that must be without any fault."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            for row in csv.DictReader(file, strict=True):
                assert list(row) == ["text", "_key"]
                assert row["text"].startswith('line "one"\nline two x')
                yield row["_key"]
        else:
            for line in file:
                assert line.endswith("\n")
                yield json.loads(line)["_key"]


def test_processes_that_append_at_once_do_not_disturb_each_other(kind: Kind, tmp_path: Path):
    writers = [start(kind, tmp_path, name, batches=40, rows=25, size=300) for name in "abc"]
    said = [key for writer in writers for key in stored(writer)]
    assert Counter(keys_in(file_of(kind, tmp_path))) == Counter(said)
    assert len(said) == 3 * 40 * 25
    assert os.listdir(tmp_path) == [file_of(kind, tmp_path).name]


def test_a_writer_waits_for_the_lock_and_then_writes_to_the_file_of_that_name(
    kind: Kind, tmp_path: Path
):
    path = file_of(kind, tmp_path)
    stored(start(kind, tmp_path, "first", batches=1, rows=1))
    with locked(path):
        writer = start(kind, tmp_path, "second", batches=1, rows=1)
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(0.3)
        path.rename(tmp_path / "old")
    assert stored(writer) == ["second-0-0"]
    assert list(keys_in(path)) == ["second-0-0"]


def test_a_writer_that_dies_within_a_write_leaves_half_a_row_that_nobody_trips_over(
    kind: Kind, tmp_path: Path
):
    """The size limit ends the process by a signal, with the write cut short at that byte."""
    path = file_of(kind, tmp_path)
    said: list[str] = []
    for limit in (150_000, 300_001, 450_002):
        victim = start(kind, tmp_path, f"v{limit}", batches=99, rows=100, limit=limit, killed=True)
        said += stored(victim)
        assert victim.returncode == -signal.SIGXFSZ
        assert path.stat().st_size == limit
    stored(start(kind, tmp_path, "next", batches=1, rows=1))
    found = list(keys_in(path))
    assert len(said) > 3 * 100
    assert set(said) <= set(found)
    assert found[-1] == "next-0-0"


def test_dedup_takes_away_what_a_killed_writer_left(kind: Kind, tmp_path: Path):
    victim = start(kind, tmp_path, "a", batches=99, rows=100, limit=100_000, killed=True)
    said = stored(victim)
    repeated = start(kind, tmp_path, "a", batches=len(said) // 100 + 1, rows=100)
    assert set(stored(repeated)) >= set(said)
    victim = start(kind, tmp_path, "b", batches=999, rows=100, limit=400_000, killed=True)
    said += stored(victim)
    kept, removed = dedup_file(file_of(kind, tmp_path))
    found = list(keys_in(file_of(kind, tmp_path)))
    assert len(found) == len(set(found)) == kept
    assert set(said) <= set(found)
    assert removed > 100


def test_a_full_disk_leaves_the_file_as_it_was(kind: Kind, tmp_path: Path):
    stored(start(kind, tmp_path, "before", batches=1, rows=10))
    path = file_of(kind, tmp_path)
    before = path.read_bytes()
    full = start(kind, tmp_path, "full", batches=9, rows=100, size=1000, limit=len(before) + 5000)
    assert stored(full) == []
    assert full.returncode == 0
    assert path.read_bytes() == before


def test_writers_killed_at_random_lose_nothing_that_was_stored(kind: Kind, tmp_path: Path):
    rng = random.Random(4)
    said: list[str] = []
    for round_number in range(6):
        pair = [
            start(kind, tmp_path, f"{name}{round_number}", batches=10_000, rows=200, size=2000)
            for name in "ab"
        ]
        victim = pair[0]
        assert victim.stdout is not None
        assert select.select([victim.stdout], [], [], 30)[0], "no batch was stored in 30 s"
        try:
            victim.wait(rng.uniform(0, 0.05))
        except subprocess.TimeoutExpired:
            for process in pair:
                process.kill()
        for process in pair:
            said += stored(process)
            assert process.returncode == -signal.SIGKILL
    stored(start(kind, tmp_path, "last", batches=1, rows=1))
    found = set(keys_in(file_of(kind, tmp_path)))
    assert set(said) <= found
    assert len(said) >= 6 * 200
