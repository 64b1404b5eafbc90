"""The buffer: requests under a lease that Scrapy has not been given yet."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

from orbweb.adapters.scrapy.work import Work


class Buffer:
    """Gives out requests so that no host gets more at once than Scrapy may fetch from it.

    Of the hosts with room the one with the fewest requests under way comes first, as in Scrapy's
    `DownloaderAwarePriorityQueue`; within a host the frontier's order.
    """

    def __init__(self, limit_of: Callable[[str], int]) -> None:
        """`limit_of` a slot of the downloader: most requests at once, 0 = no limit."""
        self.busy: Counter[str] = Counter()
        """Requests under way in each slot of the downloader."""
        self._limit_of = limit_of
        self._heaps: dict[str, list[tuple[int, int, Work]]] = {}
        self._order = count()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def startable(self) -> int:
        """How many could be given out now."""
        return sum(min(len(heap), self._room(slot)) for slot, heap in self._heaps.items())

    def put(self, slot: str, priority: int, work: Work) -> None:
        """Add one; smaller priorities come first."""
        heapq.heappush(self._heaps.setdefault(slot, []), (priority, next(self._order), work))
        self._size += 1

    def pop(self) -> Work | None:
        """Take the next one out, and count it as under way in its slot."""
        best: tuple[int, int, int] | None = None
        chosen = ""
        for slot, heap in self._heaps.items():
            if self._room(slot) > 0:
                rank = (self.busy[slot], heap[0][0], heap[0][1])
                if best is None or rank < best:
                    best, chosen = rank, slot
        if best is None:
            return None
        heap = self._heaps[chosen]
        work = heapq.heappop(heap)[2]
        if not heap:
            del self._heaps[chosen]
        self._size -= 1
        work.slot = chosen
        self.busy[chosen] += 1
        return work

    def leave(self, work: Work) -> None:
        """It takes no room in its slot any more."""
        slot, work.slot = work.slot, None
        if slot is not None:
            self.busy[slot] -= 1
            if not self.busy[slot]:
                del self.busy[slot]

    def clear(self) -> list[Work]:
        """Take all out."""
        found = list(self)
        self._heaps.clear()
        self._size = 0
        return found

    def remove(self, work: Work) -> bool:
        """Take one out; False when it is not here."""
        for slot, heap in self._heaps.items():
            for place, entry in enumerate(heap):
                if entry[2] is work:
                    del heap[place]
                    heapq.heapify(heap)
                    if not heap:
                        del self._heaps[slot]
                    self._size -= 1
                    return True
        return False

    def __iter__(self) -> Iterator[Work]:
        for heap in list(self._heaps.values()):
            yield from (entry[2] for entry in heap)

    def _room(self, slot: str) -> int:
        limit = self._limit_of(slot)
        return limit - self.busy[slot] if limit > 0 else len(self._heaps[slot])
