"""Which failures count as one cause."""

from __future__ import annotations

import pytest

from orbweb.monitor.causes import ANY_HOST, Groups, cause_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTP status 404 for http://a.example/1", "HTTP status 404 for http://a.example/2"),
        (
            "https://a.example/x: cannot connect: refused",
            "https://b.example/: cannot connect: refused",
        ),
        ("no price in 48210 rows", "no price in 1234567 rows"),
        ("key 8f3a77c1de", "key 00aa77c1de"),
        ("took 1.25 s", "took 30.5 s"),
        ("KeyError: 'price' (shop.py:31 in parse)", "KeyError: 'price' (shop.py:31 in parse)"),
        ("broke\nat 1", "broke\nat 2"),
    ],
)
def test_what_differs_from_page_to_page_is_one_cause(one: str, other: str) -> None:
    assert cause_of("r", one, "h") == cause_of("r", other, "h")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTP status 404 for http://a.example/", "HTTP status 503 for http://a.example/"),
        ("KeyError: 'price'", "KeyError: 'name'"),
        ("KeyError: 'price' (shop.py:31 in parse)", "KeyError: 'price' (shop.py:40 in parse)"),
    ],
)
def test_what_has_another_remedy_is_another_cause(one: str, other: str) -> None:
    assert cause_of("r", one, "h").id != cause_of("r", other, "h").id
    assert cause_of("r", one, "h").id != cause_of("r", one, "other").id
    assert cause_of("r", one, "h").id != cause_of("s", one, "h").id


def test_the_line_of_the_spider_is_told_apart_from_the_error() -> None:
    cause = cause_of("callback_error", "KeyError: 'a b' (shop.py:31 in parse_item)", "h")
    assert (cause.error, cause.place) == ("KeyError: 'a b'", "shop.py:31 in parse_item")


def test_groups_count_and_know_the_first_and_the_last() -> None:
    groups = Groups()
    for at_ms in (30, 10, 20):
        groups.add(cause_of("timeout", "slow", "a"), at_ms)
    groups.add(cause_of("dns", "gone", "b"), 5)
    first, second = groups.largest_first()
    assert (first.cause.reason, first.count, first.first_ms, first.last_ms) == (
        "timeout",
        3,
        10,
        30,
    )
    assert second.count == 1


def test_causes_without_end_take_no_memory_without_end() -> None:
    groups = Groups(most=3)
    for number in range(100):
        groups.add(cause_of("dns", "no such host", f"h{number}.example"), number + 1)
    told = groups.largest_first()
    assert len(told) == 4
    assert sum(group.count for group in told) == 100
    assert (told[0].count, told[0].cause.host) == (97, ANY_HOST)
