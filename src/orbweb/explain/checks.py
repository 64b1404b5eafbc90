"""The chain of decisions about a URL, each with what it says of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from orbweb.engine.job_rules import JobRules
from orbweb.explain.facts import Facts
from orbweb.explain.words import moment, seen_text
from orbweb.frontier.waiting import WaitReason
from orbweb.model.reasons import Reason
from orbweb.spiders.wording import number

BLOCKING = frozenset(
    {
        WaitReason.HOST_PAUSED,
        WaitReason.RUN_PAUSED,
        WaitReason.CIRCUIT_OPEN,
        WaitReason.TRIAL,
        WaitReason.HELD_OFF,
        WaitReason.NO_NODE,
    }
)
"""Why nothing at all is fetched from a host, whoever comes first there."""


class Check(NamedTuple):
    """One decision of the chain: None when it was not come to, or is not known."""

    name: str
    passed: bool | None
    text: str


def checks(facts: Facts, *, duplicate: bool) -> tuple[Check, ...]:
    """What each decision of the chain says, in the order in which they are made.

    `duplicate`: another spelling of the URL was taken.
    """
    if not facts.canonical:
        return (Check("url", False, (facts.request.problem or Reason.BAD_URL).text()),)
    found = [Check("url", True, "can be fetched")]
    found += rule_checks(facts.rules, len(facts.request.url), facts.depth, facts.refusal)
    if facts.state is not None:
        found.append(Check("dedup", not duplicate, seen_text(facts.state.seen)))
    if facts.host is not None:
        blocked = facts.host.host.pause is not None or facts.host.wait.reason in BLOCKING
        found.append(Check("host", not blocked, f"{facts.host.host.name}: {_host_text(facts)}"))
    found.append(_robots_check(facts))
    return tuple(found)


def rule_checks(
    rules: JobRules, length: int, depth: int | None, refusal: Reason | None
) -> Iterator[Check]:
    """What the rules of a job say of a URL of that length at that depth (None: not known).

    `refusal` is why it is not taken, None when it is.
    """
    yield Check("length", refusal is not Reason.URL_LENGTH, _limit(length, rules.url_length_limit))
    if depth is None:
        yield Check("depth", None, f"not known; DEPTH_LIMIT {rules.depth_limit or 'none'}")
    else:
        yield Check("depth", refusal is not Reason.DEPTH_LIMIT, _limit(depth, rules.depth_limit))
    domains = ", ".join(rules.allowed_domains[:3]) or "all"
    yield Check("domain", refusal is not Reason.OFFSITE, f"allowed: {domains}")
    if rules.exclude_urls or rules.include_urls:
        text = f"exclude {', '.join(rules.exclude_urls) or 'none'}"
        text += f"; include {', '.join(rules.include_urls) or 'all'}"
        yield Check("rules", refusal is not Reason.EXCLUDED, text)


def _host_text(facts: Facts) -> str:
    assert facts.host
    row = facts.host
    until = f" until {moment(row.wait.until_ms)}" if row.wait.until_ms else ""
    texts = [f"{row.wait.text}{until}", f"at most {row.gap.rate}" if row.gap.ms else "no limit"]
    if row.host.ceiling_ms is not None:
        texts.append(f"approved until {moment(row.host.ceiling_until_ms)}")
    return ", ".join(texts)


def _robots_check(facts: Facts) -> Check:
    if not facts.rules.obey_robots:
        return Check("robots", None, "not asked (ROBOTS_OBEY is false)")
    robots = facts.robots
    if robots is None:
        return Check("robots", None, "the nodes have no robots.txt of this site now")
    if robots.unreachable:
        return Check("robots", False, robots.unreachable)
    if robots.decision is None:
        return Check("robots", robots.allowed, "no rule of robots.txt fits")
    rule = robots.decision
    return Check("robots", robots.allowed, f'line {rule.line} "{rule.text}"')


def _limit(value: int, most: int) -> str:
    return f"{number(value)} of at most {number(most)}" if most else f"{number(value)}, no limit"
