"""Items with names and types, and a pipeline of one's own that stores them in SQLite."""

import sqlite3
from dataclasses import dataclass

import orbweb as mw


class Product(mw.Item):
    table_name = "products"


@dataclass
class Category:
    name: str
    pages: int


class SqlitePipeline(mw.BasePipeline):
    """A row that arrives twice, after a crash, replaces itself: `_key` is the same."""

    def __init__(self, path):
        self.connection = sqlite3.connect(path, check_same_thread=False)

    @classmethod
    def from_settings(cls, settings):
        return cls(settings.get("X_SQLITE_PATH", "items.sqlite"))

    def save_items(self, table, items):
        columns = [*items[0]]
        names = ", ".join(f'"{name}"' for name in columns)
        marks = ", ".join("?" for _ in columns)
        with self.connection:  # one transaction: all rows or none
            self.connection.execute(
                f'CREATE TABLE IF NOT EXISTS "{table}" ({names}, PRIMARY KEY (_key))'
            )
            self.connection.executemany(
                f'INSERT OR REPLACE INTO "{table}" ({names}) VALUES ({marks})',
                [[row.get(name) for name in columns] for row in items],
            )
        return True  # only now is the page acknowledged

    def close(self):
        self.connection.close()


class ItemsSpider(mw.Spider):
    start_urls = ("http://127.0.0.1:7273/list?category=books&page=1",)
    custom_settings = {
        "ITEM_PIPELINES": ["items.SqlitePipeline"],
        "X_SQLITE_PATH": "shop.sqlite",
    }

    def parse(self, request, response):
        more = response.css("a.next")
        if not more:
            title = response.css("title::text").get()
            name, _, page = title.partition(", page ")
            yield Category(name, int(page))
        yield from response.follow_all(css="a.product", callback=self.parse_product)
        yield from response.follow_all(more, callback=self.parse)

    def parse_product(self, request, response):
        item = Product()
        item["name"] = response.css("h1::text").get()
        item["price"] = float(response.css(".price::text").get())
        yield item


if __name__ == "__main__":
    ItemsSpider().start()
