"""The crawl log on disk: what is written, packed, kept, found again, and lost."""

from __future__ import annotations

import errno
import io
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from backports import zstd

from orbweb.monitor import log_writer
from orbweb.monitor.crawl_line import CrawlLine, decode_line, encode_line, time_ms, time_text
from orbweb.monitor.log_folder import Keeping, LogFolder
from orbweb.monitor.log_pack import PackedLog, pack
from orbweb.monitor.log_reader import LineFilter, LogReader
from orbweb.monitor.log_writer import CrawlLogWriter

START_MS = 1_700_000_000_000


def line(number: int, **fields: object) -> CrawlLine:
    given = {
        "time": time_text(START_MS + number),
        "job": "Shop",
        "run": "",
        "node": "node-a",
        "kind": "done",
        "reason": "done",
        "id": f"{number:016x}",
        "url": f"http://shop.test/p/{number}",
        "host": "shop.test",
        "status": 200,
    }
    return CrawlLine(**{**given, **fields})  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "log")


@pytest.fixture
def reader(folder: LogFolder) -> LogReader:
    return LogReader(folder)


def written(folder: LogFolder, lines: list[CrawlLine], node: str = "node-a") -> None:
    """Lines in a segment of their own, packed."""
    writer = CrawlLogWriter(folder, "Shop", node)
    writer.start()
    for each in lines:
        writer.write(each)
    writer.close()


def texts_of(folder: LogFolder) -> list[bytes]:
    return [
        text
        for segment in folder.segments()
        for text in zstd.decompress(segment.path.read_bytes()).splitlines()
    ]


def test_a_line_reads_back_as_it_was() -> None:
    given = line(7, to="http://shop.test/q", to_id="00000000000000ff", error="é", wait_ms=3)
    assert decode_line(encode_line(given)) == given


def test_a_url_that_is_no_unicode_does_not_stop_the_log() -> None:
    found = decode_line(encode_line(line(1, url="http://shop.test/\ud800")))
    assert found is not None
    assert found.url == "http://shop.test/\\ud800"


def test_half_a_line_is_no_line() -> None:
    assert decode_line(encode_line(line(1))[:40]) is None


def test_times_sort_as_text_and_read_back() -> None:
    times = sorted(random.Random(3).sample(range(10**12, 2 * 10**12), 100))
    texts = [time_text(at) for at in times]
    assert texts == sorted(texts)
    assert [time_ms(text) for text in texts] == times


def test_a_closed_log_is_one_packed_file_that_any_zstd_reads(folder: LogFolder) -> None:
    written(folder, [line(n) for n in range(3)])
    assert [segment.packed for segment in folder.segments()] == [True]
    assert [decode_line(text) for text in texts_of(folder)] == [line(n) for n in range(3)]
    assert list(folder.path.glob("*.jsonl")) == []


def test_a_log_without_lines_leaves_no_file(folder: LogFolder) -> None:
    written(folder, [])
    assert not folder.path.exists()


def test_the_index_finds_every_line_of_every_id_and_no_other(tmp_path: Path) -> None:
    rng = random.Random(5)
    lines = [line(n, id=f"{rng.randrange(4000):016x}", error="x" * 200) for n in range(6000)]
    source, target = tmp_path / "a.jsonl", tmp_path / "a.jsonl.zst"
    source.write_bytes(b"".join(map(encode_line, lines)))
    pack(source, target)
    with PackedLog(target) as packed:
        for number in (*range(0, 4000, 97), 4001):
            key = f"{number:016x}"
            found = [decode_line(t) for f in packed.frames_of(key) for t in packed.frame(f)]
            mine = [each for each in found if each and each.id == key]
            assert mine == [each for each in lines if each.id == key]
        assert packed.frames_of(f"{4001:016x}") == []
        assert len(packed.frames_of(lines[0].id)) < 8  # it is not searched as a whole


def test_requests_of_tasks_have_longer_ids_and_are_found(
    folder: LogFolder, reader: LogReader
) -> None:
    one, other = "7f.00000000000000aa", "80.00000000000000aa"
    written(folder, [line(1, id=one, page="00000000000000aa"), line(2, id=other)])
    assert [each.time for each in reader.find(one)] == [line(1).time]
    assert [each.time for each in reader.find("00000000000000aa")] == [line(1).time]


def test_a_foreign_file_is_refused_and_passed_over(folder: LogFolder, reader: LogReader) -> None:
    written(folder, [line(1)])
    foreign = folder.path / "Shop~20260101T000000000Z~x.jsonl.zst"
    foreign.write_bytes(b"something else, longer than a footer")
    with pytest.raises(ValueError, match="no packed crawl log"):
        PackedLog(foreign)
    assert reader.find(line(1).id) == [line(1)]
    assert list(reader.backwards(LineFilter())) == [line(1)]


