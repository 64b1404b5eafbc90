"""Which requests were taken before, in one process: the twin of `seen.lua` and of its kinds."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from orbweb.frontier.seen import BLOCK_BITS, WORDS, Layer, SeenConfig, SeenKind

NINE_DIGITS = 10**9
SEGMENT_BLOCKS = 1024


class Marks(Protocol):
    """What one part of the seen requests holds. Marks are signed 64-bit numbers."""

    def has(self, mark: int) -> bool:
        """Whether it may have been put in."""

    def put(self, mark: int) -> bool:
        """Put it in; False when it was."""

    def drop(self, mark: int) -> bool | None:
        """Take it out; True when it was in, None when this kind cannot."""


class ExactMarks:
    """See `Marks`. Also the twin of `set`, and of a Bloom filter that never errs."""

    def __init__(self, forgets: bool = True) -> None:
        self.members: set[int] = set()
        self._forgets = forgets

    def has(self, mark: int) -> bool:
        return mark in self.members

    def put(self, mark: int) -> bool:
        known = len(self.members)
        self.members.add(mark)
        return len(self.members) > known

    def drop(self, mark: int) -> bool | None:
        if not self._forgets:
            return None
        found = mark in self.members
        self.members.discard(mark)
        return found


class CompactMarks:
    """See `Marks`, and `seen_compact.lua`."""

    def __init__(self, buckets: int) -> None:
        self.members: set[tuple[int, int]] = set()
        self._buckets = buckets

    def _place(self, mark: int) -> tuple[int, int]:
        text = str(mark)
        low, high = int(text[-9:]), text[:-9]
        number = int(high) if high not in ("", "-") else 0
        return low % self._buckets, number % 2**32 - 2**31

    def has(self, mark: int) -> bool:
        return self._place(mark) in self.members

    def put(self, mark: int) -> bool:
        known = len(self.members)
        self.members.add(self._place(mark))
        return len(self.members) > known

    def drop(self, mark: int) -> bool | None:
        place = self._place(mark)
        found = place in self.members
        self.members.discard(place)
        return found


class BloomMarks:
    """See `Marks`, and `seen_bloom.lua`: the same bits."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.segments: dict[int, bytearray] = {}

    def _place(self, mark: int) -> tuple[bytearray | None, int, int, int]:
        text = hashlib.sha1(b"%d" % mark, usedforsecurity=False).hexdigest()
        number, block = divmod(int(text[:10], 16) % self.blocks, SEGMENT_BLOCKS)
        bits = 0
        for word in range(WORDS):
            group, place = divmod(word, 4)
            chosen = int(text[10 + group * 5 : 15 + group * 5], 16) >> 5 * place & 31
            bits |= 1 << 32 * word + chosen
        return self.segments.get(number), number, block * BLOCK_BITS // 8, bits

    def has(self, mark: int) -> bool:
        segment, _, offset, bits = self._place(mark)
        if segment is None:
            return False
        return int.from_bytes(segment[offset : offset + 64], "little") & bits == bits

    def put(self, mark: int) -> bool:
        segment, number, offset, bits = self._place(mark)
        if segment is None:
            blocks = min(SEGMENT_BLOCKS, self.blocks - number * SEGMENT_BLOCKS)
            segment = self.segments[number] = bytearray(blocks * BLOCK_BITS // 8)
        held = int.from_bytes(segment[offset : offset + 64], "little")
        if held & bits == bits:
            return False
        segment[offset : offset + 64] = (held | bits).to_bytes(64, "little")
        return True

    def drop(self, mark: int) -> bool | None:
        return None


@dataclass(slots=True)
class Part:
    """See `seen.lua`."""

    number: int
    marks: Marks
    capacity: int
    layer: int
    begun: int
    count: int = 0


@dataclass(slots=True)
class Seen:
    """Which requests were taken before, in parts. See `seen.lua`. `wall` is the clock, in ms."""

    config: SeenConfig
    wall: int = 0
    parts: list[Part] = field(default_factory=list)
    """The oldest first."""
    sure: set[int] = field(default_factory=set)
    forgotten: Counter[str] = field(default_factory=Counter)
    """How often each host was forgotten."""

    def __post_init__(self) -> None:
        if not self.parts:
            layer = self.config.layers()[0]
            self.parts.append(Part(1, self._marks(layer.size), layer.capacity, 0, self.wall))

    def __len__(self) -> int:
        return sum(part.count for part in self.parts)

    @property
    def capacity(self) -> int:
        """Requests for which all layers together are made; 0 = no end."""
        if self.config.kind is not SeenKind.BLOOM:
            return 0
        return sum(layer.capacity for layer in self.config.layers())

    @property
    def fill(self) -> float:
        """How much of the capacity is used: 1 = full; 0 where there is no end."""
        if not self.capacity:
            return 0.0
        last = self.parts[-1]
        before = sum(layer.capacity for layer in self.config.layers()[: last.layer])
        return (before + last.count) / self.capacity

    def has(self, fingerprint: int, host: str, wall: int, *, sure: bool = False) -> bool:
        """Whether it counts as seen. `sure`: by the exact set beside a kind that errs."""
        self._turn(wall)
        mark = self._mark(fingerprint, host)
        if sure and self.config.kind.errs:
            return mark in self.sure
        return any(part.marks.has(mark) for part in self.parts)

    def put(self, fingerprint: int, host: str, *, sure: bool = False) -> None:
        """Remember it; it was looked up before and did not count as seen."""
        mark, last = self._mark(fingerprint, host), self.parts[-1]
        if last.capacity and last.count >= last.capacity and (layer := self._following(last)):
            last = self._begin(layer, last.layer + 1)
        last.count += last.marks.put(mark)
        if sure and self.config.kind.errs:
            self.sure.add(mark)

    def forget(self, fingerprint: int, host: str, wall: int) -> int:
        """Let it enter again: 1 it was seen, 0 it was not, -1 this kind cannot forget one."""
        self._turn(wall)
        mark, found = self._mark(fingerprint, host), 0
        for part in self.parts:
            dropped = part.marks.drop(mark)
            if dropped is None:
                return -1
            part.count -= dropped
            found |= dropped
        if mark in self.sure:
            self.sure.discard(mark)
            found = 1
        return found

    def forget_host(self, host: str, wall: int) -> int:
        """Let all of a host enter again; returns how often it was forgotten."""
        self._turn(wall)
        self.forgotten[host] += 1
        return self.forgotten[host]

    def forget_older(self, age_ms: int, wall: int) -> int:
        """Drop the parts all of which is older; returns how many requests were forgotten."""
        self._turn(wall)
        kept = len(self.parts) - 1
        while kept > 0 and wall - self.parts[kept].begun < age_ms:
            kept -= 1
        old = self.parts[:kept]
        del self.parts[:kept]
        return sum(part.count for part in old)

    def _marks(self, size: int) -> Marks:
        kind = self.config.kind
        if kind is SeenKind.COMPACT:
            return CompactMarks(size)
        if kind is SeenKind.BLOOM:
            return BloomMarks(size)
        return ExactMarks(forgets=kind is not SeenKind.BLOOM_MODULE)

    def _turn(self, wall: int) -> None:
        """Begin another generation when the last one is old."""
        self.wall = wall
        last, age = self.parts[-1], self.config.generation_ms
        if not age or wall - last.begun < age:
            return
        if last.count:
            self._begin(Layer(self._size(last), last.capacity), last.layer)
        else:  # a generation begins when there is something in it
            last.begun = wall

    def _begin(self, layer: Layer, number: int) -> Part:
        part = Part(
            self.parts[-1].number + 1, self._marks(layer.size), layer.capacity, number, self.wall
        )
        self.parts.append(part)
        return part

    def _following(self, part: Part) -> Layer | None:
        """The layer after this one, which is full."""
        if self.config.kind is SeenKind.COMPACT:
            return Layer(self._size(part) * 2, part.capacity * 2)
        layers = self.config.layers()
        return layers[part.layer + 1] if part.layer + 1 < len(layers) else None

    def _size(self, part: Part) -> int:
        if self.config.kind is SeenKind.COMPACT:
            return self.config.layers()[0].size << part.layer
        layers = self.config.layers()
        return layers[part.layer].size

    def _mark(self, fingerprint: int, host: str) -> int:
        times = self.forgotten.get(host, 0)
        return after_forgetting(fingerprint, times) if times else fingerprint


def after_forgetting(mark: int, times: int) -> int:
    """See `after_forgetting` in `seen.lua`."""
    text = hashlib.sha1(b"%d %d" % (times, mark), usedforsecurity=False).hexdigest()
    high = int(text[1:11], 16) % 9223372035 + 1
    number = high * NINE_DIGITS + int(text[11:21], 16) % NINE_DIGITS
    return -number if text[0] < "8" else number
