"""The origin log as judge: what it counts must be what the site was asked."""

from __future__ import annotations

from pathlib import Path

from orbweb.testing.origin import Hit, OriginLog, OriginWriter


def hit(t: float, end: float, path: str = "/", host: str = "a", status: int = 200) -> Hit:
    return Hit(t=t, end=end, host=host, method="GET", path=path, status=status)


def test_what_was_written_is_read_in_the_order_of_arrival(tmp_path: Path):
    file = tmp_path / "logs" / "origin.jsonl"
    first, second = OriginWriter(file), OriginWriter(file)
    first.write(hit(2, 3, "/late?q=ä"))
    second.write(hit(1, 4, "/early"))
    first.close()
    second.close()
    assert [h.path for h in OriginLog.read(file)] == ["/early", "/late?q=ä"]


def test_half_a_line_and_a_missing_file_are_no_error(tmp_path: Path):
    file = tmp_path / "origin.jsonl"
    assert len(OriginLog.read(file)) == 0
    writer = OriginWriter(file)
    writer.write(hit(1, 2))
    writer.close()
    with file.open("a") as stream:
        stream.write('{"t": 3, "en')
    assert OriginLog.read(file).hits == (hit(1, 2),)


def test_repeats_and_counts_tell_paths_apart_by_their_query():
    log = OriginLog(tuple(hit(n, n, path) for n, path in enumerate(["/x?a=1", "/x?a=2", "/x?a=1"])))
    assert log.counts() == {"/x?a=1": 2, "/x?a=2": 1}
    assert log.repeats() == 1


def test_under_takes_a_folder_and_not_what_only_begins_alike():
    log = OriginLog(tuple(hit(n, n, p) for n, p in enumerate(["/p", "/p?x=1", "/p/1", "/pp", "/"])))
    assert [h.path for h in log.under("/p")] == ["/p", "/p?x=1", "/p/1"]


def test_most_at_once_counts_overlap_for_each_host():
    log = OriginLog((hit(0, 10), hit(1, 2), hit(2, 3), hit(4, 9), hit(5, 6), hit(0, 10, host="b")))
    assert log.most_at_once() == {"a": 3, "b": 1}


def test_the_shortest_gap_is_between_arrivals_on_one_host():
    log = OriginLog((hit(0, 9), hit(1.5, 9, host="b"), hit(3, 9), hit(4, 9), hit(9, 9)))
    assert log.shortest_gap_seconds() == {"a": 1}
