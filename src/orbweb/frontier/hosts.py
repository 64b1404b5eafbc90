"""What the store knows of hosts and of the rules of runs, as values; no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orbweb.frontier.memory_hosts import ACTIVE_MS, HALF_LIFE_MS

HOST_FIELDS = (
    *("limit", "limit_until", "limit_by", "limit_why", "paused", "paused_by", "paused_why"),
    *("crawl", "ceiling", "ceiling_until", "clamped", "taken", "rate", "rate_at", "good", "bad"),
    *("streak", "opens", "open_until", "auto", "held"),
)
"""What is read of a host's hash, in this order; `lua/look.lua` adds what stands elsewhere."""

RUN_FIELDS = ("state", "delay", "concurrency", "policy", "paused", "paused_by", "paused_why")
"""What is read of a run's meta, in this order."""

SAID_BY = {"s": "orbweb config", "o": "CONFIG_SOURCE"}
"""Where a node has a live value from, by the letter in `lua/tune.lua`."""


@dataclass(frozen=True, slots=True)
class Limit:
    """An operator's slowest pace: it holds until `until_ms` (wall clock; 0 = no end)."""

    gap_ms: float
    until_ms: int = 0
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator's stop: it holds until `until_ms` (wall clock; 0 = until it is taken back)."""

    until_ms: int = 0
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """What live values say of a host alone, and who says so; None: nothing."""

    delay_ms: float | None = None
    """In the place of what runs want."""
    delay_from: str = ""
    concurrency: int | None = None
    """The same of fetches at once; 0 = no limit."""
    concurrency_from: str = ""


@dataclass(frozen=True, slots=True)
class RunRules:
    """What a run asks for at its hosts."""

    job: str
    run: str
    base: str
    done: bool = False
    alive: bool = True
    """Its nodes spoke lately; without that it has no say."""
    delay_ms: float = 0
    concurrency: int = 0
    """Fetches at once on one host; 0 = no limit."""
    pause: Pause | None = None
    circuit_threshold: int = 0
    autothrottle_start_ms: float | None = None
    """None: it does not throttle by itself."""
    unapproved_delay_ms: float | None = None
    """None: it needs no approval."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host at one instant: `at_ms` on the server's clock, `clock_ms` on the shard's."""

    name: str
    at_ms: int
    clock_ms: int
    limit: Limit | None
    pause: Pause | None
    crawl_delay_ms: float
    ceiling_ms: float | None
    """The approved rate as a least gap; None when there is none or its time has passed."""
    ceiling_until_ms: int
    clamped: int
    """How many fetches the ceiling, or the default without one, has slowed down."""
    taken: int
    rate: float
    """Fetches a second of late."""
    good: int
    bad: int
    streak: int
    opens: int
    """How often in a row the circuit opened; 0 = it is closed."""
    open_until: int
    """Shard's clock."""
    throttle_ms: float | None
    """Gap that the adaptive throttle has found."""
    held_until: int
    """Shard's clock: so long the host has asked to be left alone."""
    next_at: float
    """Shard's clock; in the past when it is allowed now."""
    slots: int
    queued: tuple[int, ...]
    """Requests that wait for it in each run that was asked for."""
    live: Live = Live()

    @property
    def backlog(self) -> int:
        return sum(self.queued)

    def wall_ms(self, clock_ms: float) -> int:
        """An instant of the shard's clock on the server's."""
        return round(self.at_ms + clock_ms - self.clock_ms)


def decayed_rate(count: float, counted_at: float, clock_ms: float) -> float:
    """Fetches a second from a count in thousandths that halves every `HALF_LIFE_MS`."""
    left = count * 2 ** (-max(0.0, clock_ms - counted_at) / HALF_LIFE_MS)
    return left / 1000 * math.log(2) / (HALF_LIFE_MS / 1000)


def read_look(
    answer: Sequence[Any], runs: Sequence[tuple[str, str, str]], names: Sequence[str]
) -> tuple[list[RunRules], list[Host]]:
    """The answer of `lua/look.lua` for these runs (job, run, base) and hosts."""
    words = _words(answer)
    at_ms, clock_ms, looked_ms = (int(next(words)) for _ in range(3))
    asleep = at_ms - looked_ms > ACTIVE_MS
    rules = []
    for run in runs:
        fields, pace = _taken(words, RUN_FIELDS), next(words).split()
        spoke = int(pace[2]) if pace else 0
        alive = not asleep and spoke > clock_ms - ACTIVE_MS
        rules.append(_rules(run, fields, at_ms, alive=alive))
    return rules, [_host(name, words, at_ms, clock_ms, len(runs)) for name in names]


