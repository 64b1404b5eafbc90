"""Reads the facts of a fleet from the store: bounded, whatever there is of runs and nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orbweb.alarms.facts import (
    ConsumerFacts,
    Facts,
    IdleFacts,
    LostFacts,
    NodeFacts,
    RunFacts,
    ScheduleFacts,
    number_of,
)
from orbweb.errors import OrbwebError, RunLost, StoreUnavailable
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.base import RunState, Status
from orbweb.frontier.notes import NoteBook, NoteKind
from orbweb.frontier.overview import Overview, RunView
from orbweb.frontier.server import answer_of
from orbweb.frontier.servers import Servers
from orbweb.model.reasons import Reason
from orbweb.monitor import baseline
from orbweb.monitor.counts import total_told
from orbweb.monitor.quality import total as tally_total

ENDED_LOOKS = 12
"""A run that has ended, and what its items look like, are read at each look of so many."""

MOST_NODES = 500
"""Nodes of a run that are looked at."""


@dataclass(slots=True)
class _Kept:
    """What is not read at every look."""

    facts: RunFacts
    looks_left: int


class FleetReader:
    """Looks at all runs of a prefix. Its calls may raise `StoreUnavailable`."""

    def __init__(
        self,
        servers: Servers,
        prefix: str,
        *,
        ended_ms: Callable[[], int],
        baseline_runs: Callable[[], int],
        config_version: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        """`ended_ms`: a run that has ended is looked at for so long.

        `config_version`: the newest version of live values, where there are any.
        """
        self._servers = servers
        self._admin = Admin(servers, prefix)
        self._overview = Overview(servers, prefix, hosts=0)
        self._ended_ms = ended_ms
        self._notes = NoteBook(servers.of_shard(0), prefix)
        self._baseline_runs = baseline_runs
        self._config_version = config_version
        self._kept: dict[str, _Kept] = {}

    async def look(self) -> Facts:
        """All that the rules look at, now."""
        self._overview.ended_ms = self._ended_ms()
        names, _ = await self._overview.names()
        runs, seen = [], set()
        for job, run in names:
            with suppress(RunLost):
                info = await self._admin.look(job, run)
                if info is not None:
                    seen.add(info.epoch)
                    runs.append(await self._run(info))
        self._kept = {epoch: kept for epoch, kept in self._kept.items() if epoch in seen}
        memory = await answer_of(self._servers.of_shard(0).info("memory"))
        version = await self._config_version() if self._config_version is not None else 0
        at_ms = await self._notes.now_ms()
        return Facts(
            at_ms=at_ms,
            runs=tuple(runs),
            consumers=tuple(
                ConsumerFacts(note.name, at_ms - note.at_ms, note.said)
                for note in await self._notes.read(NoteKind.CONSUMER)
            ),
            schedules=tuple(
                ScheduleFacts(
                    note.name,
                    _whole(note.said.get("due_ms")),
                    note.at_ms,
                    str(note.said.get("cause", "")),
                )
                for note in await self._notes.read(NoteKind.SCHEDULE)
            ),
            idle=tuple(
                IdleFacts(note.name, str(note.said.get("run", "")), note.at_ms)
                for note in await self._notes.read(NoteKind.IDLE)
            ),
            lost=tuple(
                LostFacts(str(note.said.get("job", "")), str(note.said.get("run", "")), note.at_ms)
                for note in await self._notes.read(NoteKind.LOST)
            ),
            used_memory=_whole(memory.get("used_memory")),
            max_memory=_whole(memory.get("maxmemory")),
            config_version=version,
        )

    async def _run(self, info: RunInfo) -> RunFacts:
        kept = self._kept.get(info.epoch)
        done = info.status.state is RunState.DONE
        if kept is not None and kept.facts.done == done and done and kept.looks_left:
            kept.looks_left -= 1
            return kept.facts
        view = await self._overview.view(info)
        before = kept.facts if kept is not None and kept.looks_left and not done else None
        facts = await self._read(view, before)
        left = kept.looks_left - 1 if before is not None and kept is not None else ENDED_LOOKS
        self._kept[info.epoch] = _Kept(facts, left)
        return facts

    async def _read(self, view: RunView, before: RunFacts | None) -> RunFacts:
        info, counts = view.info, view.info.status
        done = counts.state is RunState.DONE
        unusual = _unusual(before) if before is not None else await self._look_at_items(info)
        totals = total_told(view.counts)
        return RunFacts(
            job=info.job,
            run=info.run,
            epoch=info.epoch,
            done=done,
            paused=counts.paused,
            stopping=counts.stopping,
            waiting=counts.queued + counts.delayed,
            leased=counts.leased - counts.seeding,
            pages=_pages(counts),
            dead=counts.dead,
            retried=counts.retried,
            started_at_ms=counts.started_at_ms,
            finished_at_ms=counts.finished_at_ms,
            nodes=tuple(
                NodeFacts(node.node, node.silent_ms, node.said) for node in view.nodes[:MOST_NODES]
            ),
            fill=view.seen.fill if view.seen is not None else 0.0,
            duplicates=totals.repeated / totals.checked if totals.checked else 0.0,
            checked=totals.checked,
            missing=tuple(text for text in unusual if text.startswith("missing(")),
            few=next((text for text in unusual if done and text.startswith("items:")), ""),
        )

    async def _look_at_items(self, info: RunInfo) -> list[str]:
        """What is unusual about the items, compared with earlier runs of the job."""
        most = self._baseline_runs()
        if not most:
            return []
        book = self._admin.items(info)
        try:
            tally = tally_total((await book.told()).values())
            earlier = [tally_total([each]) for each in (await book.history())[-most:]]
        except OrbwebError as error:
            if isinstance(error, RunLost | StoreUnavailable):
                raise
            return []
        return baseline.judge(tally, earlier, 0)


def _unusual(before: RunFacts) -> list[str]:
    return [*before.missing, *([before.few] if before.few else [])]


def _pages(counts: Status) -> int:
    return counts.reasons.get(Reason.DONE, 0) + counts.reasons.get(Reason.TASK_DONE, 0)


def _whole(value: Any) -> int:
    return int(number_of(value))
