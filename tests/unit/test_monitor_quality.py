"""Counts of items, gates on them, and what is unusual about a run."""

from __future__ import annotations

import pytest

from orbweb.errors import ConfigError, OrbwebError
from orbweb.monitor import baseline
from orbweb.monitor.gates import Facts, judge_gates, parse_gate
from orbweb.monitor.quality import Tally, decode, encode, kind_of, total


def tally(*rows: dict[str, object], table: str = "items", repeated: int = 0) -> Tally:
    made = Tally(checked=len(rows), repeated=repeated)
    for row in rows:
        made.see(table, row)
    return made


def facts(made: Tally, pages: int = 10, failed: int = 0) -> Facts:
    return Facts(items=made.items, pages=pages, failed=failed, tally=made)


def failures(text: str, made: Tally, **more: int) -> list[str]:
    return judge_gates([parse_gate(text)], facts(made, **more))


def test_empty_values_are_missing_and_zero_is_not() -> None:
    made = tally(*({"a": value} for value in (None, "", [], {}, 0, False, "x")))
    assert made.missing_rate("items", "a") == pytest.approx(4 / 7)


def test_a_field_that_no_item_has_is_missing_in_all() -> None:
    assert tally({"a": 1}).missing_rate("items", "b") == 1
    assert tally({"a": 1}).missing_rate("other", "a") == 1


def test_numbers_are_one_kind_and_truth_values_another() -> None:
    assert [kind_of(value) for value in (1, 1.5, True, "1", b"", (), {})] == [
        "number", "number", "truth", "text", "bytes", "list", "object",
    ]  # fmt: skip


def test_drift_is_the_part_that_is_not_of_the_kind() -> None:
    made = tally({"p": 1}, {"p": 2.5}, {"p": "3"}, {"p": None})
    assert made.kind("items", "p") == "number"
    assert made.drift_rate("items", "p") == pytest.approx(1 / 3)
    assert made.drift_rate("items", "p", "text") == pytest.approx(2 / 3)


def test_the_counts_of_nodes_add_up() -> None:
    first, second = tally({"p": 1}, {"q": 2}, repeated=1), tally({"p": "x"}, table="other")
    both = total([encode(first), encode(second)])
    assert (both.items, both.checked, both.repeated) == (3, 3, 1)
    assert both.missing_rate("items", "p") == 0.5
    assert both.tables["other"].items == 1


def test_what_is_no_tally_is_refused() -> None:
    with pytest.raises(OrbwebError):
        decode(b"\xc1")


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("items>=100", "gate items>=100 failed by 98: items is 2"),
        ("missing(price)<2%", "failed by 48 points: it is 50.00% of 2 items in items"),
        ("missing(items.price) < 0.5", "failed by 0 points"),
        ("missing(nothing)<=99%", "no item has a field 'nothing'"),
        ("duplicates<1%", "failed by 49 points: duplicates is 50.00% of 2 items"),
        ("failures<5%", "failures is 9.09% of 11 requests"),
        ("failed==0", "failed by 1: failed is 1"),
        ("drift(name)<=10%", "it is 50.00% of 2 items in items, most are text"),
    ],
)
def test_a_gate_that_fails_says_by_how_much(gate: str, said: str) -> None:
    made = tally({"price": 1, "name": "x"}, {"price": None, "name": 7}, repeated=1)
    (failure,) = failures(gate, made, failed=1)
    assert failure.startswith(f"gate {gate} failed by")
    assert said in failure


@pytest.mark.parametrize(
    "gate", ["items>=2", "missing(price)<=50%", "duplicates<51%", "pages>9", "baseline"]
)
def test_a_gate_that_is_met_says_nothing(gate: str) -> None:
    assert failures(gate, tally({"price": 1}, {"price": None}, repeated=1)) == []


def test_the_worst_table_counts_where_the_gate_names_none() -> None:
    made = tally({"price": 1}, table="good")
    made.add(tally({"price": None}, {"price": 3}, table="bad"))
    (failure,) = failures("missing(price)<2%", made)
    assert "2 items in bad" in failure


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("items=>100", "cannot be read"),
        ("itmes>=100", "itmes is not known"),
        ("missing<2%", "takes a field in brackets"),
        ("items(price)>1", "takes no field"),
        ("items>=10%", "not a percentage"),
        ("duplicates<1.5", "write 1.5%"),
    ],
)
def test_a_gate_that_cannot_be_read_says_what_would_be_right(gate: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", "\\(")):
        parse_gate(gate)


def run_of(items: int, missing: int, kind: object = 1.0) -> Tally:
    return tally(
        *({"price": None if number < missing else kind} for number in range(items)),
    )


USUAL = [run_of(100, missing) for missing in (1, 2, 0, 1)]


def test_what_is_as_always_is_not_unusual() -> None:
    assert baseline.judge(run_of(90, 3), USUAL, 0.01) == []


def test_missing_values_above_earlier_runs_are_unusual() -> None:
    (text,) = baseline.judge(run_of(100, 38), USUAL, 0.01)
    assert text == "missing(items.price): 38.0%, where 1.0% is usual"


def test_a_field_that_vanished_is_unusual() -> None:
    (text,) = baseline.judge(tally(*({"cost": 1},) * 100), USUAL, 0.01)
    assert text.startswith("missing(items.price): 100.0%")


def test_another_type_of_value_is_unusual() -> None:
    (text,) = baseline.judge(run_of(100, 1, "1.0 EUR"), USUAL, 0.01)
    assert "drift(items.price): 100.0% of the values are no number" in text
    assert "now text" in text


def test_far_fewer_items_are_unusual() -> None:
    assert baseline.judge(run_of(49, 0), USUAL, 0.01) == ["items: 49, where 100 are usual"]


def test_two_earlier_runs_say_nothing() -> None:
    assert baseline.judge(run_of(100, 90), USUAL[:2], 0.01) == []


def test_more_than_one_percent_of_duplicates_is_unusual_at_once() -> None:
    made = tally(*({"n": number} for number in range(100)), repeated=2)
    (text,) = baseline.judge(made, [], 0.01)
    assert text == "duplicates: 2.0% of the items were there already (limit 1.0%)"
    assert baseline.judge(made, [], 0.0) == []
