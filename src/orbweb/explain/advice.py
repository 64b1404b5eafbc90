"""What to do about a verdict: a sentence, and the exact command where there is one."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from orbweb.explain.facts import Facts
from orbweb.frontier.base import DeadLetter
from orbweb.frontier.waiting import WaitReason
from orbweb.model.reasons import Reason


class Advice(NamedTuple):
    """One thing to do."""

    text: str
    command: str = ""

    @classmethod
    def explain(cls, facts: Facts, url: str) -> Advice:
        """Ask for another URL."""
        return cls("See what became of that:", _command(facts, "explain", url, "--job", facts.job))


def again(facts: Facts) -> tuple[Advice, ...]:
    """How a page that has ended is crawled once more."""
    if facts.state is None:
        return (Advice("To crawl it again start the spider anew."),)
    forget = _command(facts, "dedup", "forget", facts.job, facts.canonical, run=True)
    if facts.state.seen.seen and not facts.state.seen.kind.errs:
        return (
            Advice("To crawl it again let it be new, then let a page or a seed name it:", forget),
        )
    host = facts.host.host.name if facts.host is not None else ""
    forget = _command(facts, "dedup", "forget", facts.job, "--host", host, run=True)
    return (
        Advice("To crawl it again yield it with filter_repeat=False, or forget its host:", forget),
    )


def start(facts: Facts, text: str) -> Advice:
    """What the crawl log has of the site, for a look around."""
    host = facts.host.host.name if facts.host is not None else ""
    words = ["log", facts.job, *(("--host", host) if host else ())]
    return Advice(text, _command(None, *words))


def of_failed(facts: Facts, dead: DeadLetter) -> tuple[Advice, ...]:
    """About a request that was given up."""
    found = []
    if dead.reason in set(Reason):
        found.append(Advice(Reason(dead.reason).advice()))
    if dead.reason == Reason.ITEM_REJECTED:
        command = _command(facts, "items", "failed", facts.job, run=True)
        found.append(Advice("The items that were refused:", command))
    show = _command(facts, "failed", "show", facts.job, dead.id, run=True)
    retry = _command(facts, "failed", "retry", facts.job, dead.id, run=True)
    spider = ("--spider", facts.rules.spider) if facts.rules.spider else ()
    replay = _command(facts, "shell", f"failed:{dead.id}", *spider, "--job", facts.job, run=True)
    return (
        *found,
        Advice("All that is kept:", show),
        Advice("At a prompt, with its response:", replay),
        Advice("Another try:", retry),
    )


def of_rule(reason: str) -> tuple[Advice, ...]:
    """About a URL that a rule keeps out."""
    if reason not in set(Reason):
        return ()
    setting = _SETTINGS.get(reason)
    command = _command(None, "settings", "--explain", setting) if setting else ""
    return (Advice(Reason(reason).advice(), command),)


def of_wait(facts: Facts, reason: WaitReason) -> tuple[Advice, ...]:
    """About a request whose host is not fetched from now."""
    assert facts.host
    host = facts.host.host.name
    if reason is WaitReason.HOST_PAUSED:
        return (Advice("To go on:", _command(facts, "resume", host)),)
    if reason is WaitReason.RUN_PAUSED:
        command = _command(facts, "resume", facts.job, "--job", run=True)
        return (Advice("To go on:", command),)
    if reason is WaitReason.NO_NODE:
        if not facts.rules.spider:
            return (Advice("Start the spider: it goes on where it stopped."),)
        run = ("--run-id", facts.info.run) if facts.info is not None and facts.info.run else ()
        return (Advice("Start the spider:", _command(facts, "run", facts.rules.spider, *run)),)
    if reason is WaitReason.LIMIT:
        return (Advice("To take the limit away:", _command(facts, "limit", host, "off")),)
    if reason in (WaitReason.CEILING, WaitReason.UNAPPROVED):
        return (Advice("The rates that are approved:", _command(facts, "rates", "list")),)
    return (
        Advice(
            "Nothing to do, it goes on by itself. More of the host:", _command(facts, "hosts", host)
        ),
    )


_SETTINGS: dict[str, str] = {
    Reason.OFFSITE: "ALLOWED_DOMAINS",
    Reason.EXCLUDED: "EXCLUDE_URLS",
    Reason.DEPTH_LIMIT: "DEPTH_LIMIT",
    Reason.URL_LENGTH: "URL_LENGTH_LIMIT",
    Reason.CONTENT_TYPE: "ALLOWED_CONTENT_TYPES",
    Reason.ROBOTS_DISALLOWED: "ROBOTS_OBEY",
}
"""The setting that decides."""


def _command(facts: Facts | None, *words: str, run: bool = False) -> str:
    """A command line that can be pasted; `run`: with the run, where it has a name."""
    named = facts.info.run if facts is not None and facts.info is not None and run else ""
    more = ("--run-id", named) if named else ()
    return shlex.join(("orbweb", *words, *more))
