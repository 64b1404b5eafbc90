"""How long `orbweb explain` takes when millions of URLs are known, and what its parts cost.

    python benchmarks/explain.py [--seen 1000000] [--pending 100000] [--lines 500000]

Fills a Valkey of its own and a crawl log in a temporary directory, then asks for URLs.
The server's own count of the time that commands took (`INFO commandstats`) is the store time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers import Server

from orbweb.engine.job_rules import JobRules
from orbweb.explain.facts import Inquiry
from orbweb.explain.verdict import verdict_of
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import NewRequest, RunConfig
from orbweb.frontier.servers import OneServer
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.model.codec import encode
from orbweb.model.fingerprint import fingerprint, request_id
from orbweb.model.request import Request
from orbweb.model.url import host_of
from orbweb.monitor.crawl_line import CrawlLine, encode_line, time_text
from orbweb.monitor.log_folder import Keeping, LogFolder
from orbweb.monitor.log_reader import LogReader

ASKED = 200


def url(number: int) -> str:
    return f"http://host{number % 997}.test/p/{number}"


def new(number: int) -> NewRequest:
    request = Request(url(number))
    mark = fingerprint(request)
    return NewRequest(request_id(mark), host_of(request.url), 300, mark, encode(request))


async def fill(admin: Admin, frontier: ValkeyFrontier, seen: int, pending: int) -> None:
    await frontier.open(RunConfig())
    place = await admin.seen.find("bench")
    for start in range(pending, seen, 5000):
        marks = [str(fingerprint(Request(url(n)))).encode() for n in range(start, start + 5000)]
        await admin.seen.learn(place.shards[0], marks)
    for start in range(0, pending, 1000):
        await frontier.add([new(n) for n in range(start, start + 1000)])


def log_lines(count: int, known: int) -> Iterator[bytes]:
    for number in range(count):
        target = url(known - 1 - number)
        yield encode_line(
            CrawlLine(
                time_text(int(time.time() * 1000)), "bench", "", "0" * 32, "done", "done",
                request_id(fingerprint(Request(target))), target, host_of(target), "GET", 200,
                12_345, 143, request_id(fingerprint(Request(url(number)))), items=1, links=12,
            )
        )  # fmt: skip


def write_log(folder: LogFolder, count: int, known: int) -> None:
    path, file = folder.begin("bench", "node", int(time.time() * 1000))
    size = 0
    for line in log_lines(count, known):
        file.write(line)
        size += len(line)
        if size > folder.keeping.segment_bytes:
            folder.pack(path)
            file.close()
            path, file = folder.begin("bench", "node", int(time.time() * 1000))
            size = 0
    file.close()  # the last one stays as a live one would be


def store_us(info: dict[str, Any]) -> int:
    return sum(int(value["usec"]) for value in info.values())


async def measure(arguments: argparse.Namespace, server: Server, directory: Path) -> None:
    servers = OneServer(server.url, 60.0)
    admin = Admin(servers, "orbweb")
    client = servers.of_shard(0)
    frontier = ValkeyFrontier(client, prefix="orbweb", job="bench")
    began = time.perf_counter()
    await fill(admin, frontier, arguments.seen, arguments.pending)
    folder = LogFolder(directory / "log", Keeping(segment_bytes=50 * 2**20))
    write_log(folder, arguments.lines, arguments.seen)
    print(
        f"{arguments.seen:,} known, {arguments.pending:,} of them pending, "
        f"{arguments.lines:,} lines in {len(folder.segments())} segments; "
        f"filled in {time.perf_counter() - began:.0f} s"
    )
    inquiry = Inquiry("bench", LogReader(folder), default_rules=JobRules())
    info = await admin.find("bench")
    rng = random.Random(1)
    kinds = {
        "pending": lambda: url(rng.randrange(arguments.pending)),
        "done": lambda: url(arguments.seen - 1 - rng.randrange(arguments.lines)),
        "unknown": lambda: url(arguments.seen + rng.randrange(10**9)),
    }
    for kind, choose in kinds.items():
        await inquiry.ask(admin, info, choose())
        await client.config_resetstat()
        times = []
        for _ in range(ASKED):
            asked = choose()
            began = time.perf_counter()
            verdict = verdict_of(await inquiry.ask(admin, info, asked))
            times.append((time.perf_counter() - began) * 1000)
        stats = await client.info("commandstats")
        per_ask = store_us({n: v for n, v in stats.items() if "config" not in n}) / ASKED / 1000
        times.sort()
        print(
            f"{kind:<8} {verdict.standing:<8} store {per_ask:.2f} ms; with the log, median "
            f"{statistics.median(times):.1f} ms, 95 % {times[int(ASKED * 0.95)]:.1f} ms"
        )
    await servers.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seen", type=int, default=1_000_000)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--lines", type=int, default=500_000)
    arguments = parser.parse_args()
    server = Server("valkey")
    try:
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(measure(arguments, server, Path(directory)))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
