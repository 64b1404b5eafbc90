"""Spiders with tasks that the crash tests start as processes. $SITE is the site."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path

import orbweb as mw

SITE = os.environ.get("SITE", "")


class ProductSpider(mw.TaskSpider):
    """The one of NetSpy's documentation; its shop is elsewhere."""

    def task_requests(self, task):
        yield mw.Request(
            f"{SITE}/p/{task['id']}",
            callback=self.parse,
            cb_kwargs={"task": task},
        )

    def parse(self, request, response, task):
        yield {"id": task["id"], "price": response.css(".price::text").get()}


class TableSpider(mw.TaskSpider):
    """Says of each task in a table that it is done. Its requests ask nobody for anything."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = sqlite3.connect("tasks.db", timeout=60, check_same_thread=False)
        self.table.execute("PRAGMA synchronous = OFF")

    async def task_requests(self, task):
        yield self.empty(task["id"], 0)

    async def parse(self, request, response, task, depth):
        if task % 10 == 0 and depth < 2:
            yield self.empty(task, depth + 1)

    async def task_done(self, task):
        self.table.execute("UPDATE task SET done = 1, told = told + 1 WHERE id = ?", (task["id"],))
        self.table.commit()

    def empty(self, task, depth):
        url = f"http://nowhere.invalid/{task}/{depth}"
        return mw.Request(url, auto_request=False, cb_kwargs={"task": task, "depth": depth})


class RowsSpider(mw.TaskSpider):
    """Takes rows of a table in PostgreSQL; its first node dies when it has marked some."""

    def fetch_tasks(self, limit):
        import psycopg

        with psycopg.connect(os.environ["DATABASE"]) as db:
            rows = db.execute(
                "UPDATE crawl_task SET status = 1 WHERE id IN (SELECT id FROM crawl_task "
                "WHERE status = 0 ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING id",
                (limit,),
            ).fetchall()
        if rows and not Path("died").exists():
            Path("died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [{"id": id} for (id,) in rows]

    def recover_tasks(self, open_tasks):
        import psycopg

        known = [task["id"] for task in open_tasks]
        with psycopg.connect(os.environ["DATABASE"]) as db:
            db.execute(
                "UPDATE crawl_task SET status = 0 WHERE status = 1 AND id <> ALL(%s)", (known,)
            )

    def task_requests(self, task):
        yield mw.Request(f"{SITE}/flat?n={task['id']}&of=1000")

    def parse(self, response):
        return None

    def task_done(self, task):
        import psycopg

        with psycopg.connect(os.environ["DATABASE"]) as db:
            db.execute("UPDATE crawl_task SET status = 2 WHERE id = %s", (task["id"],))


if __name__ == "__main__":
    spider = globals()[sys.argv[1]]
    if "push" in sys.argv:
        first, last = map(int, sys.argv[3:])
        print(spider.push_tasks(*({"id": n} for n in range(first, last))))
    else:
        spider(keep_alive="keep_alive" in sys.argv or None).start()
