"""Pages into real databases: once, whole, without the rows that cannot be stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from tests.databases import KINDS, Database, open_database

from orbweb.errors import ConfigError, PipelineError
from orbweb.model.item import Item, Origin, UpdateItem, item_record
from orbweb.pipelines.base import Page
from orbweb.pipelines.sql import SqlPipeline
from orbweb.pipelines.sql_rows import Conflict
from orbweb.pipelines.sql_tables import Tables


class Product(Item):
    __unique_key__ = "sku"


class Price(UpdateItem):
    __table_name__ = "product"
    __update_key__ = "sku"


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Database]:
    database = open_database(request.param)
    yield database
    database.stop()


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    yield server
    for table in ("orbweb_pages", "orbweb_versions", "items", "product", "other"):
        server.execute(f"DROP TABLE IF EXISTS {table}")


@pytest.fixture
def sql(database: Database) -> Iterator[Callable[..., SqlPipeline]]:
    made: list[SqlPipeline] = []

    def make(**options: Any) -> SqlPipeline:
        options.setdefault("create_tables", True)
        made.append(SqlPipeline(database.url, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def page(*items: Any, id: str = "r1", attempt: str = "a:1", at: int = 0, **more: Any) -> Page:
    records = tuple(
        item_record(item, run="e1", request_id=id, position=number, default_table="items")
        for number, item in enumerate(items)
    )
    return Page(Origin("e1", id, attempt, at, **more), records)


def test_a_page_that_comes_again_changes_nothing(database: Database, sql: Any) -> None:
    first = page({"n": 1}, {"n": 2})
    assert sql().save_pages([first, page({"n": 9}, id="r2")]) == []
    again = page({"n": 1}, {"n": 2}, attempt="b:7")
    assert sql().save_pages([again, first, page({"n": 3}, id="r3")]) == []
    assert database.rows("SELECT n FROM items ORDER BY n") == [(1,), (2,), (3,), (9,)]


def test_the_first_attempt_wins_as_a_whole(database: Database, sql: Any) -> None:
    sql().save_pages([page({"n": 1}, {"n": 2})])
    sql().save_pages([page({"n": 7}, {"n": 8}, {"n": 9}, attempt="b:1")])
    assert database.rows("SELECT n FROM items ORDER BY n") == [(1,), (2,)]


def test_the_parts_of_a_long_page_are_stored_once_each(database: Database, sql: Any) -> None:
    pipeline = sql()
    pipeline.save_pages([page({"n": 1}, part=0)])
    rest = Page(Origin("e1", "r1", "b:1", 0, 1), page({"n": 1}, {"n": 2}).records[1:])
    pipeline.save_pages([page({"n": 1}, part=0, attempt="b:1"), rest])
    assert database.rows("SELECT n FROM items ORDER BY n") == [(1,), (2,)]


def test_one_page_from_eight_connections_at_once_is_stored_once(
    database: Database, sql: Any
) -> None:
    sql().save_pages([page({"n": 0}, id="r0")])
    pipelines = [sql() for _ in range(8)]
    start = threading.Barrier(8)
    failures: list[Exception] = []

    def store(number: int) -> None:
        start.wait()
        for request in range(20):
            pages = [page({"n": number}, {"n": number}, id=f"p{request}", attempt=f"{number}:1")]
            while True:
                try:
                    pipelines[number].save_pages(pages)
                    break
                except PipelineError as error:  # a deadlock that the database broke: try again
                    failures.append(error)

    threads = [threading.Thread(target=store, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failures) < 40
    assert database.rows("SELECT COUNT(*) FROM items") == [(41,)]


def test_a_row_that_does_not_fit_is_left_out_and_named(database: Database, sql: Any) -> None:
    database.execute("CREATE TABLE items (n INT NOT NULL, UNIQUE (n))")
    pipeline = sql(create_tables=False)
    pages = [
        page({"n": 1}, {"n": 2, "colour": "red"}, {"n": None}, {"n": 3.5}, {"n": 3}),
        page({"n": 4}, id="r2"),
    ]
    refused = pipeline.save_pages(pages)
    assert [refusal.record.row.get("n") for refusal in refused] == [2, None, 3.5]
    colour, null, fraction = (str(refusal.error) for refusal in refused)
    assert "no column 'colour'" in colour
    assert pages[0].records[1].key in colour
    assert pages[0].records[2].key in null
    assert "(n)" in null
    assert "column 'n' takes whole numbers, not 3.5" in fraction
    assert database.rows("SELECT n FROM items ORDER BY n") == [(1,), (3,), (4,)]


def test_refused_rows_are_stored_by_a_later_attempt_and_nothing_twice(
    database: Database, sql: Any
) -> None:
    database.execute("CREATE TABLE items (n INT NOT NULL)")  # no key: only the ledger can tell
    pipeline = sql(create_tables=False)
    bad = page({"n": 1}, {"n": None}, {"n": 3})
    assert len(pipeline.save_pages([bad])) == 1
    assert len(sql(create_tables=False).save_pages([bad])) == 1
    assert pipeline.save_pages([page({"n": 1}, {"n": 2}, {"n": 3}, attempt="b:1")]) == []
    assert pipeline.save_pages([page({"n": 1}, {"n": 2}, {"n": 3}, attempt="c:1")]) == []
    assert database.rows("SELECT n FROM items ORDER BY n") == [(1,), (2,), (3,)]


def test_a_page_that_failed_half_way_is_completed(database: Database, sql: Any) -> None:
    sql().save_pages([page({"n": 1}, {"n": 2}, complete=False)])
    sql().save_pages([page({"n": 1}, {"n": 2}, {"n": 3}, attempt="b:1")])
    sql().save_pages([page({"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}, attempt="c:1")])
    assert database.rows("SELECT n FROM items ORDER BY n") == [(1,), (2,), (3,)]


def test_an_update_that_was_fetched_earlier_does_not_overwrite(
    database: Database, sql: Any, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = sql()
    pipeline.save_pages([page(Product(sku="a", price=1.0), Product(sku="b", price=1.0))])
    pipeline.save_pages([page(Price(sku="a", price=3.0), id="r3", at=2000)])
    sql().save_pages([page(Price(sku="a", price=2.0), Price(sku="b", price=2.0), id="r2", at=1000)])
    assert database.rows("SELECT sku, price FROM product ORDER BY sku") == [("a", 3.0), ("b", 2.0)]
    assert caplog.text.count("update_left_out") == 1
    pipeline.save_pages([page(Price(sku="a", price=4.0), id="r4", at=2001)])
    assert database.rows("SELECT price FROM product WHERE sku = 'a'") == [(4.0,)]


def test_an_update_in_the_page_of_its_item_comes_after_it(database: Database, sql: Any) -> None:
    sql().save_pages([page(Product(sku="a", price=1.0), Price(sku="a", price=2.0))])
    assert database.rows("SELECT price FROM product") == [(2.0,)]


def test_an_update_without_a_row_is_refused_and_leaves_no_trace(
    database: Database, sql: Any
) -> None:
    pipeline = sql()
    pipeline.save_pages([page(Product(sku="a", price=1.0))])
    (refused,) = pipeline.save_pages([page(Price(sku="z", price=2.0), id="r2", at=5000)])
    assert "no row to change with sku = 'z'" in str(refused.error)
    pipeline.save_pages([page(Product(sku="z", price=1.0), id="r3")])
    assert pipeline.save_pages([page(Price(sku="z", price=3.0), id="r2", attempt="b", at=10)]) == []
    assert database.rows("SELECT price FROM product WHERE sku = 'z'") == [(3.0,)]


@pytest.mark.parametrize(
    ("rule", "price"), [(Conflict.NOTHING, 1.0), (Conflict.UPDATE, 2.0), (Conflict.ERROR, 1.0)]
)
def test_an_item_whose_row_is_there(
    database: Database, sql: Any, rule: Conflict, price: float
) -> None:
    pipeline = sql(on_conflict=rule)
    pipeline.save_pages([page(Product(sku="a", price=1.0), at=10)])
    refused = pipeline.save_pages([page(Product(sku="a", price=2.0), id="r2", at=20)])
    late = sql(on_conflict=rule).save_pages([page(Product(sku="a", price=9.0), id="r3", at=15)])
    assert len(refused) == len(late) == (rule is Conflict.ERROR)
    assert database.rows("SELECT price FROM product") == [(price,)]


def test_tables_and_columns_are_made_when_asked(database: Database, sql: Any) -> None:
    moment = datetime(2026, 12, 1, 8, 30, tzinfo=UTC)
    values = {
        "text": "naïve 数据 😀",
        "count": 2**40,
        "rate": 0.5,
        "good": True,
        "price": Decimal("19.99"),
        "body": b"\0\xff",
        "day": date(2026, 12, 1),
        "tags": ["a", {"b": None}],
        "later": None,
    }
    pipeline = sql()
    assert pipeline.save_pages([page({**values, "moment": moment})]) == []
    assert pipeline.save_pages([page({"text": "x", "later": 7, "new": "y"}, id="r2")]) == []
    rows = database.rows("SELECT text, count, rate, body, later, new FROM items ORDER BY text")
    assert rows == [
        ("naïve 数据 😀", 2**40, 0.5, b"\0\xff", None, None),
        ("x", None, None, None, 7, "y"),
    ]


AWARE = datetime(2026, 12, 1, 3, 4, tzinfo=timezone(timedelta(hours=5)))


@pytest.mark.parametrize(
    ("first", "taken", "refused"),
    [
        (
            1,
            [Decimal(2), 3.0],
            [Decimal("1.5"), Decimal("NaN"), float("inf"), 2.5, Decimal("1E+999999999")],
        ),
        (Decimal("1.5"), [Decimal("2.50"), 3], [Decimal("0.12345678901")]),
        (b"x", [b"\0\xff"], ["text", 5, 2.5]),
        ("text", [b"bytes", 5, AWARE], [b"\xff"]),
        ({"a": 1}, [[1, "b"]], [{"a": float("nan")}, {"b": b"1"}]),
    ],
)
def test_a_value_is_stored_as_it_is_or_refused(
    database: Database, sql: Any, first: Any, taken: list[Any], refused: list[Any]
) -> None:
    pipeline = sql()
    assert pipeline.save_pages([page({"v": first}, *({"v": value} for value in taken))]) == []
    answers = pipeline.save_pages([page(*({"v": value} for value in refused), id="r2")])
    assert [str(answer.record.row["v"]) for answer in answers] == [str(each) for each in refused]
    assert database.rows("SELECT COUNT(*) FROM items") == [(1 + len(taken),)]


def test_a_moment_stays_the_same_moment(database: Database, sql: Any) -> None:
    sql().save_pages([page({"v": datetime(2026, 12, 1, tzinfo=UTC)}, {"v": AWARE})])
    found = database.rows("SELECT v FROM items ORDER BY v")[0][0]
    if isinstance(found, datetime) and found.tzinfo is not None:
        found = found.astimezone(UTC)
    assert str(found).startswith("2026-11-30 22:04:00")


def test_a_field_that_cannot_be_a_column_is_refused_and_nothing_waits(
    database: Database, sql: Any
) -> None:
    pipeline = sql()
    assert pipeline.save_pages([page({"name": 1})]) == []
    emoji = {"\U0001f600": 1}
    bad = page(
        *({"": 1}, {"a\0b": 1}, {"name": 2}, emoji, {"x" * 300: 1}, {"Name": 1, "NAME": 2}),
        id="r2",
    )
    refused = [set(each.record.row) - {"_key"} for each in pipeline.save_pages([bad])]
    tells_case_apart = database.url.startswith("postgres")
    kept = [] if tells_case_apart else [{"Name", "NAME"}]
    long = [] if database.url.startswith("sqlite") else [{"x" * 300}]
    too_rare = [{"\U0001f600"}] if database.url.startswith("mysql") else []
    assert refused == [{""}, {"a\0b"}, *too_rare, *long, *kept]
    assert database.rows("SELECT name FROM items WHERE name IS NOT NULL ORDER BY name") == [
        (1,),
        (2,),
    ]


def test_a_field_with_a_percent_sign_gets_its_column(database: Database, sql: Any) -> None:
    pipeline = sql()
    pipeline.save_pages([page({"name": 1})])
    refused = pipeline.save_pages([page({"name": 2}, {"off%s": 5}, {":x": 3}, id="r2")])
    takes_percent = not database.url.startswith("mysql")
    assert [set(each.record.row) - {"_key"} for each in refused] == (
        [] if takes_percent else [{"off%s"}]
    )
    if takes_percent:
        assert database.rows('SELECT "off%s" FROM items WHERE "off%s" IS NOT NULL') == [(5,)]


def test_a_row_that_the_server_hangs_up_on_is_a_failed_item(database: Database, sql: Any) -> None:
    """It would be tried again for ever, and with it all that come after it."""
    if not database.url.startswith("mysql"):
        pytest.skip("only MySQL and MariaDB hang up")
    pipeline = sql()
    (refused,) = pipeline.save_pages([page({"text": "a"}, {"text": "b" * 17_000_000})])
    assert "max_allowed_packet is 16777216" in str(refused.error)
    assert database.rows("SELECT text FROM items") == [("a",)]


def test_no_table_is_changed_while_a_transaction_is_open(
    database: Database, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for the transaction, and the transaction for it, for ever."""
    pipeline = sql()
    pipeline.save_pages([page({"name": 1})])

    def adds_a_column_of_another_name(tables: Tables, name: str, table: Any, missing: Any) -> Any:
        assert tables._engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        return table

    monkeypatch.setattr(Tables, "_widened", adds_a_column_of_another_name)
    (refused,) = pipeline.save_pages([page({"name": 2}, {"other": 3}, id="r2")])
    assert "no column 'other'" in str(refused.error)
    assert database.rows("SELECT name FROM items ORDER BY name") == [(1,), (2,)]


