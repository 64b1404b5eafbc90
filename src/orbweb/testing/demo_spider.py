"""The spider of `orbweb demo`: a shop with lists and products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import orbweb
from orbweb import Request, Response


class DemoSpider(orbweb.Spider):
    """Crawls the demo shop. `site` is its address."""

    allowed_domains = ("127.0.0.1",)
    custom_settings: ClassVar = {"DROP_QUERY_PARAMS": ["utm_source"]}
    site = "http://127.0.0.1:7273"

    def start_requests(self) -> Iterator[Request]:
        yield Request(f"{self.site}/", callback=self.parse_home)

    def parse_home(self, response: Response) -> Iterator[Request]:
        yield from response.follow_all(css="a.category", callback=self.parse_list)
        yield from response.follow_all(css="a.deal", callback=self.parse_product)
        yield from response.follow_all(css="a:not(.category):not(.deal)", callback=self.parse_other)

    def parse_list(self, response: Response) -> Iterator[Request]:
        yield from response.follow_all(css="a.product, a.related", callback=self.parse_product)
        yield from response.follow_all(css="a.next", callback=self.parse_list)

    def parse_product(self, response: Response) -> Iterator[Any]:
        yield {
            "name": response.css("h1::text").get(),
            "price": float(response.css(".price::text").get("nan")),
            "category": response.css(".category::text").get(),
            "url": response.url,
        }
        yield from response.follow_all(css="a.related", callback=self.parse_product)

    def parse_other(self, response: Response) -> None:
        """Pages about the shop: nothing to keep."""
