"""Server time a page and memory a URL of the frontier, without downloads: the store's own cost.

    .venv/bin/python benchmarks/frontier.py [pages]

A node claims 50 requests, gives their slots back and acknowledges them with 20 links each: 8 that
every page has (a menu), 12 drawn from all pages.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from redis.asyncio import Redis

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers import Server, redis_binary

from orbweb.frontier.base import Ack, NewRequest, RunConfig
from orbweb.frontier.valkey import ValkeyFrontier

BATCH = 50
LEASE_MS = 60_000


def request(number: int) -> NewRequest:
    mixed = number * 0x9E3779B97F4A7C15 % 2**64
    host = f"shop{number % 3}.example"
    return NewRequest(f"{mixed:016x}", host, 0, mixed - 2**63, b"x" * 80)


async def cpu_seconds(client: Redis) -> float:
    info = await client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def crawl(client: Redis, pages: int) -> tuple[float, int]:
    """Server microseconds a page, and pages crawled."""
    luck = random.Random(1)
    frontier = ValkeyFrontier(client, prefix="bench", job="crawl")
    await frontier.open(RunConfig())
    token = (await frontier.seed_claim("node", 1, LEASE_MS)).token
    await frontier.seed_push(token, 1, True, [request(0)])
    before, seq, done = await cpu_seconds(client), 0, 0
    while True:
        seq += 1
        leases = (await frontier.claim("node", seq, BATCH, LEASE_MS)).leases
        if not leases:
            return (await cpu_seconds(client) - before) / done * 1e6, done
        await frontier.fetched([lease.held for lease in leases])
        acks = []
        for lease in leases:
            links = [*range(8), *(luck.randrange(pages) for _ in range(12))]
            acks.append(Ack(*lease.held, "done", 1, [request(link) for link in links]))
        await frontier.ack(acks)
        done += len(leases)


async def bytes_a_url(client: Redis, urls: int) -> tuple[float, float]:
    """Memory of a URL that waits, and of one that was seen."""
    await client.flushall()
    frontier = ValkeyFrontier(client, prefix="bench", job="memory")
    await frontier.open(RunConfig(host_concurrency=0))
    empty = (await client.info("memory"))["used_memory"]
    for start in range(0, urls, 1_000):
        await frontier.add([request(n) for n in range(start, start + 1_000)])
    full = (await client.info("memory"))["used_memory"]
    seq = 0
    while leases := (await frontier.claim("node", seq := seq + 1, 1_000, LEASE_MS)).leases:
        await frontier.ack([Ack(*lease.held, "done") for lease in leases])
    after = (await client.info("memory"))["used_memory"]
    return (full - empty) / urls, (after - empty) / urls


async def measure(kind: str, pages: int) -> None:
    server = Server(kind, aof="everysec")
    client = Redis(unix_socket_path=str(server.socket))
    try:
        micros, done = await crawl(client, pages)
        waiting, seen = await bytes_a_url(client, 100_000)
        print(
            f"{kind}: {micros:.0f} us of server time a page over {done} pages of 20 links; "
            f"{waiting:.0f} bytes a waiting URL with a body of 80, {seen:.1f} bytes a seen URL"
        )
    finally:
        await client.aclose()
        server.stop()


async def main() -> None:
    pages = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    for kind in ("valkey", *(["redis"] if redis_binary() else [])):
        await measure(kind, pages)


if __name__ == "__main__":
    asyncio.run(main())
