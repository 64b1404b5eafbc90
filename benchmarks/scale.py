"""What a claim costs when the frontier is full: hosts that cool, URLs that wait, many nodes.

    .venv/bin/python benchmarks/scale.py [empty] [cooling] [pending] [fleet] [memory]
        [--most 1000000]

empty: claims that find nothing, turn about on frontiers of all sizes, so that whatever else the
machine does meets all of them; the server's CPU time of each. cooling: so many hosts have a URL
left and may not be fetched for an hour; a claim finds nothing, or 16 new hosts between them.
pending: so many URLs wait on 1,000 hosts that are all due; a claim takes 16. Both with 1 node and
with 16 that live. fleet: a claim of 16 with more nodes. memory: bytes of a URL that waits, with a
path of 60 bytes and what a followed link carries.

`p50` and `p99` are what the client waits for a claim. `cpu` is the growth of `used_cpu_user +
used_cpu_sys` in INFO over the claims alone, so it hardly depends on what else the machine does: the
median of five rounds. The frontier's clock is turned by hand, a millisecond a call.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.lua.direct import DirectClient, run_now
from tests.servers import Server

from orbweb.frontier.base import Ack, NewRequest, RunConfig
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.model.codec import encode
from orbweb.model.fingerprint import request_id
from orbweb.model.request import DEFAULT_PRIORITY, Request

HOUR_MS = 3_600_000
LEASE_MS = 3_600_000
WANT = 16
GROUP, GROUPS, ROUNDS = 20, 10, 5
EMPTY_CLAIMS = 3_000
PATH = "/catalogue/item-of-the-shop/and-its-page/24/0000000000000000"
MIX = 0x9E3779B97F4A7C15
"""Spreads numbers over 64 bits: what stands for a fingerprint."""


def link_payload(host: str) -> bytes:
    """What is stored of a link with a path of 60 bytes; the last 16 are to be replaced."""
    link = Request(f"https://{host}{PATH}")
    link.callback, link.depth, link.parent_id = "parse_item", 3, "0123456789abcdef"
    return encode(link)


class Frontier:
    """A run on a server of its own, with a clock that is turned by hand."""

    def __init__(self, kind: str, config: RunConfig) -> None:
        self.server = Server(kind)
        self.client = DirectClient(self.server.socket)
        self.frontier = ValkeyFrontier(self.client, prefix="bench", job="scale")  # type: ignore[arg-type]
        self.now = 1_800_000_000_000
        self.numbers = count(1)
        self.seqs = count(1)
        self.run(self.frontier.open(config))
        token = self.run(self.frontier.seed_claim("seeder", 1, LEASE_MS)).token
        self.run(self.frontier.seed_push(token, 1, True, []))

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        self.now += 1
        self.frontier.caller.time = self.now
        return run_now(call)

    def close(self) -> None:
        self.client.close()
        self.server.stop()

    def cpu_us(self) -> float:
        lines = self.client.call("INFO", "cpu").decode().splitlines()
        cpu = dict(line.split(":", 1) for line in lines if ":" in line)
        return (float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])) * 1e6

    def exact_cpu_us(self) -> float:
        """What the server's main thread used: finer than INFO, which is told of in ticks."""
        assert self.server.process
        stat = Path(f"/proc/{self.server.process.pid}/schedstat")
        return int(stat.read_text().split()[0]) / 1e3

    def memory(self) -> int:
        lines = self.client.call("INFO", "memory").decode().splitlines()
        return int(dict(line.split(":", 1) for line in lines if ":" in line)["used_memory"])

    def link(self, host: str, payload: bytes, *, seen: bool = True) -> NewRequest:
        number = next(self.numbers) * MIX % 2**64
        id = request_id(number)
        print_ = number - 2**63 if seen else None
        body = payload.replace(b"0" * 16, id.encode(), 1)
        return NewRequest(id, host, DEFAULT_PRIORITY, print_, body)

    def fill(self, urls: int, hosts: int, *, seen: bool = True, first: int = 0) -> None:
        """Add so many URLs, each host in turn: links of a site come a page at a time."""
        names = [f"www.shop{first + n:07}.example" for n in range(hosts)]
        run_length = min(20, max(1, urls // hosts))
        requests = []
        for n in range(urls):
            if n % run_length == 0:
                host = names[n // run_length % hosts]
                payload = link_payload(host)
            requests.append(self.link(host, payload, seen=seen))
            if len(requests) == 1000 or n == urls - 1:
                self.run(self.frontier.add(requests))
                requests = []

    def cool(self) -> None:
        """Leave hosts as a claim of an hour's gap leaves them, without as many claims."""
        at = self.now + HOUR_MS
        names = self.client.call("ZRANGE", self.frontier.run.ready, 0, -1)
        for name in names:
            record = self.frontier.shard.host(name.decode())
            self.client.send("ZADD", self.frontier.run.ready, at, name)
            self.client.send("ZADD", self.frontier.shard.next_allowed, at, name)
            self.client.send("HSET", record, "rate", 1000, "rate_at", self.now, "taken", 1)
            for _ in range(3):
                self.client.answer()

    def claim(self, node: str, want: int) -> tuple[float, list[Ack]]:
        """How long it took (us), and what finishes what it handed out."""
        began = time.perf_counter()
        leases = self.run(self.frontier.claim(node, next(self.seqs), want, LEASE_MS)).leases
        took = (time.perf_counter() - began) * 1e6
        return took, [Ack(*lease.held, "done") for lease in leases]

    def live(self, nodes: int) -> list[str]:
        names = [f"node{n}:{n * MIX % 2**64:016x}" for n in range(nodes)]
        for name in names:
            self.run(self.frontier.renew(name, LEASE_MS, [], b""))
        return names

    def measure(self, nodes: int, before: Callable[[], None] | None = None) -> str:
        """Claims of `nodes` in turn, as cells of a table; what they get is finished between."""
        names = self.live(nodes)
        waits: list[float] = []
        rounds = []
        got = 0
        for _ in range(ROUNDS):
            spent = 0.0
            for _ in range(GROUPS):
                if before:
                    before()
                acks: list[Ack] = []
                start = self.cpu_us()
                for n in range(GROUP):
                    took, its_acks = self.claim(names[n % nodes], WANT)
                    waits.append(took)
                    acks += its_acks
                spent += self.cpu_us() - start
                got += len(acks)
                self.finish(acks)
            rounds.append(spent / GROUPS / GROUP)
        waits.sort()
        p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
        each = got / ROUNDS / GROUPS / GROUP
        cpu = statistics.median(rounds)
        a_url = f"{cpu / each:.1f}" if each else "–"
        return f"{nodes} | {p50:.0f} | {p99:.0f} | {cpu:.0f} | {each:.1f} | {a_url} |"

    def finish(self, acks: list[Ack]) -> None:
        if acks:
            self.run(self.frontier.fetched([(ack.id, ack.token) for ack in acks]))
            self.run(self.frontier.ack(acks))


def cooling(kind: str, hosts: int) -> Iterator[str]:
    """Every host has a URL left and may not be fetched for an hour."""
    bench = Frontier(kind, RunConfig(host_delay_ms=HOUR_MS))
    try:
        bench.fill(hosts, hosts)
        bench.cool()
        first = hosts

        def new_hosts() -> None:
            nonlocal first
            bench.fill(WANT * GROUP, WANT * GROUP, first=first)
            first += WANT * GROUP

        for nodes in (1, 16):
            yield f"| {hosts:,} cool, none is due | {bench.measure(nodes)}"
        for nodes in (1, 16):
            yield f"| {hosts:,} cool, some are due | {bench.measure(nodes, new_hosts)}"
    finally:
        bench.close()


def empty(kind: str, most: int) -> Iterator[str]:
    """Claims that find nothing because every host cools, all sizes in turn."""
    sizes = [hosts for hosts in (1_000, 100_000, 1_000_000) if hosts <= most]
    benches = {hosts: Frontier(kind, RunConfig(host_delay_ms=HOUR_MS)) for hosts in sizes}
    try:
        for hosts, bench in benches.items():
            bench.fill(hosts, hosts)
            bench.cool()
        for nodes in (1, 16):
            spent: dict[int, list[float]] = {hosts: [] for hosts in sizes}
            names = {hosts: bench.live(nodes) for hosts, bench in benches.items()}
            for n in range(EMPTY_CLAIMS):
                for hosts, bench in benches.items():
                    start = bench.exact_cpu_us()
                    bench.claim(names[hosts][n % nodes], WANT)
                    spent[hosts].append(bench.exact_cpu_us() - start)
            for hosts, each in spent.items():
                each.sort()
                p50, p90, p99 = (each[len(each) * part // 100] for part in (50, 90, 99))
                mean = statistics.mean(each)
                yield f"| {hosts:,} | {nodes} | {mean:.0f} | {p50:.0f} | {p90:.0f} | {p99:.0f} |"
    finally:
        for bench in benches.values():
            bench.close()


def pending(kind: str, urls: int) -> Iterator[str]:
    """All hosts are due."""
    bench = Frontier(kind, RunConfig())
    try:
        bench.fill(urls, 1000)
        for nodes in (1, 16):
            yield f"| {urls:,} wait, 1,000 hosts are due | {bench.measure(nodes)}"
    finally:
        bench.close()


def fleet(kind: str, _most: int) -> Iterator[str]:
    """All hosts are due, with and without a gap, for ever more nodes."""
    for delay in (0, 200):
        bench = Frontier(kind, RunConfig(host_delay_ms=delay))
        try:
            bench.fill(100_000, 10_000)
            for nodes in (1, 4, 16, 100):
                yield f"| 10,000 hosts, delay {delay} ms | {bench.measure(nodes)}"
        finally:
            bench.close()


def memory(kind: str, most: int) -> Iterator[str]:
    """By the number of URLs a host has; and what the set of seen URLs is of it."""
    urls = min(most, 1_000_000)
    for seen in (True, False):
        for of_a_host in (1, 10, 100, 1_000, 100_000):
            bench = Frontier(kind, RunConfig())
            try:
                empty = bench.memory()
                bench.fill(urls, max(1, urls // of_a_host), seen=seen)
                each = (bench.memory() - empty) / urls
                yield f"| {of_a_host:,} | {'with' if seen else 'without'} | {each:.0f} |"
            finally:
                bench.close()


CLAIM_HEAD = (
    "| frontier | nodes | p50 us | p99 us | cpu us | URLs | cpu us a URL |\n"
    "|---|---|---|---|---|---|---|"
)
EMPTY_HEAD = (
    "| hosts that cool | nodes | mean us | p50 us | p90 us | p99 us |\n|---|---|---|---|---|---|"
)
MEMORY_HEAD = "| URLs a host | seen set | bytes a URL |\n|---|---|---|"


def tables(kind: str, wanted: list[str], most: int) -> Iterator[str]:
    if "empty" in wanted:
        yield EMPTY_HEAD
        yield from empty(kind, most)
    if "cooling" in wanted:
        yield CLAIM_HEAD
        for hosts in (1_000, 100_000, 1_000_000):
            if hosts <= most:
                yield from cooling(kind, hosts)
    if "pending" in wanted:
        yield CLAIM_HEAD
        for urls in (100_000, 1_000_000, 10_000_000):
            if urls <= most:
                yield from pending(kind, urls)
    if "fleet" in wanted:
        yield CLAIM_HEAD
        yield from fleet(kind, most)
    if "memory" in wanted:
        yield MEMORY_HEAD
        yield from memory(kind, most)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = ("empty", "cooling", "pending", "fleet", "memory")
    parser.add_argument("parts", nargs="*", choices=parts, default=list(parts), metavar="part")
    parser.add_argument("--most", type=int, default=1_000_000, help="hosts or URLs, at most")
    parser.add_argument("--server", default="valkey", choices=("valkey", "redis"))
    options = parser.parse_args()
    for line in tables(options.server, options.parts, options.most):
        print(line, flush=True)


if __name__ == "__main__":
    main()