def _words(answer: Sequence[Any]) -> Iterator[str]:
    for word in answer:
        yield word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)


def _taken(words: Iterator[str], names: Sequence[str]) -> dict[str, str]:
    return {name: next(words) for name in names}


def _rules(
    run: tuple[str, str, str], fields: dict[str, str], at_ms: int, *, alive: bool
) -> RunRules:
    policy = [float(word) for word in fields["policy"].split()]
    auto, auto_start, needs_approval, unapproved = (0.0, 0.0, 0.0, 0.0)
    threshold = 0.0
    if len(policy) >= 10:
        threshold, auto, auto_start = policy[3], policy[5], policy[6]
        needs_approval, unapproved = policy[8:10]
    concurrency = int(fields["concurrency"] or 0)
    return RunRules(
        *run,
        done=fields["state"] != "running",
        alive=alive,
        delay_ms=float(fields["delay"] or 0),
        concurrency=concurrency if concurrency < 1_000_000 else 0,
        pause=_pause(fields, at_ms),
        circuit_threshold=int(threshold),
        autothrottle_start_ms=auto_start if auto else None,
        unapproved_delay_ms=unapproved if needs_approval else None,
    )


def _host(name: str, words: Iterator[str], at_ms: int, clock_ms: int, runs: int) -> Host:
    fields = _taken(words, HOST_FIELDS)
    next_at, slots = next(words), int(next(words))
    live = _live(next(words).split(), at_ms)

    def number(field: str) -> float:
        return float(fields[field] or 0)

    ceiling_until = int(number("ceiling_until"))
    return Host(
        name,
        at_ms,
        clock_ms,
        limit=read_limit(fields, at_ms),
        pause=_pause(fields, at_ms),
        crawl_delay_ms=number("crawl"),
        ceiling_ms=number("ceiling")
        if fields["ceiling"] and in_force(ceiling_until, at_ms)
        else None,
        ceiling_until_ms=ceiling_until,
        clamped=int(number("clamped")),
        taken=int(number("taken")),
        rate=decayed_rate(number("rate"), number("rate_at"), clock_ms),
        good=int(number("good")),
        bad=int(number("bad")),
        streak=int(number("streak")),
        opens=int(number("opens")),
        open_until=int(number("open_until")),
        throttle_ms=number("auto") if fields["auto"] else None,
        held_until=int(number("held")),
        next_at=float(next_at or 0),
        slots=slots,
        queued=tuple(int(next(words)) for _ in range(runs)),
        live=live,
    )


def _live(words: Sequence[str], at_ms: int) -> Live:
    """What stands in `:tuned` of a host, as far as it is in force."""
    if len(words) != 6:
        return Live()
    delay, delay_until, most, most_until, delay_from, most_from = words
    has_delay = delay != "-" and in_force(float(delay_until), at_ms)
    has_most = most != "-" and in_force(float(most_until), at_ms)
    return Live(
        delay_ms=float(delay) if has_delay else None,
        delay_from=SAID_BY[delay_from] if has_delay else "",
        concurrency=int(most) if has_most else None,
        concurrency_from=SAID_BY[most_from] if has_most else "",
    )


def in_force(until_ms: float, at_ms: int) -> bool:
    """Whether what holds until then (0 = without end) holds now."""
    return until_ms == 0 or until_ms > at_ms


def read_limit(fields: dict[str, str], at_ms: int) -> Limit | None:
    """The limit that stands in a host's fields, if it is in force."""
    until = int(float(fields["limit_until"] or 0))
    if not fields["limit"] or not in_force(until, at_ms):
        return None
    return Limit(float(fields["limit"]), until, fields["limit_by"], fields["limit_why"])


def _pause(fields: dict[str, str], at_ms: int) -> Pause | None:
    if not fields["paused"] or not in_force(float(fields["paused"]), at_ms):
        return None
    return Pause(int(float(fields["paused"])), fields["paused_by"], fields["paused_why"])
