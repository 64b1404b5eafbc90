"""The teller: puts a node's counts into the store from time to time, and each of them once."""

from __future__ import annotations

import copy
from collections.abc import Callable

from orbweb.frontier.totals import TotalsBook
from orbweb.monitor.counts import Counts, encode


class Teller:
    """Tells totals, not increments: an answer that is lost or a store that is rolled back costs
    nothing, for the next telling has it all."""

    def __init__(self, book: TotalsBook, node: str, counts: Callable[[], Counts]) -> None:
        self._book = book
        self._node = node
        self._counts = counts
        self._told: Counts | None = None
        self._before = Counts()
        """What is in the run's sum already, under an earlier name."""
        self._names = 1

    async def tell(self) -> None:
        """Tell what was counted so far, if that has changed. Raises `StoreUnavailable`."""
        counts = copy.deepcopy(self._counts())
        if counts == self._told:
            return
        again = self._told is not None
        if await self._book.tell(self._name, encode(counts.less(self._before)), again=again):
            self._told = counts
            return
        self._before = self._told or Counts()
        self._told = None
        self._names += 1
        await self._book.tell(self._name, encode(counts.less(self._before)), again=False)
        self._told = counts

    @property
    def _name(self) -> str:
        return self._node if self._names == 1 else f"{self._node}.{self._names}"
