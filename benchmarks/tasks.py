"""Tasks a second of one node, and server time a task, with requests that ask nobody for anything.

    .venv/bin/python benchmarks/tasks.py [tasks]

Each task yields one request with `auto_request=False` and is told when it is done: three leases a
task. `nothing` yields no request: two leases. Plain `def` methods run in threads, `async` ones do
not.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from redis.asyncio import Redis

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers import Server

import orbweb as mw
from orbweb.frontier.tasks import ValkeyTaskList, new_tasks
from orbweb.spiders.build import run_spider
from orbweb.spiders.start import Start


class Nothing(mw.TaskSpider):
    """Yields no request."""

    told = 0

    async def task_requests(self, task):
        return

    async def task_done(self, task):
        self.told += 1


class Empty(Nothing):
    """Yields a request that is not fetched."""

    async def task_requests(self, task):
        yield mw.Request(f"http://empty.invalid/{task}", auto_request=False)

    async def parse(self, request, response):
        return


class Plain(Empty):
    """The same with plain methods."""

    def task_requests(self, task):
        yield mw.Request(f"http://empty.invalid/{task}", auto_request=False)

    def parse(self, request, response):
        return

    def task_done(self, task):
        self.told += 1


async def push(server: Server, key: str, tasks: int) -> None:
    client = Redis(unix_socket_path=str(server.socket))
    await client.flushall()
    await ValkeyTaskList(client, "orbweb", key).push(new_tasks(range(tasks)))
    await client.aclose()


async def cpu_seconds(server: Server) -> float:
    client = Redis(unix_socket_path=str(server.socket))
    info = await client.info("cpu")
    await client.aclose()
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def measure(kind: type[Nothing], server: Server, tasks: int) -> None:
    asyncio.run(push(server, kind.__name__, tasks))
    spider = kind(item_handler=print)
    settings = {
        "REDIS_URL": f"unix://{server.socket}",
        "TASK_POLL_INTERVAL": 0.05,
        "TASK_EXHAUST_POLLS": 1,
        "CONCURRENT_REQUESTS": 100,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 0,
        "LOG_LEVEL": "ERROR",
        "RUN_SUMMARY_ENABLE": False,
    }
    before, mine = asyncio.run(cpu_seconds(server)), time.process_time()
    began = time.monotonic()
    run_spider(spider, Start(overrides=settings, live=False))
    seconds, cpu = time.monotonic() - began, time.process_time() - mine
    assert spider.told == tasks, spider.told
    micros = (asyncio.run(cpu_seconds(server)) - before) / tasks * 1e6
    print(
        f"{kind.__name__.lower()}: {tasks / seconds:.0f} tasks/s ({seconds:.1f} s), "
        f"{cpu / tasks * 1e6:.0f} us of the node's CPU and {micros:.0f} us of the server's a task"
    )


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    server = Server("valkey", aof="everysec")
    os.chdir(tempfile.mkdtemp(prefix="orbweb-bench-"))
    try:
        for kind in (Nothing, Empty, Plain):
            measure(kind, server, tasks)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
