"""What a page costs: a bare client + parsel loop, `AirSpider` and `Spider`, side by side.

    python benchmarks/crawl.py [--pages 2000] [--rounds 3]

A local site serves pages of 10 KB with 20 links, from a process of its own. Each candidate follows
every link in a process of its own. CPU is user + system time of that process (getrusage), so it
hardly depends on what else the machine does; of the store's server it is the growth of
`used_cpu_user + used_cpu_sys` in INFO. Memory is the process's peak resident set.
The rounds are interleaved; medians are printed, and ratios to the bare loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import redis

from orbweb.frontier.embedded_server import server_program

CANDIDATES = ("bare", "air", "spider")
SETTINGS = {
    "CONCURRENT_REQUESTS": 32,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 0,
    "ROBOTS_OBEY": False,
    "LOG_LEVEL": "WARNING",
}


async def bare(site: str, pages: int) -> int:
    """The least that a crawler must do: fetch, parse, follow what is new."""
    import aiohttp
    from parsel import Selector
    from yarl import URL

    seen: set[str] = set()
    queue: asyncio.Queue[str] = asyncio.Queue()

    def follow(url: str) -> None:
        if url not in seen:
            seen.add(url)
            queue.put_nowait(url)

    async def work(session: aiohttp.ClientSession) -> None:
        while True:
            url = await queue.get()
            async with session.get(URL(url, encoded=True)) as response:
                selector = Selector(body=await response.read(), encoding="utf-8", type="html")
            selector.css("h1::text").get()
            for href in selector.css("a::attr(href)").getall():
                follow(site + href)
            queue.task_done()

    follow(f"{site}/bench?n=0&of={pages}&links=20&size=10240")
    connector = aiohttp.TCPConnector(limit=32)
    async with aiohttp.ClientSession(connector=connector) as session:
        workers = [asyncio.create_task(work(session)) for _ in range(32)]
        await queue.join()
        for worker in workers:
            worker.cancel()
    return len(seen)


def crawl(kind: str, site: str, pages: int) -> int:
    """The same with a spider. Items go to a JSON Lines file, synced to disk."""
    import orbweb

    base = orbweb.AirSpider if kind == "air" else orbweb.Spider

    class Bench(base):  # type: ignore[misc,valid-type]
        custom_settings = SETTINGS

        def start_requests(self) -> Any:
            url = f"{site}/bench?n=0&of={pages}&links=20&size=10240"
            yield orbweb.Request(url, callback=self.parse)

        def parse(self, request: Any, response: Any) -> Any:
            yield {"title": response.css("h1::text").get()}
            yield from response.follow_all(css="a", callback=self.parse)

    return int(Bench().run().reasons["done"])


def child(kind: str, site: str, pages: int) -> None:
    began = time.perf_counter()
    if kind == "bare":
        import uvloop

        done = uvloop.run(bare(site, pages))
    else:
        done = crawl(kind, site, pages)
    print("RESULT", json.dumps({"pages": done, "seconds": time.perf_counter() - began}))


def measure(kind: str, site: str, pages: int, socket: Path) -> dict[str, float]:
    """One run of one candidate in a process and a directory of its own."""
    server = redis.Redis(unix_socket_path=str(socket))
    server.flushall()
    before = server.info("cpu")
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--child", kind, "--site", site, "--pages", str(pages)]
        environment = os.environ | {"ORBWEB_REDIS_URL": f"unix://{socket}"}
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    result = json.loads(line.partition(" ")[2])
    if result["pages"] != pages:
        raise SystemExit(f"{kind} crawled {result['pages']} of {pages} pages:\n{output}")
    after = server.info("cpu")
    fields = ("used_cpu_user", "used_cpu_sys")
    return {
        "cpu_us": (usage.ru_utime + usage.ru_stime) / pages * 1e6,
        "server_us": sum(float(after[f]) - float(before[f]) for f in fields) / pages * 1e6,
        "pages_s": pages / result["seconds"],
        "rss_mb": usage.ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=CANDIDATES, help=argparse.SUPPRESS)
    parser.add_argument("--site", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.site, options.pages)
        return
    directory = Path(tempfile.mkdtemp(prefix="orbweb-bench-"))
    socket = directory / "s"
    arguments = ("--port", "0", "--unixsocket", str(socket), "--dir", str(directory))
    arguments += ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
    server = subprocess.Popen([str(server_program()), *arguments], stdout=subprocess.DEVNULL)
    site = subprocess.Popen(
        [sys.executable, "-m", "orbweb.testing.site"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert site.stdout
        url = site.stdout.readline().strip()
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in CANDIDATES}
        for _ in range(options.rounds):
            for kind in CANDIDATES:
                runs[kind].append(measure(kind, url, options.pages, socket))
        report(runs, options.pages)
    finally:
        site.terminate()
        server.terminate()


def report(runs: dict[str, list[dict[str, float]]], pages: int) -> None:
    print(f"{pages} pages of 10 KB with 20 links; medians of {len(runs['bare'])} rounds")
    print("| candidate | CPU µs a page | ratio | server µs a page | pages/s | peak RSS MB |")
    print("|---|---|---|---|---|---|")
    bare_us = statistics.median(run["cpu_us"] for run in runs["bare"])
    for kind, measured in runs.items():
        middle = {key: statistics.median(run[key] for run in measured) for key in measured[0]}
        print(
            f"| {kind} | {middle['cpu_us']:.0f} | {middle['cpu_us'] / bare_us:.2f} "
            f"| {middle['server_us']:.0f} | {middle['pages_s']:.0f} | {middle['rss_mb']:.0f} |"
        )


if __name__ == "__main__":
    main()
