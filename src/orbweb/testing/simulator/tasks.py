"""Tasks in a simulated fleet: where they come from, and a spider that works through them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from orbweb.frontier.tasks import NewTask
from orbweb.testing.simulator.node import Spider
from orbweb.testing.simulator.plan import TasksFrom
from orbweb.testing.virtual import Timeline

if TYPE_CHECKING:
    from orbweb.testing.simulator.node import Node
    from orbweb.testing.simulator.world import Simulation

LIST = "tasks"


class Rows:
    """A table of tasks beside the store. Each seed of the site is a row; nothing is undone."""

    def __init__(self, seeds: int, timeline: Timeline) -> None:
        self.states = ["todo"] * seeds
        self._timeline = timeline
        self._takes = 0

    async def take(self, limit: int) -> list[tuple[int, int]]:
        """Mark rows as taken; the number of each, and one that is new each time."""
        await self._work()
        found = [row for row, state in enumerate(self.states) if state == "todo"][:limit]
        for row in found:
            self.states[row] = "taken"
        await self._work()
        self._takes += 1
        return [(row, self._takes) for row in found]

    async def put_back(self, open_rows: set[int]) -> None:
        """Let rows be taken again that are marked and of which nobody knows."""
        await self._work()
        for row, state in enumerate(self.states):
            if state == "taken" and row not in open_rows:
                self.states[row] = "todo"

    def end(self, row: int, reason: str) -> None:
        """Note how a row has ended."""
        self.states[row] = "failed" if reason else "done"

    async def _work(self) -> None:
        await asyncio.sleep(self._timeline.rng.choice([0.0, 0.05, 0.4]))


class TaskSpider(Spider):
    """Crawls from each seed as a task of its own."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._simulation = node.simulation

    async def task_requests(self, task: dict[str, int]) -> AsyncIterator[Any]:
        site, row = self._simulation.site, task["row"]
        await asyncio.sleep(self._node.timeline.rng.choice([0.0, 0.05]))
        yield self._request(site.pages[site.seeds[row]], twin=row in site.twin_seeds)

    async def task_ended(self, uid: str, task: dict[str, int], reason: str) -> None:
        await asyncio.sleep(self._node.timeline.rng.choice([0.0, 0.05]))
        self._simulation.rows.end(task["row"], reason)

    async def poll(self, limit: int) -> Sequence[NewTask]:
        rolls_back = self._simulation.plan.rolls_back
        return [
            NewTask(f"r{row}" if rolls_back else f"r{row}-{time}", {"row": row})
            for row, time in await self._simulation.rows.take(limit)
        ]

    async def recover(self, open_tasks: Sequence[NewTask]) -> None:
        await self._simulation.rows.put_back({task.value["row"] for task in open_tasks})


def waiting(simulation: Simulation) -> list[tuple[str, bytes]]:
    """What stands in the list before the fleet begins."""
    if simulation.plan.tasks is not TasksFrom.LIST:
        return []
    rows = range(len(simulation.site.seeds))
    return [(f"s{row}", json.dumps({"row": row}).encode()) for row in rows]
