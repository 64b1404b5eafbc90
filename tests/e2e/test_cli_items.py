"""Items as people see them: failed ones and their replay, what they look like, gates."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbweb.testing.site import SiteThread

SPIDER = """
import orbweb

class Product(orbweb.Item):
    __table_name__ = "products"
    __unique_key__ = "sku"

class ShopSpider(orbweb.Spider):
    url = ""
    pages = "20"
    lacking = "0"
    copies = "1"

    def start_requests(self):
        for n in range(int(self.pages)):
            yield orbweb.Request(f"{self.url}/flat?n={n}")

    def parse(self, response):
        n = int(response.url.rpartition("=")[2])
        price = None if n < int(self.lacking) else float(n)
        yield Product(sku=n // int(self.copies), price=price)

class Air(orbweb.AirSpider):
    url = ""
    start_requests = ShopSpider.start_requests
    parse = ShopSpider.parse
    pages, lacking, copies = "20", "0", "1"
"""
SQL = ("-s", "ITEM_PIPELINES=orbweb.pipelines.sql.SqlPipeline", "-s", "SQL_URL=sqlite:///items.db")


class Shop:
    """A directory with a spider, and a site."""

    def __init__(self, directory: Path, site: str) -> None:
        self.directory = directory
        self.site = site
        kept = ("PATH", "HOME", "PYTHONPATH", "TMPDIR")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}
        (directory / "shop.py").write_text(SPIDER)

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "orbweb", *words],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def run(self, *words: str, spider: str = "ShopSpider", code: int = 0) -> dict[str, Any]:
        done = self("run", f"shop.py:{spider}", "-a", f"url={self.site}", *words, code=code)
        line = done.stdout.splitlines()[-1]
        found: dict[str, Any] = json.loads(line.removeprefix("ORBWEB_RUN_SUMMARY "))
        return found | {"stderr": done.stderr}

    def database(self, sql: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.directory / "items.db") as connection:
            return connection.execute(sql).fetchall()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with SiteThread() as running:
        yield running.url


@pytest.fixture
def shop(tmp_path: Path, site: str) -> Shop:
    return Shop(tmp_path, site)


def test_refused_items_are_listed_and_replayed_when_the_table_is_right(shop: Shop) -> None:
    shop.database("CREATE TABLE products (sku INT, price REAL NOT NULL CHECK (price < 18))")
    summary = shop.run(*SQL, "-a", "lacking=1")
    assert summary["item_failed"] == 3
    assert summary["run"]["items"] == 17
    listed = json.loads(shop("items", "failed", "ShopSpider", "--json").stdout)
    assert sorted(str(one["item"]["price"]) for one in listed["items"]) == ["18.0", "19.0", "None"]
    assert {one["table"] for one in listed["items"]} == {"products"}
    assert all("CHECK" in one["error"] or "NOT NULL" in one["error"] for one in listed["items"])
    shown = shop("items", "failed", "ShopSpider").stdout
    assert "3 failed items in ShopSpider" in shown
    assert "SqlPipeline" in shown

    assert (
        "0 items stored, 3 failed"
        in shop("items", "replay", "shop.py:ShopSpider", "--all", *SQL, code=1).stdout
    )
    shop.database("DROP TABLE products")
    shop.database("CREATE TABLE products (sku INT, price REAL NOT NULL)")
    replayed = shop("items", "replay", "shop.py:ShopSpider", "--all", *SQL, code=1)
    assert "2 items stored, 1 failed again" in replayed.stdout
    assert shop.database("SELECT price FROM products ORDER BY 1") == [(18.0,), (19.0,)]

    key = json.loads(shop("items", "failed", "ShopSpider", "--json").stdout)["items"][0]["key"]
    assert "which ones?" in shop("items", "drop", "ShopSpider", code=2).stderr
    shop("items", "drop", "ShopSpider", key[:8], "--yes")
    assert "no failed items" in shop("items", "failed", "ShopSpider").stdout


def test_an_item_without_its_key_is_looked_for_among_the_failed_pages(shop: Shop) -> None:
    (shop.directory / "shop.py").write_text(SPIDER.replace("sku=n // int(self.copies), ", ""))
    assert shop.run("-a", "pages=1", code=3)["item_failed"] == 1
    found = shop("items", "failed", "ShopSpider")
    assert "no failed items" in found.stdout
    assert "orbweb failed list ShopSpider --reason item_rejected" in found.stderr
    pages = shop("failed", "list", "ShopSpider", "--reason", "item_rejected").stdout
    assert "an output could not be taken: shop.Product: the key field 'sku' is missing" in pages


def test_an_item_with_a_known_unique_key_is_left_out_unless_switched_off(shop: Shop) -> None:
    summary = shop.run("-a", "copies=2", "--fresh")
    assert summary["run"]["items"] == 10
    assert summary["item_dedup_dropped"] == 10
    assert summary["quality"]["duplicates"] == 0.5
    lines = (shop.directory / "products.jsonl").read_text().splitlines()
    assert len(lines) == 10
    again = shop.run("-a", "copies=2", "--fresh")
    assert again["run"]["items"] == 10  # another run has items of its own
    every = shop.run("-a", "copies=2", "--fresh", "-s", "ITEM_FILTER_ENABLE=false")
    assert every["run"]["items"] == 20


def test_the_filter_works_without_a_store(shop: Shop) -> None:
    summary = shop.run("-a", "copies=4", spider="Air")
    assert (summary["run"]["items"], summary["item_dedup_dropped"]) == (5, 15)


def test_a_run_that_fails_a_gate_has_exit_code_4_and_says_by_how_much(shop: Shop) -> None:
    gates = ("--gate", "items>=100", "--gate", "missing(price)<2%", "--gate", "pages>=20")
    summary = shop.run("-a", "lacking=4", *gates, "--fresh", "-w", "2", code=4)
    failures = summary["quality"]["failed_gates"]
    assert failures == [
        "gate items>=100 failed by 80: items is 20",
        "gate missing(price)<2% failed by 18 points: it is 20.00% of 20 items in products",
    ]
    assert "gate items>=100 failed by 80" in summary["stderr"]
    shop.run("--gate", "items>=20", "--gate", "missing(price)<2%", "--fresh")
    assert "cannot be read" in shop("run", "shop.py:Air", "--gate", "items", code=2).stderr


def test_what_earlier_runs_were_like_is_learned(shop: Shop) -> None:
    for _ in range(3):
        shop.run("--fresh", "--gate", "baseline")
    summary = shop.run("--fresh", "-a", "lacking=5", "--gate", "baseline", code=4)
    (unusual,) = summary["quality"]["unusual"]
    assert unusual == "missing(products.price): 25.0%, where 0.0% is usual"
    shown = shop("items", "quality", "ShopSpider").stdout
    assert "20 items, 0.00% duplicates" in shown
    assert "25.00%" in shown
    fields = json.loads(shop("items", "quality", "ShopSpider", "--json").stdout)["fields"]
    assert {one["field"]: one["types"] for one in fields}["sku"] == {"number": 20}


def test_a_missing_extra_is_named_with_the_command_that_installs_it(shop: Shop) -> None:
    blocked = shop.directory / "blocked" / "sqlalchemy"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text(
        "raise ModuleNotFoundError('No module named sqlalchemy', name='sqlalchemy')"
    )
    path = shop.environment.get("PYTHONPATH", "")
    shop.environment["PYTHONPATH"] = f"{blocked.parent}:{path}"
    done = shop("run", "shop.py:Air", *SQL, code=2)
    assert "pip install 'orbweb[sql]'" in done.stderr


def test_a_folder_of_parquet_parts_takes_the_items_of_two_processes(shop: Shop) -> None:
    shop.run("-O", "out.parquet", "--fresh", "-w", "2")
    assert "20 rows kept" in shop("items", "dedup", "out.parquet").stdout
    (part,) = (shop.directory / "out.parquet").iterdir()
    shop.run("-O", "out.parquet", "--fresh")
    assert not part.exists(), "-O begins with an empty folder"
    shop.run("-o", "out.parquet", "--fresh", "-a", "pages=5")
    done = shop("items", "dedup", "out.parquet", "--json")
    assert json.loads(done.stdout)[0] == {"file": "out.parquet", "kept": 20, "removed": 5}
