"""The verdict on a URL: where it stands, the one reason, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from orbweb.explain.advice import Advice, again, of_failed, of_rule, of_wait, start
from orbweb.explain.checks import BLOCKING, Check, checks
from orbweb.explain.facts import Facts
from orbweb.explain.words import moment, page_text
from orbweb.frontier.seen import SeenKind
from orbweb.frontier.urls import Place, UrlState
from orbweb.frontier.waiting import WaitReason
from orbweb.model.reasons import Reason
from orbweb.model.url import beside
from orbweb.monitor.crawl_line import CrawlLine, LineKind, time_text
from orbweb.spiders.wording import counted, duration, number

SKEW_MS = 5000
"""A node's clock may be so far behind the store's."""


class Standing(StrEnum):
    """Where a URL stands."""

    DONE = "done"
    WAITING = "waiting"
    IN_WORK = "in work"
    FAILED = "failed"
    NOT_CRAWLED = "not crawled"
    ENDED = "ended"
    """It was taken and has ended; nobody here knows how."""
    FORGOTTEN = "forgotten"
    """It was crawled, and would be again if a link to it came."""
    UNKNOWN = "unknown"


class OwnReason(StrEnum):
    """Reasons that only a verdict has, besides those of `Reason` and `WaitReason`."""

    SEEN = "seen"
    FORGOTTEN = "forgotten"
    NEVER_DISCOVERED = "never_discovered"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a URL."""

    standing: Standing
    reason: str
    text: str
    details: Sequence[str] = ()
    advice: Sequence[Advice] = ()
    checks: Sequence[Check] = ()
    that: Verdict | None = None
    """Of a duplicate: what became of the request that was taken."""


def verdict_of(facts: Facts) -> Verdict:
    """Judge a URL by all that is known of it."""
    taken = _taken_url(facts)
    verdict = _pending(facts) or _dead(facts) or _told(facts) or _seen(facts) or _unknown(facts)
    if taken and taken != facts.request.url:
        verdict = Verdict(
            Standing.NOT_CRAWLED,
            Reason.DUPLICATE_REQUEST,
            f"it is the same page as {taken}",
            advice=verdict.advice,
            that=verdict,
        )
    return replace(verdict, checks=checks(facts, duplicate=verdict.that is not None))


def _taken_url(facts: Facts) -> str:
    """The URL as it was asked for when it was taken; empty when it was not, or nobody knows."""
    if facts.stored is not None:
        return facts.stored.url
    lines = [line for line in facts.own_lines if line.kind != LineKind.SKIPPED]
    return lines[-1].url if lines else ""


# -- what the store knows


def _pending(facts: Facts) -> Verdict | None:
    state = facts.state
    if state is None or state.request is None:
        if state is None or not state.taken_by:
            return None
        text = f"request {state.taken_by} was redirected to it, and crawls it"
        return Verdict(Standing.IN_WORK, Reason.LEASED, text)
    if state.place is Place.LEASED:
        return _leased(facts, state)
    if state.place is Place.DELAYED:
        return _delayed(facts, state)
    return _queued(facts, state)


def _leased(facts: Facts, state: UrlState) -> Verdict:
    node = f"node {state.node[:8]}"
    if facts.node.get("host"):
        node += f" (host {facts.node['host']}, pid {facts.node.get('pid')})"
    since = f" since {moment(state.since_ms)}" if state.since_ms else ""
    details = [f"lease until {moment(state.until_ms)}, unless the node renews it"]
    if "silent_ms" in facts.node:
        silent = duration(int(str(facts.node["silent_ms"])) / 1000)
        details.append(f"the node spoke {silent} ago")
    assert state.request
    if state.request.retries:
        details.append(f"attempt {state.request.retries + 1}{_last_failure(facts)}")
    if state.request.deliveries:
        died = counted(state.request.deliveries, "time")
        details.append(f"handed out {died} before without an answer")
    text, advice = f"{node} works on it{since}", [Advice(Reason.LEASED.advice())]
    if state.node in facts.without_proxy:
        details.append("no proxy of its pool was free for this host just now")
        advice.insert(0, Advice(Reason.NO_PROXY.advice()))
    return Verdict(Standing.IN_WORK, Reason.LEASED, text, details, tuple(advice))


