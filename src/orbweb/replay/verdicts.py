"""What would become of the requests that a page yields: each with its verdict and the chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from orbweb.engine.job_rules import JobRules
from orbweb.engine.outputs import Refused
from orbweb.explain.checks import Check, rule_checks
from orbweb.explain.facts import RobotsFacts, robots_facts
from orbweb.explain.words import seen_text
from orbweb.frontier.base import NewRequest
from orbweb.frontier.urls import UrlState, Wanted
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.url import canonical_url
from orbweb.replay.trial import Link

Look = Callable[[Wanted], Awaitable[UrlState]]


@dataclass(frozen=True, slots=True)
class LinkVerdict:
    """Whether a run would queue and fetch a request; if not, the reason."""

    request: Request
    id: str
    reason: Reason
    """`queued`, or why it is dropped."""
    text: str
    checks: tuple[Check, ...]

    @property
    def queued(self) -> bool:
        return self.reason is Reason.QUEUED


class Judge:
    """Judges the requests of one trial, in the order in which they were yielded.

    A page that an earlier one named counts as seen, as it would in a run.
    """

    def __init__(
        self,
        rules: JobRules,
        robots: Callable[[str], Awaitable[bytes | None]],
        look: Look | None,
        knows_callback: Callable[[Request], bool],
    ) -> None:
        """`look` asks the store's run; None when there is none. `robots` gives what is kept."""
        self._rules = rules
        self._robots = robots
        self._look = look
        self._knows_callback = knows_callback
        self._here: set[int] = set()

    def met(self, admitted: NewRequest | Refused) -> None:
        """A page that is fetched by this trial counts as seen."""
        if isinstance(admitted, NewRequest) and admitted.fingerprint is not None:
            self._here.add(admitted.fingerprint)

    async def verdicts(self, links: Sequence[Link]) -> list[LinkVerdict]:
        """One for each link. Raises `StoreUnavailable`."""
        return [await self._verdict(link) for link in links]

    async def _verdict(self, link: Link) -> LinkVerdict:
        request, admitted = link
        if isinstance(admitted, Refused):
            checks = tuple(self._rule_checks(request, admitted.reason))
            return LinkVerdict(request, request.id, admitted.reason, admitted.text, checks)
        dedup, reason = await self._dedup(admitted)
        robots = _robots_check(self._rules, await self._robots_facts(request))
        if reason is None and robots.passed is False:
            reason = Reason.ROBOTS_DISALLOWED
        self.met(admitted)
        callback = self._callback_check(request)
        checks = (*self._rule_checks(request, None), dedup, robots, *callback)
        text = dedup.text if dedup.passed is False else robots.text
        if reason is None:
            reason, text = Reason.QUEUED, callback[0].text if callback else "new"
        return LinkVerdict(request, admitted.id, reason, text, checks)

    def _rule_checks(self, request: Request, refused: Reason | None) -> Iterator[Check]:
        if refused in (Reason.BAD_URL, Reason.SCHEME):
            yield Check("url", False, refused.text())
            return
        yield Check("url", True, "can be fetched")
        if refused is Reason.NOT_SERIALIZABLE:
            yield Check("travels", False, refused.text())
        yield from rule_checks(self._rules, len(request.url), request.depth, refused)

    async def _dedup(self, new: NewRequest) -> tuple[Check, Reason | None]:
        if new.fingerprint is None:
            return Check("dedup", None, "not asked (filter_repeat=False)"), None
        if new.fingerprint in self._here:
            text = "this page was named before, here"
            return Check("dedup", False, text), Reason.DUPLICATE_REQUEST
        if self._look is None:
            return Check("dedup", None, "no run of the job is here to ask"), None
        state = await self._look(Wanted(new.id, new.fingerprint, new.host))
        known = _known_text(state)
        if known:
            return Check("dedup", False, known), Reason.DUPLICATE_REQUEST
        return Check("dedup", True, seen_text(state.seen)), None

    async def _robots_facts(self, request: Request) -> RobotsFacts | None:
        canonical = canonical_url(request.url, self._rules.drop_params)
        return await robots_facts(self._robots, self._rules, request.url, canonical)

    def _callback_check(self, request: Request) -> tuple[Check, ...]:
        if self._knows_callback(request):
            return ()
        text = f"the spider has no method {request.callback_name!r}: it would become a dead letter"
        return (Check("callback", False, text),)


def _known_text(state: UrlState) -> str:
    """Why the store would not take it; empty when it would."""
    if state.request is not None:
        return f"the run has it: {state.place or 'pending'}"
    if state.taken_by:
        return f"request {state.taken_by} was redirected to it, and crawls it"
    if not state.seen.seen:
        return ""
    if state.dead is not None:
        return f"given up: {state.dead.reason} (orbweb shell failed:{state.dead.id[:8]})"
    return seen_text(state.seen)


def _robots_check(rules: JobRules, robots: RobotsFacts | None) -> Check:
    if not rules.obey_robots:
        return Check("robots", None, "not asked (ROBOTS_OBEY is false)")
    if robots is None:
        return Check("robots", None, "the robots.txt of this site is not known yet")
    if robots.unreachable:
        return Check("robots", None, f"waits: {robots.unreachable}")
    if robots.decision is None:
        return Check("robots", robots.allowed, "no rule of robots.txt fits")
    return Check("robots", robots.allowed, f'line {robots.decision.line} "{robots.decision.text}"')
