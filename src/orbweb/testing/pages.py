"""Pages made to measure: a link tree, flat pages, news lists, and pages of a fixed weight.

Each page is a pure function of its URL, and its links repeat the parameters that shape the site.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlencode


@dataclass(frozen=True, slots=True)
class Tree:
    """A forest of `of` pages. Page n < `roots` has no parent; the parent of every other is lower.

    Every page links to its children (`a.child`) and to `cross` pages anywhere (`a.cross`), and
    holds `items` items (`li.item`, whose text is "n-i").
    """

    of: int
    roots: int = 4
    fan: int = 4
    cross: int = 2
    items: int = 1

    def url(self, n: int) -> str:
        shape = {"roots": self.roots, "fan": self.fan, "cross": self.cross, "items": self.items}
        return f"/tree?{urlencode({'n': n, 'of': self.of, **shape})}"

    def root_urls(self) -> list[str]:
        return [self.url(n) for n in range(min(self.roots, self.of))]

    def children(self, n: int) -> range:
        first = self.roots + n * self.fan
        return range(min(first, self.of), min(first + self.fan, self.of))

    def crossing(self, n: int) -> list[int]:
        return [(n * 7919 + 13 + j * 104_729) % self.of for j in range(self.cross)]

    def page(self, n: int) -> str | None:
        if not 0 <= n < self.of:
            return None
        links = [self._link("child", child) for child in self.children(n)]
        links += [self._link("cross", other) for other in self.crossing(n)]
        return f"<html><body>{_items(n, self.items)}{' '.join(links)}</body></html>"

    def _link(self, kind: str, n: int) -> str:
        return f'<a class="{kind}" href="{self.url(n).replace("&", "&amp;")}">{n}</a>'


def flat(n: int, items: int) -> str:
    """A page without links."""
    return f"<html><body><h1>{n}</h1>{_items(n, items)}</body></html>"


def news(page: int, details: int) -> str:
    """List page `page` with links (`a.title`) to `details` articles of its own."""
    links = "".join(
        f'<li><a class="title" href="/article?id={number}">news {number}</a></li>'
        for number in range((page - 1) * details + 1, page * details + 1)
    )
    return f"<html><body><ul>{links}</ul></body></html>"


def article(number: int) -> str:
    return (
        f'<html><body><h1 class="title">news {number}</h1>'
        f'<div class="content">What happened, number {number}.</div></body></html>'
    )


def bench(n: int, of: int, links: int, size_bytes: int) -> str | None:
    """A page of `size_bytes` with `links` links (`a.link`); from page 0 all `of` can be reached."""
    if not 0 <= n < of:
        return None
    shape = f"of={of}&amp;links={links}&amp;size={size_bytes}"
    hrefs = "".join(
        f'<li><a class="link" href="/bench?n={(n * links + j) % of}&amp;{shape}">link {j}</a></li>'
        for j in range(1, links + 1)
    )
    head = f"<!doctype html><html><head><title>page {n}</title></head><body><h1>{n}</h1><ul>"
    tail = "</ul></body></html>"
    room = size_bytes - len(head) - len(hrefs) - len(tail)
    return f"{head}{hrefs}{_filler(max(0, room))}{tail}"


def _items(n: int, count: int) -> str:
    rows = "".join(f'<li class="item">{n}-{i}</li>' for i in range(count))
    return f"<ul>{rows}</ul>"


@lru_cache(maxsize=1024)
def _filler(size_bytes: int) -> str:
    """Text of exactly this size, with as many elements as an ordinary page has."""
    block = '<p class="text">The quick <b>brown</b> fox jumps over the <i>lazy</i> dog again.</p>\n'
    return (block * (size_bytes // len(block))) + " " * (size_bytes % len(block))