def _delayed(facts: Facts, state: UrlState) -> Verdict:
    assert state.request
    if facts.without_proxy:
        return _no_proxy(facts)
    text = f"attempt {state.request.retries + 1} follows at {moment(state.until_ms)}"
    failure = _last_failure(facts)
    details = [f"the last attempt{failure}"] if failure else []
    if facts.host is not None and facts.host.wait.reason in BLOCKING:
        details.append(f"its host: {facts.host.wait.text}")
    advice = (Advice(Reason.RETRY_WAIT.advice()),)
    return Verdict(Standing.WAITING, Reason.RETRY_WAIT, text, details, advice)


def _queued(facts: Facts, state: UrlState) -> Verdict:
    assert state.request
    host = facts.host
    wait = host.wait if host is not None else None
    behind = f"priority {state.request.priority}"
    if host is not None:
        total = counted(host.host.backlog, "request")
        behind += f", {number(state.before)} of {total} for {host.host.name} stand before it"
        if host.gap.ms and state.before:
            behind += f": about {duration(state.before * host.gap.ms / 1000)} at {host.gap.rate}"
    details = [behind]
    if state.request.deliveries:
        details.append(f"handed out {counted(state.request.deliveries, 'time')} without an answer")
    blocked = wait is not None and (
        wait.reason in BLOCKING or (not state.before and wait.reason is not WaitReason.READY)
    )
    if facts.without_proxy and (wait is None or wait.reason not in BLOCKING):
        return _no_proxy(facts)
    if wait is None or not blocked:
        if wait is not None and wait.reason is not WaitReason.READY:
            details.append(f"its host: {wait.text}")
        advice = (Advice(Reason.QUEUED.advice()),)
        return Verdict(Standing.WAITING, Reason.QUEUED, Reason.QUEUED.text(), details, advice)
    until = f", until {moment(wait.until_ms)}" if wait.until_ms else ""
    return Verdict(
        Standing.WAITING, wait.reason, f"{wait.text}{until}", details, of_wait(facts, wait.reason)
    )


def _no_proxy(facts: Facts) -> Verdict:
    nodes = ", ".join(f"node {node[:8]}" for node in facts.without_proxy[:3])
    details = [f"{nodes} found none just now; nothing is sent past the pool"]
    advice = (Advice(Reason.NO_PROXY.advice()),)
    return Verdict(Standing.WAITING, Reason.NO_PROXY, Reason.NO_PROXY.text(), details, advice)


def _last_failure(facts: Facts) -> str:
    retries = [line for line in facts.own_lines if line.kind == LineKind.RETRY]
    if not retries:
        return ""
    return f" failed with {retries[-1].reason}: {_first(retries[-1].error, retries[-1].url)}"


def _dead(facts: Facts) -> Verdict | None:
    dead = facts.state.dead if facts.state is not None else None
    if dead is None:
        return None
    last = facts.own_lines[-1] if facts.own_lines else None
    details = [f"{counted(dead.tries, 'attempt')}, given up at {moment(dead.at_ms)}"]
    if dead.error:
        details.append(_first(dead.error, facts.request.url))
    if last is not None and last.kind == LineKind.FAILED:
        details.append(page_text(last))
    text = _reason_text(dead.reason)
    return Verdict(Standing.FAILED, dead.reason, text, details, of_failed(facts, dead))


# -- what the crawl log tells


def _told(facts: Facts) -> Verdict | None:
    lines = _of_this_run(facts)
    ended = [line for line in lines if line.kind not in (LineKind.SKIPPED, LineKind.RETRY)]
    if ended:
        return _by_line(facts, ended[-1])
    if lines and lines[-1].kind == LineKind.SKIPPED and not _is_seen(facts):
        return _skipped(facts, lines[-1])
    return None


def _of_this_run(facts: Facts) -> list[CrawlLine]:
    """Lines that say what became of it in this run, or in any when runs share what they saw."""
    if facts.info is None or facts.state is None or facts.state.seen.shared:
        return list(facts.lines)
    begun = time_text(max(0, facts.info.status.started_at_ms - SKEW_MS))
    return [line for line in facts.lines if line.run == facts.info.run and line.time >= begun]


