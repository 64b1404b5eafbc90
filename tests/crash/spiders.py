"""The spiders of the crash tests: `python spiders.py CLASS [keep_alive]`, the site in $SITE."""

import os
import signal
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import orbweb as mw
from orbweb.testing.pages import Tree

SITE = os.environ.get("SITE", "")
PAGES = int(os.environ.get("PAGES", "400"))


class NewsSpider(mw.Spider):
    """The first document's spider: list pages that link to details."""

    def start_requests(self):
        for page in range(1, 100):
            yield mw.Request(f"{SITE}/news?p={page}", callback=self.parse)

    def parse(self, request, response):
        for link in response.css("a.title"):
            yield response.follow(link, callback=self.parse_detail)

    def parse_detail(self, request, response):
        yield {"url": response.url, "title": response.css("h1::text").get()}


class TreeSpider(mw.Spider):
    """Follows every link of a forest."""

    def start_requests(self):
        for url in Tree(of=PAGES).root_urls():
            yield mw.Request(SITE + url, callback=self.parse)

    def parse(self, request, response):
        for text in response.css("li.item::text").getall():
            yield {"item": text}
        yield from response.follow_all(css="a", callback=self.parse)


HOSTS = int(os.environ.get("HOSTS", "1"))


def spread(url):
    """The same page on one of the site's hosts, always the same one."""
    page = int(parse_qs(urlsplit(url).query)["n"][0])
    return url.replace("//127.0.0.1:", f"//127.0.0.{1 + page % HOSTS}:")


class SpreadTreeSpider(TreeSpider):
    """The forest, its pages on $HOSTS hosts that link to each other."""

    def start_requests(self):
        for url in Tree(of=PAGES).root_urls():
            yield mw.Request(spread(SITE + url), callback=self.parse)

    def parse(self, request, response):
        for text in response.css("li.item::text").getall():
            yield {"item": text}
        for link in response.css("a::attr(href)").getall():
            yield mw.Request(spread(SITE + link), callback=self.parse)


class FlatSpider(mw.Spider):
    """Seeds without links; $SEED_DELAY makes the generator slow, $WORK the callback."""

    def start_requests(self):
        for n in range(PAGES):
            time.sleep(float(os.environ.get("SEED_DELAY", "0")))
            yield mw.Request(spread(f"{SITE}/flat?n={n}"), callback=self.parse)

    def parse(self, request, response):
        time.sleep(float(os.environ.get("WORK", "0")))
        for text in response.css("li.item::text").getall():
            yield {"item": text}


class RowsSpider(FlatSpider):
    """$ITEMS rows for the table `items` from each page."""

    def parse(self, request, response):
        time.sleep(float(os.environ.get("WORK", "0")))
        (text,) = response.css("li.item::text").getall()
        for number in range(int(os.environ.get("ITEMS", "10"))):
            yield {"page": int(text.partition("-")[0]), "number": number}


class PoisonSpider(FlatSpider):
    """Page 7 kills the process that parses it."""

    def parse(self, request, response):
        if request.url.endswith("n=7"):
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().parse(request, response)


class WaitingSpider(mw.Spider):
    """Every page asks to come back much later."""

    def start_requests(self):
        for n in range(20):
            yield mw.Request(f"{SITE}/status?code=429&retry_after=50&id={n}", callback=self.parse)

    def parse(self, request, response):
        yield {"url": response.url}


class PoliteOne(mw.Spider):
    """Many pages of each of $HOSTS addresses of this machine."""

    def start_requests(self):
        for page in range(PAGES):
            for host in range(1, int(os.environ["HOSTS"]) + 1):
                url = f"http://127.0.0.{host}:{os.environ['PORT']}/{type(self).__name__}/{page}"
                yield mw.Request(url, callback=self.parse)

    def parse(self, request, response):
        return None


class PoliteTwo(PoliteOne):
    """Another job on the same hosts."""


class NothingSpider(mw.Spider):
    """Has no seeds."""

    def start_requests(self):
        return iter(())


class TableSpider(mw.BatchSpider):
    """A page for each row of the table `task`; a row whose page is missing fails."""

    __task_table__ = "task"

    def task_requests(self, task):
        yield mw.Request(f"{SITE}{task['url']}&batch={self.batch}", callback=self.parse)

    def parse(self, request, response, task):
        time.sleep(float(os.environ.get("WORK", "0")))
        yield {"row": task["id"], "batch": self.batch}


class SlowPipeline(mw.BasePipeline):
    """Writes one file, $BATCH_SECONDS for each batch, and syncs it."""

    def save_items(self, table, items):
        time.sleep(float(os.environ["BATCH_SECONDS"]))
        with Path("slow.txt").open("a") as file:
            file.write("".join(f"{item['_key']} {item['item']}\n" for item in items))
            file.flush()
            os.fsync(file.fileno())
        return True


if __name__ == "__main__":
    spider = globals()[sys.argv[1]](keep_alive="keep_alive" in sys.argv or None)
    if "monitor" in sys.argv:
        spider.start_monitor()
    else:
        spider.start()
