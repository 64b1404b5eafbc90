"""Why a host waits: one reason, until when, and a phrase for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from orbweb.frontier.hosts import Host, RunRules
from orbweb.model.rate import rate_text


class WaitReason(StrEnum):
    """Why nothing is fetched from a host at this instant."""

    HOST_PAUSED = "host_paused"
    RUN_PAUSED = "run_paused"
    CIRCUIT_OPEN = "circuit_open"
    TRIAL = "trial"
    HELD_OFF = "held_off"
    LIMIT = "limit"
    CRAWL_DELAY = "crawl_delay"
    CEILING = "ceiling"
    UNAPPROVED = "unapproved"
    THROTTLE = "throttle"
    DELAY = "delay"
    SLOTS = "slots"
    RETRY = "retry"
    IN_WORK = "in_work"
    NO_NODE = "no_node"
    READY = "ready"
    NO_QUEUE = "no_queue"


class Wait(NamedTuple):
    """A host waits because of `reason`; `until_ms` on the server's clock, 0 = not known."""

    reason: WaitReason
    text: str
    until_ms: int = 0


class Gap(NamedTuple):
    """The least time between the starts of two fetches, and what asks for it."""

    ms: float
    reason: WaitReason
    text: str

    @property
    def rate(self) -> str:
        return rate_text(self.ms)


def gap_of(host: Host, runs: Sequence[RunRules]) -> Gap:
    """The gap that is kept at a host: the longest that anything asks for. `ms` 0 = none."""
    throttled = [run.autothrottle_start_ms for run in runs if run.autothrottle_start_ms is not None]
    unapproved = [run.unapproved_delay_ms for run in runs if run.unapproved_delay_ms is not None]
    wanted, text = max((run.delay_ms for run in runs), default=0.0), "DOWNLOAD_DELAY"
    if host.live.delay_ms is not None:
        wanted = host.live.delay_ms
        text = f"live DOWNLOAD_DELAY of the host ({host.live.delay_from})"
    gaps = [Gap(wanted, WaitReason.DELAY, text)]
    if throttled:
        found = host.throttle_ms if host.throttle_ms is not None else max(throttled)
        gaps.append(Gap(found, WaitReason.THROTTLE, "adaptive throttle"))
    if host.crawl_delay_ms:
        gaps.append(Gap(host.crawl_delay_ms, WaitReason.CRAWL_DELAY, "crawl delay of robots.txt"))
    if host.limit:
        gaps.append(Gap(host.limit.gap_ms, WaitReason.LIMIT, f"limit{_said(host.limit.by)}"))
    if host.ceiling_ms is not None:
        gaps.append(Gap(host.ceiling_ms, WaitReason.CEILING, "approved ceiling"))
    elif unapproved:
        gaps.append(
            Gap(max(unapproved), WaitReason.UNAPPROVED, "no approved rate (orbweb rates request)")
        )
    return max(gaps, key=lambda gap: gap.ms)


def why_waits(host: Host, runs: Sequence[RunRules], *, delayed: int = 0, in_work: int = 0) -> Wait:
    """Why nothing is fetched from a host now; `runs` are those of `host.queued`, in its order.

    What an operator said comes first, then what the host asked for, then the gap, then the slots.
    """
    asking = [run for run, queued in zip(runs, host.queued, strict=True) if queued]
    if host.pause:
        return _paused(WaitReason.HOST_PAUSED, "paused", host.pause.until_ms, host)
    if not asking:
        return _without_queue(delayed, in_work)
    pauses = [run.pause for run in asking if run.pause]
    if len(pauses) == len(asking):
        first = min(pauses, key=lambda pause: pause.until_ms or float("inf"))
        said = f"run paused{_said(first.by)}{_because(first.why)}"
        return Wait(WaitReason.RUN_PAUSED, said, first.until_ms)
    asking = [run for run in asking if not run.pause]
    if not any(run.alive for run in asking):
        return Wait(WaitReason.NO_NODE, "no node is at work for it")
    asking = [run for run in asking if run.alive]
    return _circuit(host, asking) or _turn(host, asking)


def _without_queue(delayed: int, in_work: int) -> Wait:
    if delayed:
        return Wait(WaitReason.RETRY, "its requests wait for another attempt")
    if in_work:
        return Wait(WaitReason.IN_WORK, "nothing more is queued; its last requests are in work")
    return Wait(WaitReason.NO_QUEUE, "nothing is queued for it")


def _paused(reason: WaitReason, what: str, until_ms: int, host: Host) -> Wait:
    pause = host.pause
    assert pause
    return Wait(reason, f"{what}{_said(pause.by)}{_because(pause.why)}", until_ms)


def _circuit(host: Host, runs: Sequence[RunRules]) -> Wait | None:
    if not host.opens:
        return None
    if host.open_until > host.clock_ms:
        threshold = max((run.circuit_threshold for run in runs), default=0)
        row = f" after {threshold} bad answers in a row" if threshold and host.opens == 1 else ""
        again = f" for the {_ordinal(host.opens)} time" if host.opens > 1 else ""
        text = f"circuit open{again}{row}"
        return Wait(WaitReason.CIRCUIT_OPEN, text, host.wall_ms(host.open_until))
    if host.slots:
        return Wait(WaitReason.TRIAL, "half-open: one request tries whether the host is well again")
    return None


def _turn(host: Host, runs: Sequence[RunRules]) -> Wait:
    gap = gap_of(host, runs)
    ahead = host.next_at - host.clock_ms
    if ahead > 0 and host.held_until >= host.next_at:
        text = "held off: the host asked to be left alone (Retry-After, 429, 503)"
        return Wait(WaitReason.HELD_OFF, text, host.wall_ms(host.next_at))
    if ahead > 0:
        text = f"{gap.rate}: {gap.text}"
        return Wait(gap.reason, text, host.wall_ms(host.next_at))
    most = min((run.concurrency for run in runs if run.concurrency), default=0)
    whose = ""
    if host.live.concurrency is not None:
        most, whose = host.live.concurrency, f" (live, {host.live.concurrency_from})"
    if most and host.slots >= most:
        return Wait(WaitReason.SLOTS, f"{host.slots} of {most} slots in use{whose}")
    return Wait(WaitReason.READY, "ready")


def _said(by: str) -> str:
    return f" by {by}" if by else ""


def _because(why: str) -> str:
    return f": {why}" if why else ""


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