def test_what_is_known_of_an_id_is_found_in_live_and_packed_segments(
    folder: LogFolder, reader: LogReader
) -> None:
    wanted = line(0).id
    written(folder, [line(0), line(1)])
    _, file = folder.begin("Shop", "node-b", START_MS)
    retried = line(5, id=wanted, kind="retry", reason="timeout")
    child = line(6, parent=wanted)
    elsewhere = line(7, to="http://shop.test/p/0", to_id=wanted)
    file.write(b"".join(map(encode_line, (retried, child, elsewhere))))
    assert reader.find(wanted) == [line(0), retried, elsewhere]
    assert reader.find(wanted, job="Other") == []
    file.close()


def test_lines_of_several_nodes_come_in_the_order_of_their_time(
    folder: LogFolder, reader: LogReader
) -> None:
    written(folder, [line(n) for n in range(0, 60, 2)], "node-a")
    written(folder, [line(n) for n in range(1, 60, 2)], "node-b")
    found = list(islice(reader.backwards(LineFilter()), 20))
    assert found == [line(n) for n in range(59, 39, -1)]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (LineFilter(), [0, 1, 2, 3]),
        (LineFilter(url="/p/2"), [2]),
        (LineFilter(url="http://*/p/3"), [3]),
        (LineFilter(url="*/p/"), []),
        (LineFilter(host="test"), [0, 2, 3]),
        (LineFilter(host="other.example"), [1]),
        (LineFilter(status="4xx"), [1]),
        (LineFilter(status="200"), [0, 3]),
        (LineFilter(reasons=frozenset({"failed", "timeout"})), [1, 2]),
        (LineFilter(node="node-b"), [3]),
        (LineFilter(job="Other"), []),
        (LineFilter(run="r1"), [0]),
        (LineFilter(since=time_text(START_MS + 2)), [2, 3]),
        (LineFilter(until=time_text(START_MS + 2)), [0, 1]),
    ],
)
def test_lines_are_chosen_by_all_that_is_asked_for(
    folder: LogFolder, reader: LogReader, wanted: LineFilter, numbers: list[int]
) -> None:
    lines = [
        line(0, run="r1"),
        line(1, host="other.example:81", status=404, kind="failed", reason="status_rejected"),
        line(2, status=0, kind="retry", reason="timeout"),
        line(3, node="node-bb"),
    ]
    written(folder, lines)
    assert list(reader.backwards(wanted)) == [lines[n] for n in reversed(numbers)]


def test_a_large_segment_is_packed_and_another_one_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "FLUSH_SECONDS", 0.001)
    size = len(encode_line(line(0)))
    folder = LogFolder(tmp_path, Keeping(segment_bytes=3 * size))
    clock = iter(range(START_MS, START_MS + 10_000))
    writer = CrawlLogWriter(folder, "Shop", "node-a", wall_ms=lambda: next(clock))
    writer.start()
    for number in range(7):
        writer.write(line(number))
        if number % 3 == 2:
            packed = (number + 1) // 3
            wait_until(lambda packed=packed: sum(s.packed for s in folder.segments()) == packed)
    writer.close()
    assert [decode_line(text) for text in texts_of(folder)] == [line(n) for n in range(7)]
    assert len(folder.segments()) == 3


def test_an_old_segment_is_packed_when_the_next_line_comes(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, Keeping(segment_seconds=60))
    now = [START_MS]
    writer = CrawlLogWriter(folder, "Shop", "node-a", wall_ms=lambda: now[0])
    writer.start()
    writer.write(line(1))
    wait_until(lambda: bool(folder.segments()))
    now[0] += 61_000
    writer.write(line(2))
    wait_until(lambda: any(segment.packed for segment in folder.segments()))
    writer.close()
    assert len(texts_of(folder)) == 2


