"""The pages of the demo site: every one can be reached, and they are what the site says."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from orbweb.testing import pages, shop
from orbweb.testing.pages import Tree


def numbers(html: str, kind: str) -> list[int]:
    hrefs = re.findall(rf'class="{kind}" href="([^"]+)"', html)
    return [int(parse_qs(urlsplit(href.replace("&amp;", "&")).query)["n"][0]) for href in hrefs]


@pytest.mark.parametrize("tree", [Tree(1), Tree(3), Tree(500), Tree(97, roots=1, fan=7, cross=0)])
def test_each_page_of_the_tree_has_one_parent_or_is_a_root(tree: Tree):
    children = [child for n in range(tree.of) for child in tree.children(n)]
    assert sorted(children) == list(range(min(tree.roots, tree.of), tree.of))


def test_a_tree_page_links_to_children_and_others_and_holds_its_items():
    tree = Tree(100, roots=2, fan=3, cross=2, items=2)
    html = tree.page(5) or ""
    assert numbers(html, "child") == [17, 18, 19]
    assert numbers(html, "cross") == tree.crossing(5)
    assert re.findall(r'<li class="item">(.*?)</li>', html) == ["5-0", "5-1"]
    assert tree.page(100) is None


def test_the_bench_site_is_reachable_from_its_first_page_and_has_its_weight():
    seen, waiting = {0}, [0]
    while waiting:
        html = pages.bench(waiting.pop(), 300, 20, 10_240)
        assert html is not None
        assert len(html.encode()) == 10_240
        found = numbers(html, "link")
        assert len(found) == 20
        waiting += set(found) - seen
        seen.update(found)
    assert seen == set(range(300))


def test_the_shop_lists_every_product_once():
    listed = re.findall(
        r'class="product" href="[^"]*id=(\d+)"',
        "".join(
            shop.listing(category, page) or ""
            for category in shop.CATEGORIES
            for page in range(1, shop.list_pages(category) + 1)
        ),
    )
    assert sorted(map(int, listed)) == list(range(1, shop.PRODUCTS + 1))


def test_lists_and_products_end_where_they_say():
    assert shop.listing("tea", shop.list_pages("tea") + 1) is None
    assert 'class="next"' not in (shop.listing("tea", shop.list_pages("tea")) or "")
    assert shop.listing("cars", 1) is None
    assert shop.product(0) is None
    assert shop.product(shop.PRODUCTS + 1) is None
