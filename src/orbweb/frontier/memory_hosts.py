"""When the hosts of a frontier in memory may be fetched. The twin of `host.lua`, `report.lua`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from typing import TYPE_CHECKING

from orbweb.frontier.base import SAID_MS, SLACK_MS, HostPace, Signal, Tuning
from orbweb.frontier.memory_timed import Clock, TimedSet

if TYPE_CHECKING:
    from orbweb.frontier.memory_state import Run

LOOK_AHEAD_MS = 50
SPARE_MS = 20
GRACE_MS = 10
NOTICE_MS = 50
LATEST_MS = 1000
ACTIVE_MS = 30_000
HALF_LIFE_MS = 30_000
WINDOW_MS = 1000
FEW = 3
LONGEST_WINDOW_MS = 10_000
SEARCH = 0.000014
FASTEST_SEARCH = 0.03
LONGEST_COOLDOWN = 16
MOST_REFUSALS = 7
NO_LIMIT = 1_000_000
GAP_FIELDS = ("limit", "crawl", "ceiling", "auto")

Record = dict[str, float]
"""What is known of a host, by the names of the fields in `shard.lua`; numbers only."""


@dataclass(slots=True)
class Weighed:
    """What holds for a host now."""

    gap: float
    """Least ms between the starts of two fetches; 0 = none."""
    most: int
    closed_until: int
    clamped: bool = False


@dataclass(slots=True)
class Hosts:
    """What the runs of a shard share: the hosts' politeness, and the clock that it goes by."""

    clock: Clock = field(default_factory=Clock)
    now: int = 0
    """The shard's clock."""
    wall: int = 0
    rate: int = 0
    """Decayed count of all fetches, in thousandths, as of `rate_at`."""
    rate_at: int = 0
    slots: dict[str, dict[str, int]] = field(default_factory=dict)
    next_allowed: TimedSet = field(default_factory=TimedSet)
    waiting: dict[str, dict[str, int]] = field(default_factory=dict)
    """By host: run base to when it last could not have the host."""
    records: dict[str, Record] = field(default_factory=dict)
    tuned: dict[str, HostPace] = field(default_factory=dict)
    """What live values say of single hosts."""
    tuned_until: int = 0
    """All of that ends with the last word of a node."""
    said: dict[str, tuple[int, Tuning]] = field(default_factory=dict)
    """By node until when its word on single hosts counts, and that word."""
    said_version: int = 0
    last: dict[str, str] = field(default_factory=dict)
    """By host: base of the run that had it last."""
    pace: dict[str, tuple[Run, int]] = field(default_factory=dict)
    """By base: the run, and when its nodes last spoke."""

    def jitter(self, host: str, ms: float) -> int:
        return math.floor(ms * chance(f"{host} {self.now}"))

    def decayed(self, value: float, at: float) -> int:
        return math.floor(value * 2 ** (-(self.now - at) / HALF_LIFE_MS))

    def rate_of(self, host: str) -> int:
        record = self.records.get(host, {})
        return self.decayed(record.get("rate", 0), record.get("rate_at", self.now))

    def all_rate(self) -> int:
        return self.decayed(self.rate, self.rate_at)

    def others(self, run: Run) -> Iterator[Run]:
        """The other runs of the shard whose nodes live."""
        for base, (other, spoke) in self.pace.items():
            if base != run.base and spoke > self.now - ACTIVE_MS:
                yield other

    def _in_force(self, until: float) -> bool:
        return until == 0 or until > self.wall

    def weigh(self, run: Run, host: str) -> Weighed:
        """See `weigh` in `host.lua`."""
        config, record = run.config, self.records.get(host, {})
        found = Weighed(run.delay, run.concurrency, 0)
        for other in self.others(run):
            if host in other.queues:
                found.gap = max(found.gap, other.delay)
                found.most = min(found.most, other.concurrency)
        own = self.tuned.get(host, HostPace()) if self.tuned_until > self.now else HostPace()
        if own.delay_ms is not None and self._in_force(own.delay_until_ms):
            found.gap = own.delay_ms
        if own.concurrency is not None and self._in_force(own.concurrency_until_ms):
            found.most = own.concurrency or NO_LIMIT
        if "limit" in record and self._in_force(record.get("limit_until", 0)):
            found.gap = max(found.gap, record["limit"])
        found.gap = max(found.gap, record.get("crawl", 0))
        if config.autothrottle:
            found.gap = max(found.gap, record.get("auto", config.autothrottle_start_ms))
        ceiling: float = config.unapproved_delay_ms if config.require_approval else 0
        if "ceiling" in record and self._in_force(record.get("ceiling_until", 0)):
            ceiling = record["ceiling"]
        if ceiling > found.gap:
            found.gap, found.clamped = ceiling, True
        if "paused" in record and self._in_force(record["paused"]):
            found.closed_until = self.now + LATEST_MS * 5
        if record.get("opens"):
            if record["open_until"] > self.now:
                found.closed_until = max(found.closed_until, int(record["open_until"]))
            else:
                found.most = 1
        return found

    def tune(self, run: Run, tuning: Tuning) -> None:
        """See `tune.lua`."""
        self.said.pop(tuning.node, None)
        if tuning.hosts or tuning.others:
            self.said[tuning.node] = (self.now + SAID_MS, tuning)
        self.said = {node: said for node, said in self.said.items() if said[0] > self.now}
        self.said_version = max(self.said_version, tuning.version)
        self.tuned = self._strictest()
        self.tuned_until = max((until for until, _ in self.said.values()), default=0)
        if tuning.repeats:
            return
        for host, at in list(self.next_allowed.at.items()):
            began = self.records.get(host, {}).get("began")
            is_its_own = self.last.get(host) == run.base or host in run.queues
            if at <= self.now or began is None or not is_its_own:
                continue
            at = began + self.weigh(run, host).gap + SLACK_MS
            at = max(at, self.records[host].get("held", 0))
            if at > self.now:
                self.next_allowed.set(host, at)
            else:
                self.next_allowed.drop(host)
        for host, at in list(run.ready.at.items()):
            if at > self.now:
                run.ready.set(host, max(self.now, self.next_allowed.at.get(host, 0)))

    def _strictest(self) -> dict[str, HostPace]:
        """What living nodes say of hosts; of the store's values the latest version only."""
        paces: dict[str, HostPace] = {}
        for _, said in self.said.values():
            latest = said.hosts if said.version == self.said_version else {}
            for host, pace in (*latest.items(), *said.others.items()):
                paces[host] = paces.get(host, HostPace()).stricter(pace)
        return paces

    def next_of(self, host: str, found: Weighed) -> float:
        return max(self.next_allowed.at.get(host, 0), found.closed_until)

    def has_gap(self, run: Run, host: str) -> bool:
        record = self.records.get(host, {})
        named = any(name in record for name in GAP_FIELDS)
        if run.delay > 0 or named or host in self.tuned:
            return True
        return any(other.delay > 0 and host in other.queues for other, _ in self.pace.values())

    def reserve(
        self, run: Run, host: str, found: Weighed, at: float, slack: int | None = None
    ) -> float:
        """Reserve the host from `at` on; returns when it is allowed next."""
        gap = found.gap
        length = gap + (min(SLACK_MS, math.floor(gap * 0.8) / 16) if slack is None else slack)
        if run.config.randomize_delay:
            length += math.floor(gap * 8 * chance(f"{host} {mark(at)}")) / 16
        self.records.setdefault(host, {})["began"] = at
        self.next_allowed.set(host, at + length)
        return at + length

    def note_taken(self, run: Run, host: str, found: Weighed, got: int) -> None:
        rate = self.rate_of(host)
        record = self.records.setdefault(host, {})
        record["rate"], record["rate_at"] = rate + 1000 * got, self.now
        record["taken"] = record.get("taken", 0) + got
        if found.clamped:
            record["clamped"] = record.get("clamped", 0) + got
        self.last[host] = run.base

    def hold_off(self, host: str, ms: float) -> None:
        at = self.now + ms + self.jitter(host, math.floor(ms / 2))
        if at > self.next_allowed.at.get(host, 0):
            self.next_allowed.set(host, at)
        record = self.records.setdefault(host, {})
        record["held"] = max(at, record.get("held", 0))

    # -- what nodes have met

    def report(self, run: Run, signal: Signal) -> None:
        """See `report.lua`."""
        if signal.crawl_delay_ms > 0:
            self.records.setdefault(signal.host, {})["crawl"] = signal.crawl_delay_ms
        elif signal.crawl_delay_ms == 0:
            self.records.get(signal.host, {}).pop("crawl", None)
        if signal.good + signal.bad > 0:
            record = self.records.setdefault(signal.host, {})
            for name, n in (("good", signal.good), ("bad", signal.bad)):
                record[name] = record.get(name, 0) + n
            self._judge_circuit(run, record, signal)
            self._back_off(run, record, signal)
            if run.config.autothrottle:
                self._throttle(run, record, signal)

    def _judge_circuit(self, run: Run, record: Record, signal: Signal) -> None:
        config = run.config
        row = (0 if signal.good else record.get("streak", 0)) + signal.streak
        opens = int(record.get("opens", 0))
        if record.get("open_until", 0) > self.now:
            return
        if opens and signal.good:
            record.pop("opens")
            record.pop("open_until")
        elif config.circuit_threshold and (
            row >= config.circuit_threshold or (opens and signal.bad)
        ):
            cooldown = config.circuit_cooldown_ms * min(2**opens, LONGEST_COOLDOWN)
            row = 0
            record["opens"] = opens + 1
            extra = self.jitter(signal.host, math.floor(cooldown / 4))
            record["open_until"] = self.now + cooldown + extra
        if row != record.get("streak", 0):
            record["streak"] = row

    def _back_off(self, run: Run, record: Record, signal: Signal) -> None:
        if signal.refused == 0:
            if signal.good:
                record.pop("refusals", None)
        elif self.next_allowed.at.get(signal.host, 0) <= self.now + LATEST_MS:
            refusals = int(record.get("refusals", 0))
            self.hold_off(signal.host, run.config.refused_pause_ms * 2**refusals)
            record["refusals"] = min(refusals + 1, MOST_REFUSALS)

    def _throttle(self, run: Run, record: Record, signal: Signal) -> None:
        settle = record.get("settle", 0)
        if self.now < settle:
            return
        began = record.get("window", self.now)
        answers = int(record.get("answers", 0)) + signal.good + signal.bad
        failures = int(record.get("failures", 0)) + signal.bad
        total = int(record.get("latency", 0)) + signal.latency_ms
        passed = self.now - began
        early = passed < WINDOW_MS or (answers < FEW and passed < LONGEST_WINDOW_MS)
        if signal.refused == 0 and early:
            record |= {
                "window": began,
                "answers": answers,
                "failures": failures,
                "latency": total,
            }
            return
        rate = math.floor(1_000_000 / record.get("auto", run.config.autothrottle_start_ms))
        top, base, mean = record.get("top", 0), record.get("base", 0), math.floor(total / answers)
        slow = base > 0 and answers >= FEW and mean > base * 2 + 50
        if signal.refused > 0 or failures * 5 > answers or slow:
            served = math.floor(rate * 0.9)
            if passed >= WINDOW_MS / 2:
                served = math.floor((answers - failures) * 1_000_000 / passed)
            top = min(rate, max(served, math.floor(rate * 0.9)))
            rate = max(math.floor(rate / 2), math.floor(min(rate, served) * 0.95))
            settle = self.now + WINDOW_MS + min(mean, LONGEST_WINDOW_MS)
            if slow:
                base = base + math.floor((mean - base) / 8)
        else:
            if base == 0 or mean < base:
                base = max(mean, 1)
            if answers * 1_000_000 / passed >= rate * 0.7:
                rate = raised(rate, top, (self.now - settle) / 1000, passed)
        sixteenths = max(1, math.floor(16_000_000 / max(1, rate)))
        record |= {
            "auto": min(sixteenths / 16, run.config.autothrottle_longest_ms),
            "top": top,
            "window": max(self.now, settle),
            "answers": 0,
            "failures": 0,
            "latency": 0,
            "base": base,
            "settle": settle,
        }


def raised(rate: int, top: float, since: float, passed: float) -> int:
    """A higher rate. See `raised` in `report.lua`."""
    if top == 0:
        return rate + math.ceil(rate / 10)
    if rate < top * 0.7:
        return rate + math.ceil(rate / 4)
    if rate < top * 0.95:
        return rate + math.ceil(top / 20)
    growth = min(since * since * SEARCH, FASTEST_SEARCH)
    return rate + math.floor(rate * growth * passed / 1000)


def chance(words: str) -> float:
    """A number from 0 to 1 that is the same for the same words."""
    return int(sha1(words.encode(), usedforsecurity=False).hexdigest()[:8], 16) / 2**32


def mark(at: float) -> int:
    """The name of a reserved time."""
    return int(at * 16)
