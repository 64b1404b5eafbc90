"""Items become rows that share nothing with the spider, under keys that do not depend on chance."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import attrs
import pydantic
import pytest

from orbweb.errors import ItemError
from orbweb.model.item import Item, ItemRecord, UpdateItem, is_item, item_record, table_of


def record(item: Any, **changes: Any) -> ItemRecord:
    place: dict[str, Any] = {"run": "r1", "request_id": "0" * 16, "position": 0}
    return item_record(item, **{**place, "default_table": "items", **changes})


class NewsArticleItem(Item):
    pass


class News(Item):
    __table_name__ = "news"
    __unique_key__ = ("url",)
    __pipelines__ = "a.B"


class Price(UpdateItem):
    __table_name__ = "news"
    __update_key__ = "url"


@dataclass
class DataItem:
    name: str
    tags: list[str] = field(default_factory=list)


@attrs.define
class AttrsItem:
    name: str
    tags: list[str]


class ModelItem(pydantic.BaseModel):
    name: str
    tags: list[str]


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("NewsItem", "news"),
        ("NewsArticleItem", "news_article"),
        ("HTTPPage", "http_page"),
        ("Item", "item"),
        ("Page2Item", "page2"),
        ("news", "news"),
    ],
)
def test_a_table_is_the_class_in_snake_case(name: str, table: str) -> None:
    assert table_of(type(name, (), {})) == table


@pytest.mark.parametrize(
    ("item", "table"),
    [
        ({"name": "x", "tags": ["a"]}, "items"),
        (NewsArticleItem(name="x", tags=["a"]), "news_article"),
        (DataItem("x", ["a"]), "data"),
        (AttrsItem("x", ["a"]), "attrs"),
        (ModelItem(name="x", tags=["a"]), "model"),
    ],
)
def test_every_kind_of_item_becomes_a_row_of_its_own(item: Any, table: str) -> None:
    assert is_item(item)
    made = record(item)
    assert made.table == table
    assert made.row == {"name": "x", "tags": ["a"], "_key": made.key}
    assert (made.update_keys, made.pipelines) == (None, None)
    tags = item["tags"] if isinstance(item, dict) else item.tags
    tags.append("later")
    assert made.row["tags"] == ["a"]


def test_the_key_depends_on_run_request_and_position_only() -> None:
    one = record({"a": 1}).key
    assert record({"a": 2}).key == one
    assert record(News(url="u")).key != one
    others: list[dict[str, Any]] = [{"run": "r2"}, {"request_id": "1" * 16}, {"position": 1}]
    keys = {one, *(record({"a": 1}, **change).key for change in others)}
    assert len(keys) == 4


def test_a_unique_key_makes_rows_one_wherever_they_are_found() -> None:
    one = record(News(url="u", title="a"))
    assert record(News(url="u", title="b"), run="r2", position=9).key == one.key
    assert record(News(url="v", title="a")).key != one.key
    other_table = News(url="u")
    other_table.table_name = "archive"
    assert record(other_table).key != one.key


def test_the_key_does_not_change_between_versions() -> None:
    """Keys are stored for years: a change here makes every stored row new."""
    assert record({"a": 1}).key == "64e6efc78c7809af4256449d"
    assert record(News(url="u")).key == "a9b7ec10f4a962100528fb2b"


def test_an_item_can_choose_table_and_pipelines_for_itself() -> None:
    item = News(url="u")
    assert (item.table_name, item.pipelines, item.unique_key) == ("news", ("a.B",), ("url",))
    item.table_name, item.pipelines = "other", ["c.D", "e.F"]
    made = record(item)
    assert (made.table, made.pipelines) == ("other", ("c.D", "e.F"))
    assert set(made.row) == {"url", "_key"}
    assert News(url="u").table_name == "news"


def test_an_update_names_the_fields_that_find_the_row() -> None:
    made = record(Price(url="u", price=3))
    assert made.update_keys == ("url",)
    assert made.key == record(Price(url="u", price=4)).key
    assert made.key != record(Price(url="u", price=3), position=1).key


def test_an_update_falls_back_to_the_unique_key() -> None:
    item = UpdateItem(url="u")
    with pytest.raises(ItemError, match=r"UpdateItem.*__update_key__"):
        record(item)
    item.unique_key = "url"
    assert record(item).update_keys == ("url",)
    assert record(item).key != record(item, position=1).key


def test_the_hook_changes_the_row_and_not_the_spiders_item() -> None:
    class Priced(Item):
        price: Any
        tags: list[str]

        def pre_to_db(self) -> None:
            self.price = float(self.price)
            self.tags.append("hooked")

    item = Priced(price="3.5", tags=[])
    for _ in range(2):
        assert record(item).row["price"] == 3.5
        assert record(item).row["tags"] == ["hooked"]
    assert item.to_dict() == {"price": "3.5", "tags": []}


def test_nested_items_become_dicts() -> None:
    made = record({"a": [DataItem("x")], "b": News(url="u"), "c": ({1},)})
    assert made.row["a"] == [{"name": "x", "tags": []}]
    assert made.row["b"] == {"url": "u"}
    assert made.row["c"] == ({1},)


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("item", "match"),
    [
        (7, "int is not an item"),
        ({1: 2}, "dict: the field name 1"),
        ({"_key": 1}, "dict: the field '_key'"),
        ({"lock": threading.Lock()}, "dict: field 'lock' of type _thread.lock"),
        ({"loop": LOOP}, "dict: field 'loop'"),
        (News(title="x"), "News: the key field 'url' is missing"),
        (Price(price=1), "Price: the key field 'url' is missing"),
        (News(url=object()), "News: no key can be made.*object"),
    ],
)
def test_an_item_that_cannot_be_a_row_is_refused_by_type_and_field(item: Any, match: str) -> None:
    with pytest.raises(ItemError, match=match):
        record(item)


@pytest.mark.parametrize("table", ["../x", "a/b", "a\\b", "", 3])
def test_a_table_name_cannot_lead_out_of_its_folder(table: Any) -> None:
    item = Item(a=1)
    item.table_name = table
    if table == "":
        assert record(item).table == "item"
        return
    with pytest.raises(ItemError, match="name for a table"):
        record(item)


def test_the_fingerprint_of_an_item_is_that_of_its_unique_fields_or_of_all_that_are_filled() -> (
    None
):
    assert News(url="u", a=1).fingerprint == News(url="u", a=2).fingerprint
    assert News(url="u").fingerprint != News(url="v").fingerprint
    assert Item(a=1, b=None, c="").fingerprint == Item(a=1).fingerprint
    assert Item(a=1).fingerprint != Item(a=2).fingerprint
    assert Item(a=0).fingerprint != Item().fingerprint
    assert Price(url="u", price=1).fingerprint != Price(url="u", price=2).fingerprint
    assert len(Item(a=1).fingerprint) == 32


def test_fields_are_read_and_set_like_those_of_a_dict() -> None:
    item = Item(a=1)
    item["b"] = 2
    assert (item["a"], item.b) == (1, 2)
    with pytest.raises(KeyError, match="'c'"):
        _ = item["c"]


def test_a_spider_of_plain_items_does_not_load_pydantic() -> None:
    """It takes some 20 MB and half a second in each node."""
    program = (
        "import sys; from orbweb.model import item, response;"
        "item.item_record({'a': [1]}, run='', request_id='', position=0, default_table='t');"
        "item.is_item(3); print('pydantic' in sys.modules, 'charset_normalizer' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False False\n"


def test_what_is_no_item_is_not_taken_for_one() -> None:
    assert not any(map(is_item, (None, 1, "x", [], object(), Item)))


@pytest.mark.parametrize(
    "item", [{"\ud800": 1}, type("Odd", (Item,), {"__table_name__": "\ud800"})()]
)
def test_a_name_that_is_broken_text_is_refused(item: Any) -> None:
    with pytest.raises(ItemError, match="ud800"):
        item_record(item, run="e", request_id="r", position=0, default_table="items")
