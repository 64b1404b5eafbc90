"""What Orbweb costs a Scrapy project: beside plain Scrapy and scrapy-redis.

    python benchmarks/scrapy.py [--pages 2000] [--rounds 3] [--idle 60] [--beside]

A local site serves pages of 9 KB with 20 links, from a process of its own. Each candidate follows
every link, with 32 requests at once, in a process of its own (`x2`: in two). Pages a second are
told by the site, from the first request to the last; CPU is user + system time of the workers,
start and imports included. `1 ms`: a proxy stands before the store and holds every request for
1 ms. Round trips are counted by the server: a transaction or a script is one. The rounds are
interleaved; medians are printed, and ratios to plain Scrapy of the same round.

`--beside`: each candidate runs at the same time as a plain Scrapy, to which its ratio is given.
That is fair where the machine has other work, and hard on threads where it has not.

`--idle SECONDS`: what a worker that waits for start URLs asks of the store in that time, and how
long after a push the site is asked for the page.

scrapy-redis takes part if it can be imported (`pip install scrapy-redis`).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import redis

from orbweb.frontier.embedded_server import server_program
from orbweb.testing.origin import Hit, OriginLog

CONCURRENT = 32
SIZE = 9000
DELAY_SECONDS = 0.001
PUSHES = 15
CALLS = ("evalsha", "eval", "info", "blmove", "waitaof", "rpush", "config|get", "time")
"""Commands that scripts do not call: each is a round trip of Orbweb's."""
IN_TRANSACTION = ("multi", "zrange", "zremrangebyrank")
"""Commands of scrapy-redis that travel with an EXEC."""


class Case(NamedTuple):
    kind: str
    workers: int = 1
    slow: bool = False

    def __str__(self) -> str:
        return f"{self.kind}{' x2' if self.workers == 2 else ''}{', 1 ms' if self.slow else ''}"


class Figures(NamedTuple):
    pages_a_second: float
    cpu_ms: float
    round_trips: float
    ratio: float = 0.0
    cpu_ratio: float = 0.0


# -- a worker


def work(kind: str, start: str, store: str) -> None:
    """Run one worker of a kind to its end; prints its CPU seconds."""
    from scrapy import Spider
    from scrapy.crawler import AsyncCrawlerProcess

    class Bench(Spider):
        name = "bench"
        start_urls = (start,)

        def parse(self, response: Any) -> Any:
            yield {"url": response.url, "title": response.css("h1::text").get()}
            for link in response.css("a::attr(href)").getall():
                yield response.follow(link)

    spider: type[Spider] = Bench
    settings: dict[str, Any] = {
        "CONCURRENT_REQUESTS": CONCURRENT,
        "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENT,
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "MAX_IDLE_TIME_BEFORE_CLOSE": 6,
        "REDIS_URL": store,
    }
    if kind == "scrapy-redis":
        from scrapy_redis.spiders import RedisSpider

        class RedisBench(RedisSpider, Bench):  # type: ignore[misc]
            name = "bench"
            redis_key = "bench:start"

        spider = RedisBench
        settings["SCHEDULER"] = "scrapy_redis.scheduler.Scheduler"
        settings["DUPEFILTER_CLASS"] = "scrapy_redis.dupefilter.RFPDupeFilter"
        settings["SCHEDULER_PERSIST"] = True
    elif kind == "waiting":
        from orbweb.adapters.scrapy.spiders import RedisSpider as OurSpider

        class Waiting(OurSpider, Bench):
            name = "bench"
            redis_key = "bench:start"

        spider = Waiting
        settings["MAX_IDLE_TIME_BEFORE_CLOSE"] = 0
    if kind in ("orbweb", "waiting"):
        settings["ADDONS"] = {"orbweb.adapters.scrapy.Addon": 1}
    process = AsyncCrawlerProcess(settings)
    process.crawl(spider)
    process.start()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps(usage.ru_utime + usage.ru_stime))


# -- the slow way to the store


async def delay(port: int, to: int) -> None:
    """Pass bytes on; what goes to the store waits first."""
    loop = asyncio.get_running_loop()

    async def pass_on(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, by: float
    ) -> None:
        while data := await reader.read(1 << 20):
            loop.call_later(by, writer.write, data) if by else writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store_reader, store_writer = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(
            pass_on(reader, store_writer, DELAY_SECONDS), pass_on(store_reader, writer, 0)
        )

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


# -- the measurement


