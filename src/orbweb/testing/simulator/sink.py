"""Where a simulated fleet stores its items: a table with a key, slow, and sometimes failing."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from orbweb.errors import ItemError
from orbweb.pipelines.base import BasePipeline, Row
from orbweb.testing.simulator.history import Stored

if TYPE_CHECKING:
    from orbweb.testing.simulator.node import Node
    from orbweb.testing.simulator.world import Simulation

MOST_FAILURES = 3
"""Of one row: a pipeline that goes on to fail for it says that the row is bad."""


class Sink:
    """One table for all nodes. A row whose key is there already changes nothing."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._rows: dict[str, tuple[str, int]] = {}
        self._failures: Counter[str] = Counter()

    def store(self, node: Node, rows: list[Row], answer: asyncio.Future[bool]) -> None:
        """Store a batch and answer; a failing batch may be stored in part, whole or not at all."""
        simulation = self._simulation
        rng = simulation.timeline.rng
        failed = rng.random() < simulation.plan.faults.sink_failure
        if any(self._failures[row["_key"]] >= MOST_FAILURES for row in rows):
            failed = False
        self._failures.update(row["_key"] for row in rows if failed)
        result: bool | Exception = True
        if any(row["number"] < 0 for row in rows):
            result = ItemError("the number is negative")
        else:
            part = rng.randint(0, len(rows)) if failed else len(rows)
            for row in rows[:part]:
                self._put(node, row)
            if failed:
                result = OSError("connection lost") if rng.random() < 0.5 else False
        if node.alive:
            answer.get_loop().call_soon(_settle, answer, result)

    def _put(self, node: Node, row: Row) -> None:
        key, value = row["_key"], (row["page"], row["number"])
        if key not in self._rows:
            self._rows[key] = value
            self._simulation.log("stored", node.name, row["page"], Stored(key, row["number"]))
        elif self._rows[key] != value:
            self._simulation.log("key_conflict", node.name, row["page"], self._rows[key])


class SinkPipeline(BasePipeline):
    """A node's connection to the sink."""

    def __init__(self, node: Node, sink: Sink) -> None:
        self._node = node
        self._sink = sink

    async def save_items(self, table: str, items: list[Row]) -> bool:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        timeline = self._node.timeline
        delay = timeline.rng.choice([20, 50, 400, 1500])
        if self._node.alive:
            timeline.call_in(delay, self._sink.store, self._node, items, answer)
        return bool(await answer)


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)
