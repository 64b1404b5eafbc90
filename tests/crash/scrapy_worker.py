"""A Scrapy worker for the crash tests: `python scrapy_worker.py SPIDER [SETTING=VALUE …]`.

The site is in $SITE, the store in $STORE. Every item is in $ITEMS, one line each, when its pipeline
returns. `REACTOR=1` runs it on Twisted's asyncio reactor, else it runs without a reactor.
"""

import json
import os
import sys
import warnings

import scrapy
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.exceptions import ScrapyDeprecationWarning

from orbweb.adapters.scrapy.spiders import RedisSpider
from orbweb.testing.pages import Tree

SITE = os.environ["SITE"]
PAGES = int(os.environ.get("PAGES", "400"))
QUERY = os.environ.get("QUERY", "")


class TreeSpider(scrapy.Spider):
    """Follows every link of a forest. In `cross=0` each page has one parent."""

    name = "tree"

    async def start(self):
        for url in Tree(of=PAGES).root_urls():
            yield scrapy.Request(SITE + url + QUERY)

    def parse(self, response):
        yield {"item": response.css("li.item::text").get()}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


class ListedTreeSpider(RedisSpider, TreeSpider):
    """The same, its roots from a list."""

    name = "listed"
    redis_key = "roots"


class Lines:
    """An item is on disk when `process_item` returns."""

    def __init__(self):
        self.file = open(os.environ["ITEMS"], "a", buffering=1)  # noqa: SIM115

    async def process_item(self, item):
        self.file.write(json.dumps(item) + "\n")
        return item


def main():
    warnings.filterwarnings("error", category=ScrapyDeprecationWarning)
    spider = {one.name: one for one in (TreeSpider, ListedTreeSpider)}[sys.argv[1]]
    settings = {
        "ADDONS": {"orbweb.adapters.scrapy.Addon": 1},
        "REDIS_URL": os.environ["STORE"],
        "TWISTED_REACTOR_ENABLED": os.environ.get("REACTOR") == "1",
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "LOG_LEVEL": "INFO",
        "ITEM_PIPELINES": {Lines: 1},
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        **dict(one.split("=", 1) for one in sys.argv[2:]),
    }
    process = AsyncCrawlerProcess(settings)
    process.crawl(spider)
    process.start()


if __name__ == "__main__":
    main()
