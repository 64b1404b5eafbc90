"""A trial: a spider fetches and parses single pages as in a run; nothing is queued or stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orbweb.download.base import Again, Dropped, Failed, Fetched, Outcome, Redirected
from orbweb.download.chain import Chain
from orbweb.engine.callbacks import Callbacks
from orbweb.engine.knobs import Knobs
from orbweb.engine.options import Codec
from orbweb.engine.outputs import Admission, LinkRules, Outputs, Refused
from orbweb.engine.step import error_text
from orbweb.engine.traces import place_of
from orbweb.errors import NotRetryError, SpiderError, ValidationError
from orbweb.frontier.base import NewRequest
from orbweb.model.item import ItemRecord
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import host_of
from orbweb.replay.gate import Manners
from orbweb.spiders.build_trial import TrialParts

EPOCH = "trial"
"""Stands for the run in the keys of items, which are stored nowhere."""


@dataclass(frozen=True, slots=True)
class Page:
    """What came of one attempt to fetch: an answer, or why there is none that a callback gets."""

    request: Request
    response: Response | None = None
    reason: Reason = Reason.DONE
    error: str = ""

    @property
    def ok(self) -> bool:
        """The callback would get it."""
        return self.reason is Reason.DONE


class Link(NamedTuple):
    """A request that a callback has yielded, and whether the rules of the job take it."""

    request: Request
    admitted: NewRequest | Refused


@dataclass(slots=True)
class Parsed:
    """What a callback has yielded."""

    items: list[ItemRecord] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    callback: str = ""
    """The method that was called, or was to be; empty when none was."""
    lost: list[str] = field(default_factory=list)
    """Texts about outputs that cannot be taken although they should be."""
    reason: Reason = Reason.DONE
    error: str = ""
    exception: BaseException | None = None

    def __repr__(self) -> str:
        failed = f", {self.reason}: {self.error}" if self.error else ""
        return f"<Parsed {len(self.items)} items, {len(self.links)} requests{failed}>"


class _Noting(Admission):
    """Admits as in a run, and keeps what was asked."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.links: list[Link] = []

    def child(self, request: Request, parent: Request, ordinal: int) -> NewRequest | Refused:
        admitted = super().child(request, parent, ordinal)
        self.links.append(Link(request.copy(), admitted))
        return admitted


class Trial:
    """Fetches and parses with the parts of a spider. Used on one event loop."""

    def __init__(
        self,
        chain: Chain,
        callbacks: Callbacks,
        codec: Codec,
        rules: LinkRules,
        manners: Manners,
        *,
        default_table: str,
        shares_dedup: bool = False,
    ) -> None:
        self._chain = chain
        self._callbacks = callbacks
        self._codec = codec
        self._rules = rules
        self._manners = manners
        self._default_table = default_table
        self._shares_dedup = shares_dedup

    def admit(self, request: Request) -> NewRequest | Refused:
        """Admit a page's own request, as a seed: gives it its id."""
        return self._admission().seed(request, EPOCH, 0)

    async def fetch(self, request: Request) -> Page:
        """One attempt through the spider's full download path; redirects to other hosts too.

        Raises `HostBusy` when the host is not to be asked now, `StoreUnavailable`.
        """
        while True:
            outcome = await self._chain.download(
                request,
                download_midware=self._callbacks.midware(request),
                gate=self._manners.gate(host_of(request.url)),
            )
            if not isinstance(outcome, Redirected):
                return _page(outcome)
            admitted = self._admission().elsewhere(outcome.target, outcome.request)
            if isinstance(admitted, Refused):
                text = f"redirects to {outcome.target.url}: {admitted.text}"
                return Page(outcome.request, None, admitted.reason, text)
            request = self._codec.decode(admitted.payload)
            request.id = admitted.id

    async def parse(
        self, request: Request, response: Response | None, callback: str | None = None
    ) -> Parsed:
        """Validate the page and call its callback, or another method of the spider.

        What the spider raises is told in the result.
        """
        admission, parsed = self._admission(), Parsed()
        outputs = Outputs(request, admission, epoch=EPOCH, default_table=self._default_table)
        called = request if callback is None else request.replace(callback=callback)
        parsed.callback = called.callback_name or "parse"
        try:
            function = self._callbacks.resolve(called)
        except SpiderError as error:
            parsed.reason, parsed.error = Reason.UNKNOWN_CALLBACK, str(error)
            return parsed
        try:
            if response is not None and not await self._callbacks.accepts(request, response):
                parsed.reason, parsed.error = Reason.VALIDATION, "validate() returned False"
                return parsed
            await self._callbacks.parse(function, request, response, outputs, _no_flush)
        except Exception as error:
            parsed.reason = _reason_of(error)
            parsed.error = error_text(error) + place_of(error)
            parsed.exception = error
        parsed.items = outputs.take_records()
        parsed.links = admission.links
        parsed.lost = outputs.lost
        return parsed

    def callbacks(self) -> list[str]:
        """Methods of the spider that may be named as the callback of a page."""
        return self._callbacks.names()

    def _admission(self) -> _Noting:
        return _Noting(
            lambda: self._rules,
            self._codec,
            self._callbacks.knows,
            shares_dedup=self._shares_dedup,
        )


async def _no_flush() -> None:
    """Nothing is passed on."""


def _page(outcome: Outcome) -> Page:
    match outcome:
        case Fetched(request, response):
            return Page(request, response)
        case Failed(request, reason, error):
            return Page(request, outcome.response, reason, str(error))
        case Dropped(request, reason, error):
            return Page(request, None, reason, str(error))
        case Again(request):
            text = "a middleware asked for another try with the request that it gave"
            return Page(request, None, Reason.RETRY_WAIT, text)
    raise AssertionError(outcome)


def _reason_of(error: Exception) -> Reason:
    if isinstance(error, NotRetryError):
        return Reason.NOT_RETRY
    if isinstance(error, ValidationError):
        return Reason.VALIDATION
    return Reason.CALLBACK_ERROR


def trial_of(parts: TrialParts, manners: Manners) -> Trial:
    """A trial with the parts of a spider."""
    options = parts.options
    return Trial(
        parts.chain,
        parts.callbacks,
        parts.codec,
        Knobs.of(options).links,
        manners,
        default_table=options.default_table,
        shares_dedup=options.tasks is not None and options.tasks.shares_dedup,
    )


def items_of(records: Sequence[ItemRecord]) -> list[dict[str, Any]]:
    """Rows as they would be stored, without the run's own fields."""
    return [
        {name: value for name, value in record.row.items() if not name.startswith("_")}
        for record in records
    ]
