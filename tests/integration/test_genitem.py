"""`orbweb genitem`: classes for tables as real databases describe them."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from tests.databases import KINDS, Database, open_database

from orbweb.cli.genitem import item_source, read_table
from orbweb.errors import ConfigError
from orbweb.model.item import Item, UpdateItem, item_record

COUNTED = {
    "sqlite": "INTEGER PRIMARY KEY",
    "postgres": "SERIAL PRIMARY KEY",
    "mariadb": "INT AUTO_INCREMENT PRIMARY KEY",
}


@pytest.fixture(scope="module", params=KINDS)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    database = open_database(request.param)
    database.execute(
        f"CREATE TABLE product (id {COUNTED[request.param]}, sku VARCHAR(20) NOT NULL UNIQUE, "
        "name TEXT, price DECIMAL(10,2) NOT NULL, seen_on DATE, pipelines INT, _key VARCHAR(64))",
        "CREATE TABLE visit (shop VARCHAR(20), day DATE, PRIMARY KEY (shop, day))",
        "CREATE TABLE note (text VARCHAR(20))",
    )
    yield database
    database.stop()


def load(source: str) -> types.ModuleType:
    module = types.ModuleType("written")
    sys.modules["written"] = module
    try:
        exec(compile(source, "written.py", "exec"), module.__dict__)
    finally:
        del sys.modules["written"]
    return module


def class_of(database: Database, table: str, name: str, **options: Any) -> Any:
    source = item_source(read_table(database.url, table), None, **{"update": False, **options})
    return getattr(load(source), name)


def test_columns_are_fields_and_the_unique_key_is_one_that_an_item_can_know(
    database: Database,
) -> None:
    kind = class_of(database, "product", "ProductItem")
    assert issubclass(kind, Item)
    assert kind.__table_name__ == "product"
    assert kind.__unique_key__ == ("sku",)
    assert kind.__annotations__ == {
        "sku": "str",
        "name": "str | None",
        "price": "Decimal",
        "seen_on": "date | None",
    }
    record = item_record(
        kind(sku="a", price=1), run="r", request_id="q", position=0, default_table="t"
    )
    assert record.table == "product"
    assert record.unique == ("sku",)


def test_a_primary_key_of_several_columns_is_the_unique_key(database: Database) -> None:
    kind = class_of(database, "visit", "VisitItem", update=True)
    assert issubclass(kind, UpdateItem)
    assert kind.__unique_key__ == ("shop", "day")


def test_a_table_without_a_key_says_what_to_do(database: Database) -> None:
    source = item_source(read_table(database.url, "note"), "Note", update=False)
    assert "# The table has no key" in source
    assert load(source).Note.__unique_key__ is None


def test_what_is_not_there_is_named(database: Database) -> None:
    with pytest.raises(ConfigError, match=r"there is no table produkt in .*note, product, visit"):
        read_table(database.url, "produkt")


def test_a_class_needs_a_name() -> None:
    database = open_database("sqlite")
    database.execute("CREATE TABLE t (a INT)")
    table = read_table(database.url, "t")
    database.stop()
    with pytest.raises(ConfigError, match="no name of a class"):
        item_source(table, "no name", update=False)
