"""What a store remembers of seen requests, in numbers; and the alert before a filter is full."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from orbweb.errors import StoreUnavailable
from orbweb.frontier.memory_seen import Seen
from orbweb.frontier.seen import SeenKind, parse_layers
from orbweb.frontier.server import answer_of, wall_ms
from orbweb.log import event, get_logger

log = get_logger("orbweb.frontier")


@dataclass(frozen=True, slots=True)
class PartState:
    """One part of what is seen: a layer, or a generation."""

    number: int
    count: int
    size: int
    """Buckets or blocks; the kind's own business."""
    capacity: int
    """Requests for which it is made; 0 = no end."""
    layer: int
    begun_ms: int
    """When it began, server's wall clock, milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class SeenState:
    """Everything about what a run, or all runs of a job, have seen, but the requests themselves."""

    kind: SeenKind
    plan: str
    generation_ms: int
    parts: tuple[PartState, ...]
    """The oldest first."""
    sure: int
    """Requests that no error of the filter may drop."""
    forgotten_hosts: Mapping[str, int]
    warned_at_ms: int
    """When `DEDUP_WARN_FILL_RATE` was reached; 0 = it was not."""
    full_at_ms: int
    """When the last layer was found over-full; 0 = it was not."""

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)

    @property
    def capacity(self) -> int:
        """Requests for which all layers together are made; 0 = no end."""
        if self.kind is not SeenKind.BLOOM:
            return 0
        return sum(layer.capacity for layer in parse_layers(self.plan))

    @property
    def fill(self) -> float:
        """How much of the capacity is used: 1 = full; 0 where there is no end."""
        if not self.capacity:
            return 0.0
        last = self.parts[-1]
        before = sum(layer.capacity for layer in parse_layers(self.plan)[: last.layer])
        return (before + last.count) / self.capacity

    @property
    def over_full(self) -> bool:
        return self.fill > 1.0


async def read_seen(client: Redis, base: str) -> SeenState | None:
    """What is remembered under a key; None when there is nothing. May raise `StoreUnavailable`."""
    try:
        async with client.pipeline(transaction=True) as reading:
            reading.hgetall(base)
            reading.hgetall(f"{base}:parts")
            reading.scard(f"{base}:sure")
            reading.hgetall(f"{base}:hosts")
            head, records, sure, hosts = await reading.execute()
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"the store does not answer: {error}") from error
    return _state(head, records, sure, hosts) if head else None


def _state(
    head: Mapping[bytes, bytes], records: Mapping[bytes, bytes], sure: int, hosts: Any
) -> SeenState:
    numbers = {
        int(number): tuple(int(word) for word in record.split())
        for number, record in records.items()
    }
    names = (b"count", b"size", b"capacity", b"layer", b"begun")
    numbers[int(head[b"part"])] = tuple(int(head[name]) for name in names)
    return SeenState(
        kind=SeenKind(head[b"kind"].decode()),
        plan=head[b"plan"].decode(),
        generation_ms=int(head[b"age"]),
        parts=tuple(PartState(number, *numbers[number]) for number in sorted(numbers)),
        sure=sure,
        forgotten_hosts={host.decode(): int(times) for host, times in hosts.items()},
        warned_at_ms=int(head.get(b"warned", 0)),
        full_at_ms=int(head.get(b"full", 0)),
    )


class FillWatch:
    """Warns once, over all nodes, when a filter fills up, and once when it is over-full."""

    def __init__(self, client: Redis, job: str, warn_at: float) -> None:
        """`warn_at`: part of the capacity."""
        self._client = client
        self._job = job
        self._warn_at = warn_at

    async def look(self, base: str) -> None:
        """Look at what is remembered under a key. May raise `StoreUnavailable`."""
        state = await read_seen(self._client, base)
        if state is None or not state.capacity:
            return
        if state.fill >= self._warn_at and await self._is_first(base, "warned"):
            self._say("dedup_filling", logging.WARNING, state)
        if state.over_full and await self._is_first(base, "full"):
            self._say("dedup_over_full", logging.ERROR, state)

    async def _is_first(self, base: str, field: str) -> bool:
        at = await wall_ms(self._client)
        return bool(await answer_of(self._client.hsetnx(base, field, str(at))))

    def _say(self, name: str, level: int, state: SeenState) -> None:
        say_fill(name, level, self._job, state.count, state.capacity, state.fill)


class LocalFillWatch:
    """The same for the filter of one process."""

    def __init__(self, job: str, warn_at: float) -> None:
        self._job = job
        self._warn_at = warn_at
        self._said: set[str] = set()

    def look(self, seen: Seen) -> None:
        """Look at what the process has seen."""
        if seen.fill >= self._warn_at:
            self._say("dedup_filling", logging.WARNING, seen)
        if seen.fill > 1.0:
            self._say("dedup_over_full", logging.ERROR, seen)

    def _say(self, name: str, level: int, seen: Seen) -> None:
        if name not in self._said:
            self._said.add(name)
            say_fill(name, level, self._job, len(seen), seen.capacity, seen.fill)


def say_fill(name: str, level: int, job: str, count: int, capacity: int, fill: float) -> None:
    """One line about a filter that fills up."""
    event(
        log,
        name,
        level=level,
        job=job,
        seen=count,
        capacity=capacity,
        fill=f"{fill:.0%}",
        meaning="beyond its capacity a filter takes new pages for seen more and more",
    )
