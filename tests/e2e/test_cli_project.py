"""From nothing to a spider that runs: a project, a spider, and what a directory has of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.program import Program

from orbweb.cli import new
from orbweb.testing import shop
from orbweb.testing.site import SiteThread

FAST = ("-s", "SPIDER_RETRY_INTERVAL=0.1", "-s", "SPIDER_MAX_RETRY_TIMES=1")


@pytest.fixture
def site() -> Iterator[SiteThread]:
    with SiteThread() as site:
        yield site


def test_a_new_project_runs_and_its_test_passes(tmp_path: Path, site: SiteThread) -> None:
    said = Program(tmp_path)("new", "shop").stderr
    assert "orbweb run shop -O shop.csv" in said
    program = Program(tmp_path / "shop")
    program("run", "shop", "-a", f"site={site.url}", *FAST, "-O", "shop.csv")
    rows = (tmp_path / "shop/shop.csv").read_text().splitlines()
    assert len(rows) == 1 + shop.PRODUCTS - 1
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "shop",
        env={**os.environ, **program.environment},
        capture_output=True,
        text=True,
    )
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr
    assert "is there already" in Program(tmp_path)("startproject", "shop", code=2).stderr


def test_a_generated_spider_runs_as_it_stands(tmp_path: Path, site: SiteThread) -> None:
    (tmp_path / "spiders").mkdir()
    program = Program(tmp_path)
    source = program("genspider", "news", site.url).stdout
    assert source == (tmp_path / "spiders/news.py").read_text()
    assert len(source.splitlines()) <= 12
    done = program("run", "news", *FAST, "-o", "news.jsonl")
    assert '"state": "done"' in done.stdout
    assert len((tmp_path / "news.jsonl").read_text().splitlines()) > 50
    assert "is there already" in program("create", "-s", "news", site.url, code=2).stderr
    assert program.json("list")[0]["target"] == "spiders/news.py"


def test_create_says_what_it_can_create(tmp_path: Path) -> None:
    assert "-p NAME" in Program(tmp_path)("create", code=2).stderr
    assert "--table" in Program(tmp_path)("create", "-i", code=2).stderr


@pytest.mark.parametrize(("found", "said"), [(None, "pip install pytest && "), (object(), "")])
def test_who_has_no_pytest_is_told_to_install_it(
    found: object,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new, "find_spec", lambda name: found)
    new.new_project("shop", batch=False, task=False)
    assert f"  {said}python -m pytest\n" in capsys.readouterr().err
