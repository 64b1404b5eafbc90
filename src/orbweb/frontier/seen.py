"""How seen requests are remembered: the kinds, and sizes that follow from capacity and error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from orbweb.errors import ConfigError


class SeenKind(StrEnum):
    """A way to remember which requests were taken. Fixed when the memory of them is made."""

    EXACT = "exact"
    COMPACT = "compact"
    SET = "set"
    BLOOM = "bloom"
    BLOOM_MODULE = "bloom-module"
    LOCAL = "local"
    """Nothing in the store: each node has a filter of its own (`DEDUP_FILTER` memory or lite)."""

    @property
    def errs(self) -> bool:
        """Whether it can take a new request for a seen one."""
        return self in (SeenKind.COMPACT, SeenKind.BLOOM, SeenKind.BLOOM_MODULE)


WORDS = 16
"""Words of 32 bits in a block of the Bloom filter; a fingerprint sets one bit in each."""

BLOCK_BITS = 32 * WORDS
COMPACT_LOAD = 384
"""Fingerprints in a bucket of `compact` on the average, when its part is full."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of what is seen: its buckets or blocks, and how many requests it is made for."""

    size: int
    capacity: int
    """0: it has no end."""


@dataclass(frozen=True, slots=True)
class SeenConfig:
    """What a run remembers seen requests in."""

    kind: SeenKind = SeenKind.EXACT
    capacity: int = 1_000_000
    """Requests for which the first layer is made (compact, bloom, bloom-module)."""
    error_rate: float = 1e-6
    """How often the first layer takes a new request for a seen one (bloom, bloom-module)."""
    max_layers: int = 4
    """Most layers of bloom."""
    generation_ms: int = 0
    """What is seen is kept in generations of this length, to be forgotten by age; 0 = in one."""

    def layers(self) -> tuple[Layer, ...]:
        """The parts, as far as they are known before: those of compact go on doubling."""
        if self.kind is SeenKind.COMPACT:
            return (Layer(math.ceil(self.capacity / COMPACT_LOAD), self.capacity),)
        if self.kind is SeenKind.BLOOM:
            return tuple(
                Layer(bloom_blocks(self.capacity << n, self.error_rate / 2**n), self.capacity << n)
                for n in range(self.max_layers)
            )
        return (Layer(1 if self.kind is SeenKind.EXACT else 0, 0),)

    def plan(self) -> str:
        """What the store keeps of it, so that nodes with other settings cannot spoil the filter."""
        if self.kind is SeenKind.BLOOM:
            return " ".join(f"{layer.size} {layer.capacity}" for layer in self.layers())
        if self.kind is SeenKind.BLOOM_MODULE:
            return f"{self.error_rate:g} {self.capacity}"
        return str(self.capacity) if self.kind is SeenKind.COMPACT else ""


def parse_layers(plan: str) -> tuple[Layer, ...]:
    """The layers of a bloom filter from its plan."""
    numbers = [int(word) for word in plan.split()]
    return tuple(Layer(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True))


def bloom_error(load: float) -> float:
    """How often a blocked filter errs that holds `load` fingerprints a block on the average.

    The number in a block is Poisson distributed. With j of them each word has the bit that is
    looked for with probability 1 - (31/32)^j, and all words must have it.
    """
    chance, total = math.exp(-load), 0.0
    for held in range(int(load + 20 * math.sqrt(load) + 40)):
        total += chance * (1 - (31 / 32) ** held) ** WORDS
        chance *= load / (held + 1)
    return total


@lru_cache(maxsize=64)
def bloom_blocks(capacity: int, error_rate: float) -> int:
    """The least number of blocks with which a filter of this capacity errs no more than this."""
    low, high = 1e-3, 400.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bloom_error(middle) <= error_rate else (low, middle)
    return max(1, math.ceil(capacity / low))


def other_kind(what: str, job: str, has: str, wanted: str) -> ConfigError:
    """The error of a node that would remember seen requests in another way than the others."""
    owner = f"run of {job}" if what == "run" else f"memory of all runs of {job}"
    undo = f"orbweb reset {job}" if what == "run" else f"orbweb reset {job} --seen"
    return ConfigError(
        f"DEDUP_FILTER is {wanted}, but the {owner} remembers seen URLs as {has}; a kind is fixed "
        f"when it is made. Right would be DEDUP_FILTER = {has}, or to forget it: {undo}"
    )
