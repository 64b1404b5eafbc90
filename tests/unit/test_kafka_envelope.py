"""What producer and consumer agree on: exact values, versions, and nothing believed unseen."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest

from orbweb.errors import ItemError
from orbweb.kafka.envelope import (
    VERSION,
    Envelope,
    UnreadableMessage,
    decode,
    encode,
    partition_key,
)

ROW = {
    "text": "北京 ✓",
    "nothing": None,
    "big": 2**80,
    "price": Decimal("12.30"),
    "at": datetime(2026, 11, 30, 22, 31, 7, 123456, UTC),
    "day": date(2026, 11, 30),
    "took": timedelta(seconds=1.5),
    "id": UUID(int=7),
    "raw": b"\x00\xff",
    "tags": ["a", ("b", {"c"})],
    "nested": {"a": {"b": [1, 2.5, True]}},
}


def test_every_value_returns_as_it_was() -> None:
    sent = Envelope(
        "k1", "items", ROW, run="e1", update_keys=("text",), unique=("id",), version=170
    )
    assert decode(encode(sent)) == sent


def test_a_value_that_cannot_travel_is_named() -> None:
    with pytest.raises(ItemError, match="handle"):
        encode(Envelope("k1", "items", {"handle": object()}))


def wire(**fields: object) -> bytes:
    whole = {"k": "k1", "t": "items", "r": {"a": 1}, **fields}
    return bytes((VERSION,)) + msgspec.msgpack.encode(whole)


def test_fields_of_a_later_version_are_passed_over() -> None:
    assert decode(wire(later=[1, 2])) == Envelope("k1", "items", {"a": 1})


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "version none"),
        (b"\x09abc", "version 09"),
        (b'{"a": 1}', "version 7b"),
        (bytes((VERSION,)), "not an item"),
        (bytes((VERSION,)) + b"\xc1", "not an item"),
        (wire(r={"a": msgspec.msgpack.Ext(11, msgspec.msgpack.encode("x" * 16))}), "not an item"),
        (wire()[:-3], "not an item"),
        (wire(k=""), "no key"),
        (wire(k="two words"), "no key"),
        (wire(k="x" * 65), "no key"),
        (wire(k=5), "not an item"),
        (wire(t=""), "no name for a table"),
        (wire(t="../etc"), "no name for a table"),
        (wire(r=[1]), "no dict"),
        (wire(r={1: 2}), "no dict"),
        (wire(u=[]), "none is named"),
        (wire(u=["b"]), "'b'"),
        (wire(g="x" * 201), "no run"),
        (wire(n="soon"), "not an item"),
        (wire(r={"a": msgspec.msgpack.Ext(99, b"\x01")}), "extension type 99"),
        (wire(r={"a": msgspec.msgpack.Ext(6, b"\xa3abc")}), "not an item"),
    ],
)
def test_what_is_no_item_is_refused_with_a_reason(message: bytes, said: str) -> None:
    with pytest.raises(UnreadableMessage, match=said):
        decode(message)


def test_changes_of_one_row_stay_in_order_and_others_spread() -> None:
    def change(key: str, sku: str, price: int) -> bytes:
        row = {"sku": sku, "price": price}
        return partition_key(Envelope(key, "product", row, update_keys=("sku",)))

    assert change("k1", "a", 1) == change("k2", "a", 2)
    assert change("k1", "a", 1) != change("k1", "b", 1)
    assert partition_key(Envelope("k1", "items", {})) == b"k1"


def test_an_item_stays_before_the_changes_that_find_it_by_its_unique_key() -> None:
    row = {"sku": "a", "shop": 1}
    item = Envelope("k1", "product", row, unique=("sku", "shop"))
    change = Envelope("k2", "product", {**row, "price": 2}, update_keys=("shop", "sku"))
    other = Envelope("k3", "product", {"sku": "b", "shop": 1}, unique=("sku", "shop"))
    assert partition_key(item) == partition_key(change)
    assert partition_key(item) != partition_key(other)
