"""A worker as a process of its own: `python -m tests.scrapy.worker KIND SITE JSON-SETTINGS`."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from scrapy import Request, Spider, crawler
from scrapy.exceptions import ScrapyDeprecationWarning

from orbweb.adapters.scrapy.spiders import RedisSpider


class Tree(Spider):
    """Every page has one parent."""

    name = "tree"

    def parse(self, response: Any) -> Any:
        yield {"path": response.url}
        for link in response.css("a::attr(href)").getall():
            yield Request(response.urljoin(link))


class RedisTree(RedisSpider):
    """The same, begun from Redis."""

    name = "redis_tree"
    parse = Tree.parse


KINDS: dict[str, type[Spider]] = {"tree": Tree, "redis_tree": RedisTree}


def main() -> None:
    warnings.simplefilter("error", ScrapyDeprecationWarning)
    kind, site, settings = sys.argv[1:]
    spider = KINDS[kind]
    if site:
        spider.start_urls = [site]  # type: ignore[attr-defined]
    kind_of_process = getattr(crawler, "AsyncCrawlerProcess", crawler.CrawlerProcess)
    process = kind_of_process({**json.loads(settings), "LOG_LEVEL": "INFO"})
    process.crawl(spider)
    process.start()


if __name__ == "__main__":
    main()
