"""Two runs side by side: rows, limits, names of runs, files of items, code versions."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from orbweb.cli.diff_items import diff_items, files_of
from orbweb.cli.run_names import Known, RunRef, find_run, read_refs
from orbweb.errors import ConfigError
from orbweb.monitor.code_version import commit_of, file_version
from orbweb.monitor.crawl_line import CrawlLine
from orbweb.monitor.diff_limits import parse_limit
from orbweb.monitor.quality import Tally
from orbweb.monitor.run_diff import Row, Side, compare, differing
from orbweb.monitor.run_record import (
    MOST_HOSTS,
    OTHERS,
    Code,
    PageTally,
    RunFigures,
    RunMade,
    read_as,
    total_pages,
    written,
)

DAY_MS = 86_400_000


def tally(*rows: dict[str, object]) -> Tally:
    made = Tally(checked=len(rows))
    for row in rows:
        made.see("items", row)
    return made


def line(
    host: str = "a.example", kind: str = "done", status: int = 200, items: int = 0
) -> CrawlLine:
    reason = "done" if kind == "done" else "timeout"
    return CrawlLine(
        "2026-11-30T22:31:07.123Z", "Shop", "1", "n", kind, reason, "id", f"http://{host}/",
        host=host, status=status, items=items,
    )  # fmt: skip


def side(label: str, **more: object) -> Side:
    pages = PageTally()
    pages.see(line(items=1))
    known: dict[str, object] = {
        "made": RunMade(
            label, "Shop", "0.1", Code("shop.py", "aa", "c1"), {"DOWNLOAD_DELAY": "0.5"}
        ),
        "figures": RunFigures("done", pages=100, items=100, started_at_ms=1000, ended_at_ms=4000),
        "items": tally({"price": 1}),
        "pages": pages,
    }
    return Side(label, label, label, **{**known, **more})  # type: ignore[arg-type]


def row(rows: list[Row], name: str) -> Row:
    (found,) = (each for each in rows if each.name == name)
    return found


def test_two_runs_that_are_alike_have_no_row_that_differs() -> None:
    assert differing(compare(side("a"), side("b"))) == []


def test_fewer_items_and_more_missing_values_are_marked() -> None:
    worse = side(
        "b",
        figures=RunFigures("done", pages=100, items=61, reasons={"timeout": 2}),
        items=tally({"price": 1}, {"price": None}),
    )
    rows = compare(side("a"), worse)
    assert (row(rows, "items").change, row(rows, "items").marked) == (-39, True)
    assert (row(rows, "missing(items.price)").after, row(rows, "missing(items.price)").marked) == (
        0.5,
        True,
    )
    assert row(rows, "timeout").after == 2
    assert not row(rows, "pages").marked


def test_settings_are_compared_with_the_default_where_one_run_has_none() -> None:
    made = RunMade("b", "Shop", "0.1", Code("shop.py", "bb", "c1"), {"X_PAGES": "3"})
    rows = compare(side("a"), side("b", made=made))
    delay = row(rows, "DOWNLOAD_DELAY")
    assert (delay.before, delay.after, delay.marked) == ("0.5", "0.0", True)
    assert (row(rows, "X_PAGES").before, row(rows, "X_PAGES").after) == ("", "3")
    assert row(rows, "digest").marked


@pytest.mark.parametrize("name", ["made", "figures", "items", "pages"])
def test_what_is_not_stored_is_said_and_not_compared(name: str) -> None:
    rows = compare(side("old", **{name: None}), side("new"))
    (gap,) = (each for each in rows if each.missing)
    assert gap.missing.startswith("not stored of old: ")
    assert (gap.change, gap.differs) == (None, False) or name == "figures"


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("items<-10%", True),
        ("items<-50%", False),
        ("items<-38", True),
        ("items<-39", False),
        ("missing(price)>2%", True),
        ("missing(items.price)>60%", False),
        ("timeout>0", True),
        ("timeout>2", False),
        ("timeout>1000%", True),
        ("dns>0", False),
    ],
)
def test_a_limit_is_passed_when_the_change_is_beyond_it(text: str, passed: bool) -> None:
    worse = side(
        "b",
        figures=RunFigures("done", pages=100, items=61, reasons={"timeout": 2}),
        items=tally({"price": 1}, {"price": None}),
    )
    failure = parse_limit(text).failure(compare(side("a"), worse))
    assert (failure is not None) is passed


@pytest.mark.parametrize(
    ("text", "name"), [("items>0", "figures"), ("missing(price)>2%", "items"), ("5xx>0", "pages")]
)
def test_what_cannot_be_compared_keeps_no_limit(text: str, name: str) -> None:
    rows = compare(side("old", **{name: None}), side("new"))
    assert "not stored of old" in str(parse_limit(text).failure(rows))


@pytest.mark.parametrize(
    ("text", "hint"),
    [("itemz<-10%", "did you mean items"), ("timeouts>0", "did you mean timeout"), ("q>0", "5xx")],
)
def test_a_limit_on_what_is_no_row_is_refused(text: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        parse_limit(text)


@pytest.mark.parametrize("text", ["items", "items=3", "<3", "items<", "items<ten"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--fail-on"):
        parse_limit(text)


def test_outcomes_are_counted_by_host_and_status_and_add_up() -> None:
    one, two = PageTally(), PageTally()
    one.see(line(items=2))
    one.see(line(kind="retry", status=503))
    two.see(line(kind="failed", status=503))
    two.see(line(kind="skipped", status=0))
    whole = total_pages([written(one), written(two), b"of another version"])
    assert whole.classes == {"2xx": 1, "5xx": 2}
    host = whole.hosts["a.example"]
    assert (host.pages, host.items, host.failed) == (1, 2, 1)


def test_hosts_beyond_the_most_are_counted_together() -> None:
    pages = PageTally()
    for number in range(MOST_HOSTS + 5):
        pages.see(line(host=f"h{number}.example"))
    assert len(pages.hosts) == MOST_HOSTS + 1
    assert pages.hosts[OTHERS].pages == 5


def test_a_record_of_another_version_is_none() -> None:
    assert read_as(RunMade, b"{}") is None
    assert read_as(RunMade, written(RunMade("1", "Shop", "0.1"))) == RunMade("1", "Shop", "0.1")


NOW = time.mktime((2026, 12, 1, 9, 0, 0, 0, 0, -1))
KNOWN = [
    Known("Shop", run, epoch, int(NOW * 1000) - ago * DAY_MS)
    for run, epoch, ago in (("r4", "e4", 0), ("r3", "e3", 1), ("", "f2", 2), ("r1", "f1", 2))
]


@pytest.mark.parametrize(
    ("which", "epoch"),
    [("last", "e4"), ("previous", "e3"), ("today", "e4"), ("yesterday", "e3"), ("r1", "f1"),
     ("", "f2"), ("e3", "e3")],
)  # fmt: skip
def test_a_run_is_named_by_its_id_or_by_its_place(which: str, epoch: str) -> None:
    assert find_run(RunRef("Shop", which), KNOWN, now=lambda: NOW).epoch == epoch


@pytest.mark.parametrize("which", ["r9", "f", "e"])
def test_a_run_that_is_not_there_lists_those_that_are(which: str) -> None:
    with pytest.raises(ConfigError, match="r4, r3, f2, r1"):
        find_run(RunRef("Shop", which), KNOWN, now=lambda: NOW)


def test_a_job_alone_means_its_last_two_runs() -> None:
    assert read_refs("Shop", None) == (RunRef("Shop", "previous"), RunRef("Shop", "last"))
    assert read_refs("Shop@r1", "Shop") == (RunRef("Shop", "r1"), RunRef("Shop", "last"))
    with pytest.raises(ConfigError, match="Shop@last"):
        read_refs("Shop@r1", None)


def rows_file(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_rows_are_new_gone_or_changed_by_their_key(tmp_path: Path) -> None:
    old = rows_file(
        tmp_path / "old.jsonl",
        {"url": "/1", "price": 1, "_key": "a"},
        {"url": "/2", "price": 2, "_key": "b"},
        {"url": "/3", "price": 3, "_key": "c"},
    )
    new = tmp_path / "new.csv"
    new.write_text("url,price,_key\n/1,1,d\n/2,5,e\n/4,4,f\n")
    found = diff_items((old, new), ())
    assert found.key == ("url",)
    assert (found.new, found.gone, found.changed) == ([("/4",)], [("/3",)], [("/2",)])
    assert found.fields == {"price": 1}
    assert [each.after for each in found.rows] == [1, 1, 1]


def test_rows_that_nothing_tells_apart_are_not_compared(tmp_path: Path) -> None:
    old = rows_file(tmp_path / "old.jsonl", {"name": "a"}, {"name": "a"})
    found = diff_items((old, old), ())
    assert "--key" in found.missing
    assert [each.missing for each in found.rows] == [found.missing]
    with pytest.raises(ConfigError, match="no field sku"):
        diff_items((old, old), ("sku",))


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    old = rows_file(tmp_path / "old.jsonl", {"url": "/1"})
    new = tmp_path / "new.jsonl"
    new.write_text('{"url": "/1"}\n{"url": "/2')
    assert diff_items((old, new), ("url",)).new == []


def test_files_of_items_are_those_that_the_runs_wrote(tmp_path: Path) -> None:
    old, new = (rows_file(tmp_path / name) for name in ("old.jsonl", "new.jsonl"))
    assert files_of([[str(old)], [str(new)]]) == ((old, new), "")
    assert "rows do not tell their run" in files_of([[str(old)], [str(old)]])[1]
    assert "gone.jsonl is not here" in files_of([[str(old)], [str(tmp_path / "gone.jsonl")]])[1]
    assert "no .jsonl or .csv" in files_of([["mysql://db"], [str(new)]])[1]


COMMIT = "0123456789abcdef" * 2 + "01234567"


def test_the_commit_is_read_from_a_checkout_a_work_tree_and_packed_refs(tmp_path: Path) -> None:
    git = tmp_path / "one" / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs/heads/main").write_text(f"{COMMIT}\n")
    (tmp_path / "one/spiders").mkdir()
    assert commit_of(tmp_path / "one/spiders") == COMMIT[:12]
    tree = git / "worktrees/two"
    tree.mkdir(parents=True)
    (tree / "HEAD").write_text("ref: refs/heads/side\n")
    (tree / "commondir").write_text("../..\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{COMMIT[::-1]} refs/heads/side\n")
    (tmp_path / "two").mkdir()
    (tmp_path / "two/.git").write_text(f"gitdir: {tree}\n")
    assert commit_of(tmp_path / "two") == COMMIT[::-1][:12]
    (git / "HEAD").write_text(COMMIT)
    assert commit_of(tmp_path / "one") == COMMIT[:12]


def test_no_git_and_no_file_are_no_version(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert commit_of(tmp_path) == ""
    assert file_version(tmp_path / "none.py") == ""
    (tmp_path / "a.py").write_text("x = 1\n")
    assert len(file_version(tmp_path / "a.py")) == 12
