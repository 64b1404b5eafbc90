"""Two runs of one job, compared: what changed on the site, in the settings and in the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.program import Program

from orbweb.testing.site import SiteThread

SPIDER = """
import orbweb

class ShopSpider(orbweb.Spider):
    url = ""
    pages = "20"
    lacking = "0"

    def start_requests(self):
        for n in range(int(self.pages)):
            yield orbweb.Request(f"{self.url}/flat?n={n}")
        yield orbweb.Request(f"{self.url}/no-such-page", max_retry_times=0)

    def parse(self, response):
        n = int(response.url.rpartition("=")[2])
        yield {"url": response.url, "price": None if n < int(self.lacking) else float(n)}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A directory in which a job has run twice: the second time with fewer pages."""
    folder = tmp_path_factory.mktemp("diff")
    program = Program(folder, ORBWEB_SPIDER_MAX_RETRY_TIMES="0")
    spider = folder / "shop.py"
    with SiteThread() as site:
        run = ("run", "shop.py", "-a", f"url={site.url}")
        spider.write_text(SPIDER)
        program(*run, "--run-id", "first", "-o", "first.jsonl")
        spider.write_text(f"{SPIDER}# mended\n")
        more = ("-a", "pages=15", "-a", "lacking=9", "-s", "X_TOKEN=hush", "-s", "DEPTH_LIMIT=3")
        program(*run, "--run-id", "second", "-o", "second.jsonl", *more)
    return program


def rows(program: Program, *words: str) -> dict[str, Any]:
    found = program.json("diff", *words)
    return {row["name"]: row for row in found["rows"]}


def test_figures_fields_code_and_settings_are_compared(program: Program) -> None:
    found = rows(program, "ShopSpider@first", "ShopSpider@last")
    assert (found["pages"]["before"], found["pages"]["after"]) == (20, 15)
    assert (found["items"]["change"], found["items"]["marked"]) == (-5, True)
    assert (found["missing(items.price)"]["before"], found["missing(items.price)"]["after"]) == (
        0,
        0.6,
    )
    assert (found["2xx"]["change"], found["4xx"]["change"]) == (-5, 0)
    assert found["digest"]["differs"]
    assert (found["DEPTH_LIMIT"]["before"], found["DEPTH_LIMIT"]["after"]) == ("0", "3")
    assert found["X_TOKEN"]["after"] == '"***"'


def test_pages_and_items_are_compared_one_by_one(program: Program) -> None:
    found = program.json("diff", "ShopSpider")
    assert (found["items"]["new"], found["items"]["gone"], found["items"]["changed"]) == (0, 5, 9)
    assert found["items"]["fields"] == {"price": 9}
    by_name = {row["name"]: row["after"] for row in found["rows"]}
    assert (by_name["new pages"], by_name["gone pages"]) == (0, 5)


def test_a_limit_that_is_passed_is_an_exit_code(program: Program) -> None:
    done = program("diff", "ShopSpider", "--fail-on", "items<-10%", code=4)
    assert "limit items<-10%: items changed by -25%" in done.stderr
    program("diff", "ShopSpider", "--fail-on", "items<-30%", "--fail-on", "gone>5")


def test_a_run_that_is_gone_is_compared_by_what_was_kept(program: Program) -> None:
    before = rows(program, "ShopSpider@first", "ShopSpider@second")
    program("reset", "ShopSpider", "--run-id", "first", "--yes")
    after = rows(program, "ShopSpider@first", "ShopSpider@second")
    for name in ("pages", "items", "2xx", "missing(items.price)", "digest", "gone pages"):
        assert after[name] == before[name]


def test_an_unknown_run_lists_what_there_is(program: Program) -> None:
    said = program("diff", "ShopSpider@third", "ShopSpider@last", code=2).stderr
    assert "second, first" in said
    assert "one run" in program("diff", "ShopSpider@last", "ShopSpider@second", code=2).stderr
    assert "no run of a job 'Nobody'" in program("diff", "Nobody", code=2).stderr


def test_the_summary_says_how_the_run_was_made(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SPIDER.replace("orbweb.Spider", "orbweb.AirSpider"))
    with SiteThread() as site:
        done = Program(tmp_path)("run", "shop.py", "-a", f"url={site.url}", "-a", "pages=1")
    assert '"code": {"file": "shop.py:ShopSpider", "digest": "' in done.stdout
