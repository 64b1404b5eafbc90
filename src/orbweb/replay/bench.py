"""The bench: a spider, its trial, the store if there is one, put in the hands of a command."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orbweb.engine.outputs import Refused
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.replay.subject import Finder, Subject
from orbweb.replay.trial import Page, Parsed, Trial
from orbweb.replay.verdicts import Judge, LinkVerdict
from orbweb.spiders.base import BaseSpider
from orbweb.spiders.distributed import Spider

NO_SPIDER = "name the spider whose callback this is: --spider shop.py"


class Bare(Spider):
    """Stands for a spider where none is named: the settings of the directory, no callback."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A page that was fetched and parsed, and what would become of its links."""

    page: Page
    parsed: Parsed
    verdicts: tuple[LinkVerdict, ...] = ()
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Bench:
    """See the module. Used on one event loop."""

    spider: BaseSpider
    trial: Trial
    judge: Judge
    finder: Finder
    admin: Admin | None = None
    """None without a store."""
    info: RunInfo | None = None
    """The run of the spider's job; None when there is none."""

    @property
    def is_bare(self) -> bool:
        """No spider was named."""
        return isinstance(self.spider, Bare)

    async def subject(self, text: str) -> Subject:
        """What the text names; a new request has its id, and a note when no run would take it."""
        subject = await self.finder.find(text)
        if subject.request.id:
            return subject
        return replace(subject, notes=(*subject.notes, *self.name(subject.request)))

    def name(self, request: Request) -> tuple[str, ...]:
        """Give a request its id. What a run would say of it, if that is no."""
        admitted = self.trial.admit(request)
        if isinstance(admitted, Refused):
            return (f"a run would not take it ({admitted.reason}): {admitted.text}",)
        return ()

    async def parse(
        self, request: Request, response: Response | None, callback: str | None = None
    ) -> tuple[Parsed, tuple[LinkVerdict, ...]]:
        """What the callback yields, and the verdict on each request of it."""
        if self.is_bare:
            return Parsed(reason=Reason.UNKNOWN_CALLBACK, error=NO_SPIDER), ()
        parsed = await self.trial.parse(request, response, callback)
        return parsed, tuple(await self.judge.verdicts(parsed.links))

    async def crawl(
        self, request: Request, callback: str | None, depth: int, most: int
    ) -> list[Visit]:
        """Fetch and parse a page, and so deep what it leads to: at most so many pages.

        The links of the last depth are judged and not followed. The callback of the first page
        may be another method than its own.
        """
        self.judge.met(self.trial.admit(request))
        visits: list[Visit] = []
        waiting = [(request, callback, 1)]
        while waiting and len(visits) < most:
            request, callback, level = waiting.pop(0)
            page = await self.trial.fetch(request)
            if not page.ok:
                visits.append(Visit(page, Parsed(reason=page.reason, error=page.error), (), level))
                continue
            parsed, verdicts = await self.parse(page.request, page.response, callback)
            visits.append(Visit(page, parsed, verdicts, level))
            if level < depth:
                next_ones = [each.request for each in verdicts if each.queued]
                waiting += [(_named(each, verdicts), None, level + 1) for each in next_ones]
        return visits


def _named(request: Request, verdicts: tuple[LinkVerdict, ...]) -> Request:
    request.id = next(each.id for each in verdicts if each.request is request)
    return request