def test_the_oldest_segments_go_when_there_is_too_much(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    for number in range(4):
        written(folder, [line(number)], f"node-{number}")
        time.sleep(0.002)  # names tell milliseconds
    size = folder.segments()[-1].path.stat().st_size
    LogFolder(tmp_path, Keeping(total_bytes=2 * size + 40)).tidy(START_MS)
    kept = [each and each.id for each in map(decode_line, texts_of(folder))]
    assert kept == [line(2).id, line(3).id]


def test_segments_that_are_too_old_go(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, Keeping(total_seconds=3600))
    written(folder, [line(1)], "node-1")
    written(folder, [line(2)], "node-2")
    first = folder.segments()[0].path
    os.utime(first, (0, START_MS / 1000 - 3700))
    os.utime(folder.segments()[1].path, (0, START_MS / 1000 - 3500))
    folder.tidy(START_MS)
    assert not first.exists()
    assert len(folder.segments()) == 1


def test_what_a_dead_node_has_left_is_packed_by_another(folder: LogFolder) -> None:
    path, file = folder.begin("Shop", "dead", START_MS)
    file.write(encode_line(line(1)) + encode_line(line(2))[:30])
    folder.tidy(START_MS)
    assert path.exists(), "its writer lives: it holds the lock"
    file.close()
    folder.tidy(START_MS)
    assert not path.exists()
    assert [segment.packed for segment in folder.segments()] == [True]


def test_a_full_disk_costs_lines_and_is_said_once(
    folder: LogFolder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "FLUSH_SECONDS", 0.001)
    disk = FullDisk(folder, room=1500)
    writer = CrawlLogWriter(disk, "Shop", "node-a")
    with heard(caplog):
        writer.start()
        for number in range(3):
            writer.write(line(number))
        wait_until(lambda: disk.written > 0)
        for number in range(3, 60):
            writer.write(line(number))
        wait_until(lambda: writer.lost > 0)
        disk.room = 10**6
        writer.write(line(60))
        wait_until(lambda: "written again" in caplog.text)
        writer.close()
    assert caplog.text.count("cannot be written") == 1
    assert f"{writer.lost} lines were lost" in caplog.text
    kept = [decode_line(text) for text in texts_of(folder)]
    assert None not in kept, "half a line stayed"
    assert len(kept) + writer.lost == 61
    assert kept[-1] == line(60)


def test_a_folder_that_cannot_be_made_costs_lines_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    writer = CrawlLogWriter(LogFolder(tmp_path / "file" / "log"), "Shop", "node-a")
    with heard(caplog):
        writer.start()
        writer.write(line(1))
        writer.close()
    assert writer.lost == 1
    assert "1 lines of the crawl log were lost" in caplog.text


def test_lines_that_come_faster_than_the_disk_are_counted(
    folder: LogFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_writer, "MOST_WAITING", 5)
    writer = CrawlLogWriter(folder, "Shop", "node-a")
    with heard(caplog):
        for number in range(8):
            writer.write(line(number))
    assert writer.lost == 3
    assert caplog.text.count("as fast as it grows") == 1
    writer.start()
    writer.close()
    assert len(texts_of(folder)) == 5


def test_following_gives_new_lines_of_old_and_new_segments(
    folder: LogFolder, reader: LogReader
) -> None:
    path, file = folder.begin("Shop", "node-a", START_MS)
    _, second = folder.begin("Shop", "node-b", START_MS + 1)
    file.write(encode_line(line(1)))
    steps = iter(
        [
            lambda: file.write(encode_line(line(2))[:20]),
            lambda: file.write(encode_line(line(2))[20:] + encode_line(line(3, job="Other"))),
            lambda: (file.write(encode_line(line(4))), folder.pack(path)),
            lambda: second.write(encode_line(line(5))),
            lambda: written(folder, [line(6)], "node-c"),
        ]
    )
    following = reader.follow(LineFilter(job="Shop"), pause=lambda _: next(steps)())
    assert [each.id for each in islice(following, 4)] == [line(n).id for n in (2, 4, 5, 6)]
    following.close()
    file.close()
    second.close()


CHILD = """
import sys, time
from pathlib import Path
from orbweb.monitor.crawl_line import CrawlLine, time_text
from orbweb.monitor.log_folder import LogFolder
from orbweb.monitor.log_writer import CrawlLogWriter
writer = CrawlLogWriter(LogFolder(Path(sys.argv[1])), "Shop", "node-a")
writer.start()
number = 0
while True:
    now = int(time.time() * 1000)
    writer.write(CrawlLine(time_text(now), "Shop", "", "n", "done", "done", f"{number:016x}", "u"))
    print(number, now, flush=True)
    number += 1
    time.sleep(0.001)
"""


def test_a_killed_process_loses_only_its_last_moment(folder: LogFolder, reader: LogReader) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder.path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    said = [tuple(map(int, child.stdout.readline().split())) for _ in range(1500)]
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    kept = {each.id for each in reader.backwards(LineFilter())}
    killed_at = said[-1][1]
    surely = [number for number, at in said if at < killed_at - 1500]
    assert surely, "the child was too fast for this test to say anything"
    assert [number for number in surely if f"{number:016x}" not in kept] == []


class FullDisk(LogFolder):
    """A folder on a disk with so much room."""

    def __init__(self, folder: LogFolder, room: int) -> None:
        super().__init__(folder.path)
        self.room = room
        self.written = 0

    def begin(self, job: str, node: str, at_ms: int) -> tuple[Path, io.RawIOBase]:  # type: ignore[override]
        path, file = super().begin(job, node, at_ms)
        return path, _Limited(self, file)


class _Limited(io.RawIOBase):
    def __init__(self, disk: FullDisk, file: object) -> None:
        self._disk = disk
        self._file = file

    def write(self, text: bytes) -> int:  # type: ignore[override]
        room = self._disk.room - self._disk.written
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = self._file.write(text[:room])
        self._disk.written += count
        return count

    def truncate(self, size: int | None = None) -> int:
        self._disk.written = size or 0
        return self._file.truncate(size)

    def close(self) -> None:
        self._file.close()
        super().close()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


class heard:
    """Lets `caplog` hear each line once, whether or not Orbweb's loggers are configured."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def __enter__(self) -> None:
        self._root = logging.getLogger("orbweb")
        self._propagate, self._root.propagate = self._root.propagate, False
        self._root.addHandler(self._caplog.handler)

    def __exit__(self, *_: object) -> None:
        self._root.removeHandler(self._caplog.handler)
        self._root.propagate = self._propagate