@pytest.mark.parametrize("table", ["items", "orbweb_pages", "orbweb_versions"])
def test_a_table_that_vanishes_in_mid_run_is_made_again(
    database: Database, sql: Any, table: str
) -> None:
    pipeline = sql(on_conflict=Conflict.UPDATE)
    pipeline.save_pages([page({"n": 1})])
    database.execute(f"DROP TABLE {table}")
    for _ in range(2):  # what a lane does
        with suppress(PipelineError):
            assert pipeline.save_pages([page({"n": 2}, id="r2")]) == []
    assert database.rows("SELECT COUNT(*) FROM items WHERE n = 2") == [(1,)]


def test_a_column_that_vanishes_in_mid_run_is_a_failed_item(database: Database, sql: Any) -> None:
    database.execute("CREATE TABLE items (n INT, m INT)")
    pipeline = sql(create_tables=False)
    pipeline.save_pages([page({"n": 1, "m": 1})])
    database.execute("ALTER TABLE items DROP COLUMN m")
    (refused,) = pipeline.save_pages([page({"n": 2}, {"n": 3, "m": 3}, id="r2")])
    assert "no column 'm'" in str(refused.error)
    assert database.rows("SELECT n FROM items ORDER BY n") == [(1,), (2,)]


def test_without_the_setting_a_missing_table_is_an_error_that_names_it(
    database: Database, sql: Any
) -> None:
    (refused,) = sql(create_tables=False).save_pages([page({"n": 1})])
    assert "no table 'items'" in str(refused.error)
    assert "SQL_CREATE_TABLES" in str(refused.error)


