"""The demo shop: 181 products in lists with paging, and what goes wrong on real sites.

Everything follows from the product's number, so that tests can say what must be found.
"""

from __future__ import annotations

from html import escape

PRODUCTS = 181
CATEGORIES = ("tea", "coffee", "books", "garden", "music", "toys")
PAGE_SIZE = 12

BUSY = 23
"""Answers 429 with `Retry-After: 1` to the first request."""
SLOW = 42
"""Answers after two seconds."""
BROKEN = 66
"""Says UTF-8, is GBK, and its tags do not close; the product can be read all the same."""
FAILING = 99
"""Always answers 500."""

GOOD_PRODUCTS = PRODUCTS - 1
"""Products that a crawl can get: all but `FAILING`."""

ROBOTS = "User-agent: *\nDisallow: /admin\n"


def category_of(number: int) -> str:
    return CATEGORIES[number % len(CATEGORIES)]


def numbers_of(category: str) -> list[int]:
    return [number for number in range(1, PRODUCTS + 1) if category_of(number) == category]


def list_pages(category: str) -> int:
    return -(-len(numbers_of(category)) // PAGE_SIZE)


def product_url(number: int) -> str:
    return f"/product?category={category_of(number)}&id={number}"


def good_pages() -> int:
    """Pages that a full crawl gets: home, about, lists and products; redirects not counted."""
    return 2 + sum(list_pages(category) for category in CATEGORIES) + GOOD_PRODUCTS


def home() -> str:
    categories = "".join(
        f'<li><a class="category" href="/list?category={name}&amp;page=1">{name}</a></li>'
        for name in CATEGORIES
    )
    deals = "".join(f'<a class="deal" href="/p/{number}">deal {number}</a> ' for number in (7, 77))
    return _page(
        "Orbweb shop",
        f'<ul>{categories}</ul><p>{deals}</p><a href="/about">about</a>'
        '<footer><a href="/admin">admin</a> <a href="mailto:shop@shop.example">mail</a>'
        ' <a href="javascript:void(0)">top</a> <a href="http://partner.example/">partner</a>'
        "</footer>",
    )


def about() -> str:
    return _page("About", '<p>A shop that exists only for crawlers.</p><a href="/">home</a>')


def listing(category: str, page: int) -> str | None:
    """A list page, or None when there is no such page."""
    if category not in CATEGORIES or not 1 <= page <= list_pages(category):
        return None
    numbers = numbers_of(category)[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    rows = "".join(
        f'<li class="row"><a class="product" href="{escape(product_url(number))}">'
        f"{_name(number)}</a></li>"
        for number in numbers
    )
    following = (
        f'<a class="next" href="?category={category}&amp;page={page + 1}">next</a>'
        if page < list_pages(category)
        else ""
    )
    return _page(f"{category}, page {page}", f"<ul>{rows}</ul>{following}")


def product(number: int) -> str | None:
    """A detail page, or None when there is no such product.

    Its links to other products write the query in another order, or with a tracking parameter.
    """
    if not 1 <= number <= PRODUCTS:
        return None
    swapped, tracked = number % PRODUCTS + 1, (number + 9) % PRODUCTS + 1
    return _page(
        _name(number),
        f'<h1 class="name">{_name(number)}</h1><p class="price">{number * 1.25:.2f}</p>'
        f'<p class="category">{category_of(number)}</p><p class="stock">{number % 10}</p>'
        f'<a class="related" href="/product?id={swapped}&amp;category={category_of(swapped)}">'
        f'{_name(swapped)}</a> <a class="related" href="{escape(product_url(tracked))}'
        f'&amp;utm_source=related">{_name(tracked)}</a>',
    )


def broken_product() -> bytes:
    """The body of `BROKEN`, as its server sends it."""
    return (
        f'<html><head><meta charset="gbk"><title>茶壶 {BROKEN}</title><body><div>'
        f"<h1 class=name>茶壶 {BROKEN}<p class=price>{BROKEN * 1.25:.2f}"
        f"<p class=category>{category_of(BROKEN)}<p class=stock>{BROKEN % 10}<table><tr><td>&nbsp"
    ).encode("gbk")


def _name(number: int) -> str:
    return f"{category_of(number)} {number}"


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{escape(title)}</title></head>'
        f"<body>{body}</body></html>"
    )
