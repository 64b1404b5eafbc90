"""The spiders of the tests of alarms: `python alarm_spiders.py CLASS`, the site in $SITE.

Files in the working directory switch faults on: `sink-down`, `disk-full`, `loop-stuck`,
`source-away`.
"""

import os
import sys
import time
from pathlib import Path

import orbweb as mw

SITE = os.environ.get("SITE", "")
PAGES = int(os.environ.get("PAGES", "2000"))
QUERY = os.environ.get("QUERY", "")


def block_if_told():
    """What no coroutine should do: stop its whole event loop."""
    if Path("loop-stuck").exists():
        Path("loop-stuck").rename("loop-was-stuck")
        time.sleep(float(os.environ["STUCK"]))


class FaultyPipeline(mw.BasePipeline):
    """Keeps rows in a file; fails as long as a file says so."""

    def save_items(self, table, items):
        if Path("sink-down").exists():
            raise ConnectionError("database is away")
        target = "/dev/full" if Path("disk-full").exists() else "rows"
        with open(target, "a", buffering=1) as rows:
            rows.writelines(f"{row}\n" for row in items)
        return True


class Pages(mw.Spider):
    """Many pages, each with an item."""

    def start_requests(self):
        for n in range(PAGES):
            yield mw.Request(f"{SITE}/flat?n={n}&of={PAGES}{QUERY}", callback=self.parse)

    async def parse(self, response):
        block_if_told()
        yield {"url": response.url}


class Refused(Pages):
    """Pages of a site that wants none of it, as long as a file says so."""

    def start_requests(self):
        for n in range(PAGES):
            yield mw.Request(f"{SITE}/status?code=429&id={n}", callback=self.parse)
        yield from super().start_requests()


class Nameless(Pages):
    """Pages of hosts that have no address, and a site that goes on."""

    def start_requests(self):
        for n in range(60):
            yield mw.Request(f"http://nobody-{n}.invalid/", callback=self.parse)
        yield from super().start_requests()


class Nothing(Pages):
    """Has no seeds, as long as a file says so."""

    def start_requests(self):
        if not Path("no-seeds").exists():
            yield from super().start_requests()


class Tasks(mw.TaskSpider):
    """Asks a source for tasks that may be away."""

    def fetch_tasks(self, limit):
        if Path("source-away").exists():
            raise ConnectionError("no route to the table")
        return []

    def task_requests(self, task):
        yield mw.Request(f"{SITE}/flat?n={task['id']}", callback=self.parse)

    def parse(self, response):
        return None


if __name__ == "__main__":
    globals()[sys.argv[1]](keep_alive="keep_alive" in sys.argv or None).start()