class Bench:
    """The processes of all rounds, and what they are asked."""

    def __init__(self, directory: Path, pages: int) -> None:
        self.pages = pages
        self.directory = directory
        self.log = directory / "origin.jsonl"
        self.port, self.slow_port = free_port(), free_port()
        self.store = redis.Redis(port=self.port)
        self.children: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Bench:
        self._start(
            [str(server_program()), "--port", str(self.port), "--save", "", "--appendonly", "yes"]
        )
        self._start([*PYTHON, __file__, "delay", str(self.slow_port), str(self.port)])
        site = self._start([*PYTHON, "-m", "orbweb.testing.site", "--log", str(self.log)])
        assert site.stdout
        self.site = site.stdout.readline().strip()
        until_answers(self.port)
        until_answers(self.slow_port)
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.terminate()
            child.wait()

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=self.directory, stderr=sys.stderr
        )
        self.children.append(child)
        return child

    def worker(self, kind: str, size: int, *, slow: bool = False) -> subprocess.Popen[str]:
        port = self.slow_port if slow else self.port
        store = f"redis://127.0.0.1:{port}/0"
        words = [*PYTHON, __file__, "work", kind, self.start_url(size), store]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=self.directory)

    def start_url(self, size: int) -> str:
        """Pages of so many bytes are a site of their own, for crawls beside each other."""
        return f"{self.site}/bench?n=0&of={self.pages}&size={size}"

    def run(self, case: Case, *, beside: bool) -> tuple[Figures, Figures | None]:
        """Crawl the site once; also the figures of a plain Scrapy that ran beside it."""
        self.store.flushall()
        self.store.config_resetstat()
        before = len(OriginLog.read(self.log))
        if case.kind == "scrapy-redis":
            self.store.lpush("bench:start", self.start_url(SIZE))
        plain = self.worker("plain", SIZE + 1) if beside else None
        workers = [self.worker(case.kind, SIZE, slow=case.slow) for _ in range(case.workers)]
        cpu = sum(cpu_of(worker) for worker in workers)
        trips = self.round_trips(case.kind)
        plain_cpu = cpu_of(plain) if plain else 0.0
        hits = OriginLog.read(self.log).hits[before:]
        other = self.figures(hits, SIZE + 1, plain_cpu, 0) if plain else None
        return self.figures(hits, SIZE, cpu, trips), other

    def figures(self, hits: tuple[Hit, ...], size: int, cpu: float, trips: int) -> Figures:
        own = [hit for hit in hits if hit.path.endswith(f"size={size}")]
        asked = {hit.path for hit in own}
        assert len(asked) >= self.pages, f"{len(asked)} of {self.pages} pages"
        seconds = max(hit.t for hit in own) - min(hit.t for hit in own)
        return Figures(len(own) / seconds, 1000 * cpu / len(own), trips / len(own))

    def round_trips(self, kind: str) -> int:
        stats = {name[8:]: each["calls"] for name, each in self.store.info("commandstats").items()}
        if kind == "scrapy-redis":
            counted = set(stats) - set(IN_TRANSACTION)
        else:
            counted = set(CALLS) & set(stats)
        return sum(stats[name] for name in counted)

    def idle(self, seconds: float) -> None:
        """What a worker that waits costs, and how soon it begins."""
        self.store.flushall()
        worker = self.worker("waiting", SIZE)
        try:
            time.sleep(8)
            self.store.config_resetstat()
            time.sleep(seconds)
            stats = self.store.info("commandstats")
            calls = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in CALLS[:5])
            print(f"\nidle: {calls * 60 / seconds:.1f} commands a minute")
            waits = [self._pick_up(number) for number in range(PUSHES)]
            print(
                f"a start URL is asked for {1000 * statistics.median(waits):.0f} ms after its push "
                f"(median of {PUSHES}; most {1000 * max(waits):.0f} ms)"
            )
        finally:
            worker.terminate()
            worker.wait()

    def _pick_up(self, number: int) -> float:
        time.sleep(0.5)
        pushed = time.time()
        self.store.lpush("bench:start", f"{self.site}/flat?n={number}")
        while True:
            for hit in reversed(OriginLog.read(self.log).hits):
                if hit.path == f"/flat?n={number}" and hit.t >= pushed:
                    return hit.t - pushed
            time.sleep(0.02)


def cpu_of(worker: subprocess.Popen[str]) -> float:
    """Its CPU seconds, when it has ended."""
    return float(worker.communicate()[0].split()[-1])


PYTHON = [sys.executable, "-P"]  # this file's name is that of Scrapy's package


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until_answers(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return


def measure(bench: Bench, rounds: int, *, beside: bool) -> None:
    cases = [Case("orbweb"), Case("orbweb", slow=True), Case("orbweb", 2)]
    if importlib.util.find_spec("scrapy_redis"):
        cases += [Case("scrapy-redis"), Case("scrapy-redis", slow=True), Case("scrapy-redis", 2)]
    else:
        print("scrapy-redis cannot be imported and is left out")
    if not beside:
        cases.insert(0, Case("plain"))
    found: dict[Case, list[Figures]] = {case: [] for case in cases}
    plain: Figures | None = None
    for _ in range(rounds):
        for case in cases:
            figures, other = bench.run(case, beside=beside)
            plain = other or (figures if case.kind == "plain" else plain)
            assert plain is not None
            figures = figures._replace(
                ratio=figures.pages_a_second / plain.pages_a_second,
                cpu_ratio=figures.cpu_ms / plain.cpu_ms,
            )
            found[case].append(figures)
            print(f"  {case}: {figures.pages_a_second:.0f}/s, {figures.ratio:.2f}", flush=True)
    print("\n| candidate | pages/s | ratio | CPU ms a page | ratio | round trips a page |")
    print("|---|---|---|---|---|---|")
    for case, runs in found.items():
        middle = [statistics.median(column) for column in zip(*runs, strict=True)]
        rate, cpu, trips, ratio, cpu_ratio = middle
        shown = f"{trips:.2f}" if case.kind != "plain" else "–"
        print(f"| {case} | {rate:.0f} | {ratio:.2f} | {cpu:.2f} | {cpu_ratio:.2f} | {shown} |")


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["delay"]:
        asyncio.run(delay(int(sys.argv[2]), int(sys.argv[3])))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds; 0: leave it out")
    parser.add_argument("--beside", action="store_true")
    options = parser.parse_args()
    os.environ["PYTHONWARNINGS"] = "ignore"  # scrapy-redis has one for every request
    with tempfile.TemporaryDirectory() as directory, Bench(Path(directory), options.pages) as bench:
        if options.rounds:
            measure(bench, options.rounds, beside=options.beside)
        if options.idle:
            bench.idle(options.idle)


if __name__ == "__main__":
    main()
