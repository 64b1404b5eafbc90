"""One process, no store: what a script of a few hundred pages needs.

Callbacks are written as in Scrapy, and one of them is `async def`.
"""

import asyncio

import orbweb as mw


class TeaSpider(mw.AirSpider):
    start_urls = ("http://127.0.0.1:7273/list?category=tea&page=1",)
    custom_settings = {"ITEM_DEFAULT_TABLE": "tea", "CONCURRENT_REQUESTS": 4}

    def parse(self, response):
        yield from response.follow_all(css="a.product", callback=self.parse_product)
        yield from response.follow_all(css="a.next", callback=self.parse)

    async def parse_product(self, response):
        await asyncio.sleep(0)  # await an API or a database here
        yield {
            "name": response.css("h1::text").get(),
            "price": float(response.css(".price::text").get()),
        }


if __name__ == "__main__":
    TeaSpider().start()
