"""What operators say of hosts and runs, and when it acts: the twin of `steer.lua`, `pause.lua`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.lua.state import AUTHOR, FAR, State

from orbweb.frontier.base import SLACK_MS
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.memory_state import MemoryShard, Run
from orbweb.frontier.operator import UNTOUCHED

WORDS = ("limit", "paused", "ceiling")
"""With one of them a host is steered."""


class Operators:
    """Steers the hosts of a shard in memory."""

    def __init__(self, shard: MemoryShard) -> None:
        self._shard = shard
        self._steered: set[str] = set()
        self._rates: dict[str, str] = {}
        self._trail: list[str] = []

    def state(self, keys: ShardKeys) -> State:
        """What the server must hold of it."""
        state = {keys.steered: self._steered, keys.rates: self._rates, keys.audit: self._trail}
        return {key: value for key, value in state.items() if value}

    def steer(
        self,
        wall: int,
        host: str,
        fields: Mapping[str, str],
        entry: tuple[str, str],
        line: str,
    ) -> Sequence[int | str]:
        expected, new = entry
        if expected not in (UNTOUCHED, self._rates.get(host, "")):
            return [0]
        record = self._shard.hosts.records.setdefault(host, {})
        before = [f"{record[name]:g}" if name in record else "" for name in fields]
        for name, value in fields.items():
            record.pop(name, None)
            if value:
                record[name] = float(value)
        if new != UNTOUCHED:
            self._rates.pop(host, None)
            if new:
                self._rates[host] = new
        self._steered.discard(host)
        if any(name in record for name in WORDS):
            self._steered.add(host)
        if line:
            self._trail.append(line)
        self._move(wall, host)
        return [1, *before]

    def _move(self, wall: int, host: str) -> None:
        """The host's next time follows, and whoever waits for the host looks again."""
        hosts = self._shard.hosts
        hosts.wall, hosts.now = wall, hosts.clock.log
        alone = replace(hosts, pace={})
        gaps = [alone.weigh(run, host).gap for run, _ in hosts.pace.values()]
        record = hosts.records[host]
        if gaps and "began" in record:
            at = max(record["began"] + max(0, *gaps) + SLACK_MS, record.get("held", 0))
            if at > hosts.now:
                hosts.next_allowed.set(host, at)
            else:
                hosts.next_allowed.drop(host)
        for (job, name), epoch in self._shard.current.items():
            run = self._shard.runs[f"{job}:{name}:{epoch}"]
            if run.ready.at.get(host, 0) > hosts.now:
                run.ready.set(host, hosts.now)

    def pause(self, run: Run, until: str, line: str) -> Sequence[str]:
        """The run's clocks were looked at before."""
        before = [str(FAR), *AUTHOR] if run.paused else ["", "", ""]
        if until or run.paused:
            run.paused = bool(until)
            self._trail.append(line)
        return before
