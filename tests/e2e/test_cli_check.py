"""A page is recorded from the site, and parsed again when the site is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.program import Program

from orbweb.testing.site import SiteThread

SPIDER = """
import orbweb

class ShopSpider(orbweb.Spider):
    def parse(self, response):
        yield from response.follow_all(css="a.category", callback=self.parse)

    def parse_product(self, response):
        yield {"name": response.css("h1::text").get(), "url": response.url}
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A directory with a spider and two recorded pages; the site is gone."""
    (tmp_path / "shop.py").write_text(SPIDER)
    program = Program(tmp_path)
    with SiteThread() as site:
        spider = ("--spider", "shop.py")
        product = f"{site.url}/product?category=tea&id=42&token=hush"
        program("record", product, *spider, "-c", "parse_product")
        program("record", f"{site.url}/", *spider)
        said = program("record", f"{site.url}/no-such-page", *spider, code=2).stderr
        assert "cannot be recorded: status_rejected" in said
    return program


def mended(program: Program, old: str, new: str) -> None:
    (program.directory / "shop.py").write_text(SPIDER.replace(old, new))


def test_pages_are_parsed_offline_by_check_and_by_pytest(program: Program) -> None:
    assert "2 pages, 0 with differences" in program("check").stdout
    folder = program.directory / "tests"
    assert all("hush" not in file.read_text() for file in folder.glob("pages/*.json"))
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=program.directory,
        env={**os.environ, **program.environment},
        capture_output=True,
        text=True,
    )
    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr


def test_a_difference_and_an_exception_are_exit_codes_until_they_are_taken_over(
    program: Program,
) -> None:
    mended(program, "h1::text", "h2::text")
    said = program("check", "shop.py", code=1).stdout
    assert 'item 1: name: "tea 42" → null' in said
    assert "2 pages, 1 with differences" in said
    assert "1 page updated, 0 failed" in program("check", "--update").stdout
    assert program("check").stdout.count("✔") == 2
    mended(program, "yield {", "yield {**{}[0],")
    found = program.json("check", code=1)
    assert [each["same"] for each in found] == [True, False]
    assert found[1]["error"].startswith("KeyError: 0 (shop.py:")
    program("check", "--update", code=1)


def test_nothing_to_check_never_looks_like_success(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SPIDER)
    assert "no recorded page" in Program(tmp_path)("check", code=3).stderr
    assert json.loads(Program(tmp_path)("check", "--json", code=3).stdout) == []
    assert "no folder" in Program(tmp_path)("check", "--pages", "nowhere", code=2).stderr
