"""The item filter, counts and failed items of one node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.engine_world import SITE, Crawler, ListPipeline, Town, links

from orbweb.engine import items as module
from orbweb.engine.items import ItemDesk
from orbweb.errors import ItemError, StoreUnavailable
from orbweb.frontier.items import MemoryItemBook
from orbweb.kafka.envelope import decode
from orbweb.model.item import Item, ItemRecord, Origin, UpdateItem, item_record
from orbweb.monitor.counts import decode as decode_counts
from orbweb.pipelines.buffer import Rejected

ORIGIN = Origin("e", "r1", "a:1", 7)


class Product(Item):
    __unique_key__ = "sku"


class Price(UpdateItem):
    __table_name__ = "product"
    __update_key__ = "sku"


def records(*items: object, request: str = "r1") -> list[ItemRecord]:
    return [
        item_record(item, run="e", request_id=request, position=place, default_table="items")
        for place, item in enumerate(items)
    ]


def desk(book: MemoryItemBook | None = None, *, filters: bool = True, node: str = "n") -> ItemDesk:
    return ItemDesk(
        book or MemoryItemBook(), node=node, filters=filters, counts=True, wall_ms=lambda: 1
    )


async def test_only_durable_items_are_left_out_later() -> None:
    book = MemoryItemBook()
    first, again = records(Product(sku=1)), records(Product(sku=1), request="r2")
    one, two = desk(book), desk(book, node="n2")
    assert await one.fresh(first, "step") == first
    assert await two.fresh(again, "other") == again, "not durable yet: it may never be"
    await one.durable(first, [])
    assert await two.fresh(again, "other") == []


async def test_a_refused_item_is_not_remembered() -> None:
    book = MemoryItemBook()
    (record,) = records(Product(sku=1))
    await desk(book).durable([record], [Rejected(record, ItemError("no"), "sql")])
    assert await desk(book).fresh([record], "later") == [record]


async def test_two_long_pages_with_the_same_items_do_not_wait_for_each_other() -> None:
    one = desk()
    await one.fresh(records(Product(sku=1)), "a")
    await one.fresh(records(Product(sku=2)), "b")
    async with asyncio.timeout(5):
        assert await one.fresh(records(Product(sku=2)), "a")
        assert await one.fresh(records(Product(sku=1)), "b")
    one.release("a")
    third = asyncio.create_task(one.fresh(records(Product(sku=2)), "c"))
    await asyncio.sleep(0)
    assert not third.done(), "it is still being stored by its first owner"
    one.release("b")
    assert await third


@pytest.mark.parametrize("value", ["\ud800", ("\ud800",), ["x", {"y": "\udfff"}]])
async def test_broken_text_is_counted_like_any_other(value: object) -> None:
    one = desk()
    rows = records({"v": value})
    one.count(rows, ORIGIN)
    await one.keep_failed([Rejected(rows[0], ItemError("no"), "sql")], ORIGIN, SITE)
    await one.flush()
    assert one.tally.items == 1


async def test_who_comes_with_an_item_that_is_being_stored_waits_for_its_end() -> None:
    one = desk()
    first, again = records(Product(sku=1)), records(Product(sku=2), Product(sku=1), request="r2")
    assert await one.fresh(first, "a") == first
    waiting = asyncio.create_task(one.fresh(again, "b"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await one.durable(first, [])
    one.release("a")
    assert await waiting == again[:1]


async def test_a_long_page_has_an_item_once_and_a_lost_answer_loses_none() -> None:
    class Away(MemoryItemBook):
        away = True

        async def known(self, items: Sequence[bytes]) -> list[bool]:
            if self.away:
                raise StoreUnavailable("no answer")
            return await super().known(items)

    book = Away()
    one = desk(book)
    first, second = records(Product(sku=1)), records(Product(sku=1), Product(sku=2))
    with pytest.raises(StoreUnavailable):
        await one.fresh(first, "page")
    book.away = False
    assert await one.fresh(first, "page") == first
    assert await one.fresh(second, "page") == second[1:]


async def test_after_a_failure_the_one_who_waited_stores_the_item() -> None:
    one = desk()
    await one.fresh(records(Product(sku=1)), "a")
    again = records(Product(sku=1), request="r2")
    waiting = asyncio.create_task(one.fresh(again, "b"))
    await asyncio.sleep(0)
    one.release("a")
    assert await waiting == again


async def test_items_without_a_key_and_updates_are_never_left_out() -> None:
    one = desk()
    every = records({"n": 1}, {"n": 1}, Price(sku=1, price=2), Price(sku=1, price=2))
    assert await one.fresh(every, "a") == every
    await one.durable(every, [])
    one.release("a")
    assert await one.fresh(every, "b") == every


async def test_the_same_content_at_another_place_is_a_repetition() -> None:
    book = MemoryItemBook()
    one, two = desk(book), desk(book, node="n2")
    one.count(records({"n": 1}, {"n": 2}), ORIGIN)
    await one.flush()
    two.count(records({"n": 1}, {"n": 2}), ORIGIN)  # the same page, from another attempt
    two.count(records({"n": 2}, {"n": 3}), Origin("e", "r2", "b:1"))
    await two.flush()
    assert (one.tally.checked, one.tally.repeated) == (2, 0)
    assert (two.tally.checked, two.tally.repeated) == (4, 1)
    assert sorted(await book.told()) == ["n", "n2"]


async def test_of_very_many_items_a_part_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MARK_ALL", 1000)
    one = desk()
    for page in range(40):
        # Every item comes twice: in this page and in the one 20 pages later.
        rows = records(*({"n": page % 20 * 200 + n} for n in range(200)))
        one.count(rows, Origin("e", f"r{page}", "a"))
        await one.flush()
    assert one.tally.items == 8000
    assert one.tally.checked == pytest.approx(8000, rel=0.15)
    assert one.tally.duplicate_rate == pytest.approx(0.5, abs=0.05)


async def test_failed_items_carry_what_a_replay_needs() -> None:
    book = MemoryItemBook()
    (record,) = records(Product(sku=1, name="x" * 9))
    await desk(book).keep_failed([Rejected(record, ItemError("long"), "sql")], ORIGIN, "http://a/")
    (failed,) = book.failed.values()
    assert (failed.error, failed.pipeline, failed.url, failed.unique) == (
        "long", "sql", "http://a/", ("sku",)
    )  # fmt: skip
    envelope = decode(failed.envelope)
    assert (envelope.row, envelope.version) == (record.row, 7)


class Refusing(ListPipeline):
    async def save_items(self, table: str, items: list[dict[str, object]]) -> bool:
        if any(item["url"] == f"{SITE}/bad" for item in items):
            raise ItemError("not this one")
        return await super().save_items(table, items)


def test_a_refused_item_is_kept_before_its_page_is_acknowledged() -> None:
    town = Town({f"{SITE}/a": links("bad"), f"{SITE}/bad": links()}, pipelines={"list": Refusing()})
    book = MemoryItemBook()
    (report,) = town.run(town.node(Crawler(), items=book))
    (failed,) = book.failed.values()
    assert (failed.error, failed.url) == ("not this one", f"{SITE}/bad")
    assert report.counts["item_failed"] == 1
    assert report.run is not None
    assert report.run.dead == 1


class Totals:
    """See `TotalsBook`: what was told last."""

    told = b""

    def attach(self, epoch: str) -> None: ...

    async def tell(self, node: str, counts: bytes, *, again: bool) -> bool:
        self.told = counts
        return True


def test_the_last_telling_has_the_items_of_the_last_moment() -> None:
    town, totals = Town({f"{SITE}/a": links()}), Totals()
    town.run(town.node(Crawler(), totals=totals))
    counts = decode_counts(totals.told)
    assert counts.looked == {"items": 1}
    assert counts.filled["items"]["url"] == 1