def _by_line(facts: Facts, line: CrawlLine) -> Verdict:
    if facts.id not in (line.id, line.page):
        if line.kind == LineKind.REDIRECTED:
            return _ended(facts) if _is_seen(facts) else _unknown(facts)
        text = f"it was crawled as the page to which {line.url} redirects"
        return Verdict(Standing.DONE, Reason.DONE, text, [page_text(line)], again(facts))
    details = [page_text(line)]
    if line.error:
        details.append(_first(line.error, line.url))
    if line.kind == LineKind.FAILED:
        details.append("it is not among the failed requests any more: it was dropped, or retried")
        return Verdict(
            Standing.FAILED, line.reason, _reason_text(line.reason), details, again(facts)
        )
    if line.kind == LineKind.REDIRECTED:
        text = f"it redirects to {line.to}, which is a request of its own"
        return Verdict(
            Standing.DONE, Reason.REDIRECTED, text, details, (Advice.explain(facts, line.to),)
        )
    if line.kind == LineKind.DROPPED:
        return Verdict(
            Standing.NOT_CRAWLED,
            line.reason,
            _reason_text(line.reason),
            details,
            of_rule(line.reason),
        )
    if _is_forgotten(facts, line):
        return Verdict(
            Standing.FORGOTTEN,
            OwnReason.FORGOTTEN,
            "it was crawled, and what was seen of it was forgotten since: it may enter again",
            details,
            (start(facts, "It enters when a page links to it, or as a seed:"),),
        )
    return Verdict(Standing.DONE, Reason.DONE, Reason.DONE.text(), details, again(facts))


def _skipped(facts: Facts, line: CrawlLine) -> Verdict:
    details = [f"dropped as soon as it was found, at {moment(line.time)} by node {line.node[:8]}"]
    if line.error and line.reason in (Reason.NOT_SERIALIZABLE, Reason.BAD_URL):
        details.append(_first(line.error, line.url))
    return Verdict(
        Standing.NOT_CRAWLED,
        line.reason,
        _reason_text(line.reason),
        details,
        of_rule(line.reason),
    )


def _is_seen(facts: Facts) -> bool:
    return facts.state is not None and facts.state.seen.seen


def _is_forgotten(facts: Facts, line: CrawlLine) -> bool:
    state = facts.state
    if state is None or state.seen.seen or state.seen.kind is SeenKind.LOCAL:
        return False
    return line.id == facts.id


# -- what is left


def _seen(facts: Facts) -> Verdict | None:
    return _ended(facts) if _is_seen(facts) else None


def _ended(facts: Facts) -> Verdict:
    assert facts.state
    kind = facts.state.seen.kind
    text = "it was taken and has ended; how is not recorded here"
    details = [f"no line of it in {facts.log_place}: other machines have their own"]
    if kind.errs and not facts.state.seen.exactly:
        details.append(f"or it never came: {kind} takes a new URL for a seen one now and then")
    return Verdict(Standing.ENDED, OwnReason.SEEN, text, details, again(facts))


def _unknown(facts: Facts) -> Verdict:
    refusal = facts.refusal
    if refusal is not None:
        text = f"{refusal.text()}; no link to it was met"
        return Verdict(Standing.NOT_CRAWLED, refusal, text, advice=of_rule(refusal))
    details = [f"known: {url}" for url in facts.near]
    if facts.info is not None and not facts.own_lines:
        details += [
            f"in run {line.run or '(default)'}: {page_text(line)}" for line in facts.lines[-1:]
        ]
    if facts.robots is not None and not facts.robots.allowed:
        details.append("robots.txt would not allow it")
    text = f"unknown to this job: no page of {facts.job} has linked to it yet, and it is no seed"
    advice = [Advice.explain(facts, url) for url in facts.near[:1]]
    advice.append(start(facts, "If it should have come: look at the pages that should link to it."))
    return Verdict(Standing.UNKNOWN, OwnReason.NEVER_DISCOVERED, text, details, tuple(advice))


def _reason_text(reason: str) -> str:
    return Reason(reason).text() if reason in set(Reason) else reason


def _first(text: str, url: str) -> str:
    """The first line of an error of a page that is named already."""
    return beside(url, (text.splitlines() or [""])[0])
