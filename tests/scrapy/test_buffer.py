"""Which of the requests that a worker holds Scrapy is given next."""

from __future__ import annotations

from scrapy import Request

from orbweb.adapters.scrapy.buffer import Buffer
from orbweb.adapters.scrapy.work import Work


def filled(limit: int, *waiting: tuple[str, int, str]) -> Buffer:
    """A buffer with works in slots, named by a URL."""
    buffer = Buffer(lambda slot: limit)
    for slot, priority, name in waiting:
        buffer.put(slot, priority, Work(None, Request(f"http://{slot}/{name}")))
    return buffer


def drained(buffer: Buffer) -> list[str]:
    names = []
    while (work := buffer.pop()) is not None:
        assert work.request is not None
        names.append(work.request.url.rpartition("/")[2])
    return names


def test_a_host_gets_no_more_than_its_limit_until_one_leaves() -> None:
    buffer = filled(2, *[("a", 0, str(n)) for n in range(4)])
    assert buffer.startable == 2
    first, second = buffer.pop(), buffer.pop()
    assert first is not None
    assert second is not None
    assert buffer.pop() is None
    buffer.leave(first)
    buffer.leave(first)  # told twice: counted once
    assert drained(buffer) == ["2"]
    assert len(buffer) == 1


def test_the_host_with_the_fewest_requests_under_way_comes_first() -> None:
    buffer = filled(9, *[("a", 0, f"a{n}") for n in range(3)], ("b", 5, "b0"), ("b", 5, "b1"))
    assert drained(buffer) == ["a0", "b0", "a1", "b1", "a2"]


def test_smaller_priorities_come_first_then_the_order_of_arrival() -> None:
    buffer = filled(0, ("a", 2, "x"), ("a", -1, "first"), ("a", 2, "y"), ("a", 0, "second"))
    assert buffer.startable == 4  # no limit
    assert drained(buffer) == ["first", "second", "x", "y"]


def test_what_is_taken_out_is_not_given_out() -> None:
    buffer = filled(9, *[("a", n, str(n)) for n in range(4)])
    lost = list(buffer)[1]
    assert buffer.remove(lost)
    assert not buffer.remove(lost)
    assert drained(buffer) == ["0", "2", "3"]
    assert len(buffer) == 0
    assert buffer.clear() == []
