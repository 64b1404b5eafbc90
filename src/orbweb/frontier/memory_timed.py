"""Times of a frontier in memory: clocks, and sets of names in the order of their times."""

from __future__ import annotations

import heapq


class Clock:
    """A clock that never goes back and moves at most `step` ms a look (`tick` in `shard.lua`)."""

    def __init__(self) -> None:
        self.wall: int | None = None
        self.log = 0

    def tick(self, wall: int, step: int) -> int:
        passed = wall - (wall if self.wall is None else self.wall)
        self.wall = wall
        self.log += max(0, min(passed, step))
        return self.log


class TimedSet:
    """Names with a time each, read in the order of time, then name (a sorted set)."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, name: str) -> bool:
        return name in self.at

    def __len__(self) -> int:
        return len(self.at)

    def set(self, name: str, at: float) -> None:
        if self.at.get(name) != at:
            self.at[name] = at
            heapq.heappush(self._heap, (at, name))

    def drop(self, name: str) -> bool:
        return self.at.pop(name, None) is not None

    def _settle(self) -> None:
        while self._heap and self.at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    def first(self) -> float | None:
        """The earliest time."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def earliest(self, limit: int) -> list[tuple[str, float]]:
        """Up to `limit` names with their times, the earliest first."""
        return [(name, self.at[name]) for name in self.due(float("inf"), limit)]

    def due(self, now: float, limit: int) -> list[str]:
        """Up to `limit` names whose time has come, the earliest first. They stay in the set."""
        found: list[tuple[float, str]] = []
        seen: set[tuple[float, str]] = set()
        while len(found) < limit:
            self._settle()
            if not self._heap or self._heap[0][0] > now:
                break
            entry = heapq.heappop(self._heap)
            if entry not in seen:
                seen.add(entry)
                found.append(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [name for _, name in found]