def test_what_was_stored_long_ago_is_forgotten_but_not_of_the_own_run(
    database: Database, sql: Any
) -> None:
    sql().save_pages([page({"n": 1})])
    old = (datetime.now(UTC) - timedelta(days=40)).date()
    database.execute(
        f"UPDATE orbweb_pages SET stored_on = '{old}'",
        "INSERT INTO orbweb_pages (run, request_id, part, claim, stored_on)"
        f" VALUES ('e0', 'r1', 0, 1, '{old}')",
    )
    sql(keep_days=0).save_pages([page({"n": 2}, id="r2")])
    assert database.rows("SELECT COUNT(*) FROM orbweb_pages") == [(3,)]
    sql().save_pages([page({"n": 3}, id="r3")])
    assert database.rows("SELECT run FROM orbweb_pages ORDER BY run") == [("e1",)] * 3


def test_a_database_that_is_away_is_waited_for() -> None:
    database = open_database("postgres")
    try:
        pipeline = SqlPipeline(database.url, create_tables=True)
        pipeline.save_pages([page({"n": 1})])
        database.kill()
        with pytest.raises(PipelineError, match="OperationalError"):
            pipeline.save_pages([page({"n": 2}, id="r2")])
        database.start()
        assert pipeline.save_pages([page({"n": 1}), page({"n": 2}, id="r2")]) == []
        assert database.rows("SELECT n FROM items ORDER BY n") == [(1,), (2,)]
        pipeline.close()
    finally:
        database.stop()


def test_passwords_are_not_shown() -> None:
    pipeline = SqlPipeline("postgresql://user:secret@127.0.0.1:1/db")
    with pytest.raises(PipelineError) as raised:
        pipeline.save_pages([page({"n": 1})])
    assert "secret" not in str(raised.value)
    with pytest.raises(ConfigError) as wrong:
        SqlPipeline("nosuch://user:secret@host/db")
    assert "secret" not in str(wrong.value)


@pytest.mark.parametrize("url", ["u:secret@h", "mysql://u:a@secret@h/db", "nosuch://u:se/secret@h"])
def test_a_password_is_not_shown_where_the_address_is_wrong(url: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        SqlPipeline(url)
    assert "secret" not in str(wrong.value)
