"""What a scrape of the fleet's metrics costs: CPU of the exporter and of the server.

    .venv/bin/python benchmarks/metrics.py [hosts [scrapes]]

A run with so many hosts (five URLs each), 50 nodes with full heartbeats, and 200 runs that ended
long ago. `orbweb metrics serve` is scraped over HTTP; its CPU is what it says itself between the
second and the last scrape, so its start is not counted. At one every 15 s one percent is 150 ms.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers import Server

from orbweb.engine.gauge import with_counts
from orbweb.frontier.base import NewRequest, RunConfig
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.server import connect
from orbweb.frontier.totals import RunTotals
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.model.reasons import Reason
from orbweb.monitor.counts import Counts, encode
from orbweb.monitor.quality import Tally

NODES = 50
PAST_RUNS = 200
SCRAPE_SECONDS = 15


def counts() -> Counts:
    """A node that has seen something of everything."""
    found, tally = Counts(), Tally()
    for reason in Reason:
        found.ended(reason, 1000)
    for place in range(10):
        found.answered(200, 0.02 * place, 1000 * place)
        found.waited(0.02 * place)
        found.store_answered(0.001 * place)
        found.item(f"table{place}", "stored", 1000)
        tally.see(f"table{place}", {f"field{number}": number % 3 or None for number in range(15)})
    found.see(tally)
    return found


async def fill(url: str, hosts: int) -> None:
    """Write the runs into an empty store."""
    client = connect(url, 30)
    for number in range(PAST_RUNS):
        past = ValkeyFrontier(client, prefix="orbweb", job="past", run=f"r{number}")
        keys = ShardKeys("orbweb").run("past", f"r{number}", (await past.open(RunConfig())).epoch)
        reply = await past.seed_claim("n", 1, 60_000)
        await past.seed_push(reply.token, 1, True, [])
        await client.hset(keys.meta, "finished", "1")
    run = ValkeyFrontier(client, prefix="orbweb", job="shop", run="now")
    opened = await run.open(RunConfig(host_delay_ms=100))
    for host in range(0, hosts, 100):
        await run.add(
            [
                NewRequest(f"{one}-{n}", f"host{one}.test", 0, one * 10 + n, b"x" * 200)
                for one in range(host, min(host + 100, hosts))
                for n in range(5)
            ]
        )
    totals = RunTotals(client, "orbweb", "shop", "now")
    totals.attach(opened.epoch)
    vitals = {"cpu": 50.0, "rss": 10**8, "mem_total": 10**10, "received": 10**9, "sent": 10**8}
    beat = {"host": "machine", "pid": 4711, "pages": 10, "items": 9, "failed": 1, "vitals": vitals}
    for node in range(NODES):
        name = f"{node:032x}"[::-1]
        await run.renew(name, 600_000, [], with_counts(dict(beat), counts()))
        await totals.tell(name, encode(counts()), again=False)
    await client.aclose()


def scrape(url: str) -> tuple[float, int, float]:
    """CPU seconds of the exporter so far, bytes of its page, seconds that it took."""
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=60) as answer:
        page: bytes = answer.read()
    found = re.search(rb"^orbweb_exporter_cpu_seconds_total (\S+)$", page, re.MULTILINE)
    assert found is not None
    return float(found[1]), len(page), time.perf_counter() - began


def main(hosts: int = 10_000, scrapes: int = 20) -> None:
    server = Server("valkey")
    exporter = None
    try:
        asyncio.run(fill(server.url, hosts))
        exporter = subprocess.Popen(
            [
                *(sys.executable, "-m", "orbweb", "metrics", "serve"),
                *("--port", "0", "--store", server.url),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert exporter.stdout is not None
        url = exporter.stdout.readline().strip()
        first, *_ = scrape(url)  # walks over all hosts, once
        first, *_ = scrape(url)
        before = server_cpu(server)
        rounds = [scrape(url) for _ in range(scrapes)]
        served = (server_cpu(server) - before) / scrapes
        spent = (rounds[-1][0] - first) / scrapes
    finally:
        if exporter is not None:
            exporter.kill()
            exporter.wait()
        server.stop()
    seconds = statistics.median(each[2] for each in rounds)
    print(f"{hosts:,} hosts, {NODES} nodes, {PAST_RUNS} past runs; page of {rounds[-1][1]:,} bytes")
    print(f"exporter  {spent * 1000:6.1f} ms CPU a scrape = {spent / SCRAPE_SECONDS:.2%} of a core")
    print(
        f"server    {served * 1000:6.1f} ms CPU a scrape = {served / SCRAPE_SECONDS:.2%} of a core"
    )
    print(f"a scrape took {seconds * 1000:.0f} ms")


def server_cpu(server: Server) -> float:
    found = server.client().info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
