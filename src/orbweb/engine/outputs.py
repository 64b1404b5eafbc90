"""What callbacks yield: links become requests for the frontier, items become records to store."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from orbweb.engine.options import Codec
from orbweb.errors import ItemError, SpiderError, UnserialisableError
from orbweb.frontier.base import PRIORITY_LIMIT, NewRequest
from orbweb.frontier.tasks import NewTask, page_of, task_of, task_request
from orbweb.log import get_logger
from orbweb.model.fingerprint import derived_fingerprint, fingerprint, request_id
from orbweb.model.item import ItemRecord, is_item, item_record
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.url import BadUrlError, host_of, why_unfetchable
from orbweb.model.way import NO_WAY

log = get_logger("orbweb.engine")


@dataclass(frozen=True, slots=True)
class LinkRules:
    """Which links are taken; 0 and empty mean no limit."""

    depth_limit: int = 0
    url_length_limit: int = 8192
    allowed_domains: frozenset[str] = frozenset()
    drop_query_params: frozenset[str] = frozenset()
    exclude: tuple[str, ...] = ()
    """Regular expressions (`re.search` in the URL)."""
    include: tuple[str, ...] = ()
    """The same; empty means all."""

    def refusal(self, request: Request, depth: int) -> Reason | None:
        """Why the request is not taken, or None."""
        if 0 < self.url_length_limit < len(request.url):
            return Reason.URL_LENGTH
        if 0 < self.depth_limit < depth:
            return Reason.DEPTH_LIMIT
        if self.allowed_domains and not self._is_onsite(host_of(request.url)):
            return Reason.OFFSITE
        if self.is_excluded(request.url):
            return Reason.EXCLUDED
        return None

    def is_excluded(self, url: str) -> bool:
        """Whether the rules for URLs leave it out; `exclude` wins over `include`."""
        if any(re.search(pattern, url) for pattern in self.exclude):
            return True
        return bool(self.include) and not any(re.search(pattern, url) for pattern in self.include)

    def _is_onsite(self, host: str) -> bool:
        name = host.partition(":")[0] if not host.startswith("[") else host
        while name:
            if name in self.allowed_domains:
                return True
            name = name.partition(".")[2]
        return False


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that is not taken, and why."""

    reason: Reason
    text: str


class Admission:
    """Turns the requests that a spider yields into requests for the frontier.

    The id of a request is its fingerprint. A request that is not to be deduplicated gets an id
    from who yielded it and at which position, so that a repeated page yields the same ids again.
    What descends from a task has the task in front of its id, and counts as seen for it alone.
    """

    def __init__(
        self,
        rules: Callable[[], LinkRules],
        codec: Codec,
        knows_callback: Callable[[Request], bool],
        on_refused: Callable[[Request, Reason, str], None] | None = None,
        *,
        shares_dedup: bool = False,
    ) -> None:
        """`rules` gives those that hold now.

        `on_refused` is told of each request that is not taken, on whatever thread that is.

        `shares_dedup`: what one task has crawled is seen for the others.
        """
        self._on_refused = on_refused
        self._shares_dedup = shares_dedup
        self._rules = rules
        self._codec = codec
        self._knows_callback = knows_callback
        self._checked: set[str] = set()
        self._told_bad_link = False

    def child(self, request: Request, parent: Request, ordinal: int) -> NewRequest | Refused:
        """Admit a request that `parent` yielded as its `ordinal`-th."""
        if request is parent:
            request = request.copy()
        request.parent_id = parent.id
        request.depth = parent.depth + 1
        request.way = NO_WAY
        origin = (parent.id, str(ordinal))
        admitted = self._admit(request, origin, repeat=not request.filter_repeat)
        if isinstance(admitted, Refused) and admitted.reason is Reason.BAD_URL:
            self._tell_bad_link(parent, admitted)
        return admitted

    def seed(self, request: Request, epoch: str, ordinal: int) -> NewRequest | Refused:
        """Admit the `ordinal`-th request of `start_requests`.

        One that is not to be deduplicated is deduplicated by its position, so that seeding which
        is run again adds nothing twice.
        """
        request.parent_id = ""
        request.depth = 0
        request.way = NO_WAY
        origin = (epoch, "seed", str(ordinal))
        return self._admit(request, origin, repeat=not request.filter_repeat, seed=True)

    def redirect(self, hop: Request, id: str) -> int | Refused:
        """Admit where a redirect of the request `id` leads: the fingerprint of what is seen."""
        try:
            reason = self._rules().refusal(hop, hop.depth)
            if reason is None:
                return self._fingerprint(hop, task_of(id))
            return Refused(reason, f"{hop.url}: {reason.text()}")
        except BadUrlError as error:
            return Refused(error.reason, str(error))

    def elsewhere(self, target: Request, redirected: Request) -> NewRequest | Refused:
        """Admit the request for where a redirect leads, when it is one of its own.

        It takes the place of the one that was redirected: as deep, and with the same callback.
        """
        target.parent_id = redirected.id
        repeat = not target.filter_repeat or target.way.taken
        return self._admit(target, (redirected.id, "redirect"), repeat=repeat)

    def _fingerprint(self, request: Request, task: str) -> int:
        mark = fingerprint(request, self._rules().drop_query_params)
        if task and not self._shares_dedup:
            return derived_fingerprint(task, str(mark))
        return mark

    def _admit(
        self, request: Request, origin: tuple[str, ...], *, repeat: bool, seed: bool = False
    ) -> NewRequest | Refused:
        admitted = self._judge(request, origin, repeat=repeat, seed=seed)
        if isinstance(admitted, Refused) and self._on_refused is not None:
            self._on_refused(request, admitted.reason, admitted.text)
        return admitted

    def _judge(
        self, request: Request, origin: tuple[str, ...], *, repeat: bool, seed: bool
    ) -> NewRequest | Refused:
        """`repeat`: the request may have been taken before; `seed`: but not with this origin."""
        request.retry_times = 0
        task = "" if seed else task_of(origin[0])
        if request.problem is not None:
            why = why_unfetchable(request.url) or request.problem.text()
            return Refused(request.problem, f"{request.url}: {why}")
        if abs(request.priority) > PRIORITY_LIMIT:
            text = f"priority {request.priority} is not within ±{PRIORITY_LIMIT}"
            return Refused(Reason.NOT_SERIALIZABLE, f"{request.url}: {text}")
        try:
            reason = self._rules().refusal(request, request.depth)
            if reason is not None:
                return Refused(reason, f"{request.url}: {reason.text()}")
            print_ = self._fingerprint(request, task)
            seen: int | None = print_
            if repeat:
                print_ = derived_fingerprint(*origin, str(print_))
                seen = print_ if seed else None
            id = f"{task}.{request_id(print_)}" if task else request_id(print_)
            request.id = id
            payload = self._codec.encode(request)
        except UnserialisableError as error:
            return Refused(Reason.NOT_SERIALIZABLE, f"{request.url}: {error}")
        except BadUrlError as error:
            return Refused(error.reason, str(error))
        self._check_callback(request)
        sure = request.dedup == "exact"
        return NewRequest(id, host_of(request.url), request.priority, seen, payload, sure)

    def _tell_bad_link(self, parent: Request, refused: Refused) -> None:
        """Say it of the first one: sites have such links, but so has code that builds URLs."""
        if not self._told_bad_link:
            self._told_bad_link = True
            log.warning(
                "link on %s not taken (%s): %s; further ones are only counted",
                parent.url,
                refused.reason,
                refused.text,
            )

    def _check_callback(self, request: Request) -> None:
        name = request.callback_name
        if name in self._checked:
            return
        self._checked.add(name)
        if not self._knows_callback(request):
            log.error(
                "%s: the spider has no method %r; such requests become dead letters "
                "(reason unknown_callback)",
                request.url,
                name,
            )


class Outputs:
    """Collects what one page yields, in its order.

    Everything is copied when it is yielded, so a spider may change and yield the same object
    again. One at a time uses it: the thread that reads the callback, then the event loop.
    """

    def __init__(
        self, parent: Request, admission: Admission, *, epoch: str, default_table: str
    ) -> None:
        self.skipped: Counter[Reason] = Counter()
        """Links that were not taken."""
        self.lost: list[str] = []
        """Texts about requests and items that cannot be taken although they should be."""
        self.lost_reason: Reason | None = None
        self.links = 0
        """Links that were taken."""
        self.items = 0
        """Items that were yielded, those that cannot be stored included."""
        self.rejected_items = 0
        self._parent = parent
        self._admission = admission
        self._epoch = epoch
        self._default_table = default_table
        self._requests = 0
        self._tasks = 0
        self._awaitables: list[Awaitable[Any]] = []
        self._records: list[ItemRecord] = []
        self._children: list[NewRequest] = []

    @property
    def waiting_children(self) -> int:
        return len(self._children)

    @property
    def waiting_records(self) -> int:
        return len(self._records)

    def accept(self, output: Any) -> None:
        """Take one output: a request, an item, a function to call, or None.

        Raises `SpiderError` for anything else, and whatever the function raises.
        """
        if isinstance(output, Request):
            self._accept_request(output)
        elif output is None:
            return
        elif is_item(output):
            self._accept_item(output)
        elif callable(output) and not isinstance(output, type):
            result = output()
            if inspect.isawaitable(result):
                self._awaitables.append(result)
        else:
            raise SpiderError(
                f"a callback may yield requests, items (dict, Item, dataclass, attrs, pydantic), "
                f"functions without arguments and None, not {type(output).__name__}: "
                f"{str(output)[:80]!r}"
            )

    def add_tasks(self, values: Sequence[Any]) -> None:
        """Take tasks, which enter with the links. The same page gives them the same names again.

        Raises `UnserialisableError` for what is no JSON value; none is taken then.
        """
        tasks = []
        for place, value in enumerate(values, self._tasks):
            mark = derived_fingerprint(self._parent.id, "task", str(place))
            tasks.append(task_request(NewTask(request_id(mark), value), mark))
        self._tasks += len(tasks)
        self._children += tasks

    def take_children(self, most: int | None = None) -> list[NewRequest]:
        """Hand over the first `most` links, in the order in which they were yielded."""
        taken = self._children[:most]
        del self._children[: len(taken)]
        return taken

    def take_records(self) -> list[ItemRecord]:
        """Hand over the items."""
        taken = self._records[:]
        del self._records[: len(taken)]
        return taken

    def take_awaitables(self) -> list[Awaitable[Any]]:
        """Hand over what the called functions want to be awaited."""
        awaitables, self._awaitables = self._awaitables, []
        return awaitables

    def lose(self, reason: Reason, text: str) -> None:
        """Note something that could not be taken: the page will be kept as a dead letter."""
        self.lost_reason = self.lost_reason or reason
        self.lost.append(text)

    def lost_text(self) -> str:
        """One line about what could not be taken."""
        many = len(self.lost)
        told = "an output" if many == 1 else f"{many} outputs"
        return f"{told} could not be taken{'' if many == 1 else '; first'}: {self.lost[0]}"

    def _accept_request(self, request: Request) -> None:
        admitted = self._admission.child(request, self._parent, self._requests)
        self._requests += 1
        if isinstance(admitted, NewRequest):
            self._children.append(admitted)
            self.links += 1
            return
        self.skipped[admitted.reason] += 1
        if admitted.reason is Reason.NOT_SERIALIZABLE:
            self.lose(admitted.reason, admitted.text)

    def _accept_item(self, item: Any) -> None:
        position = self.items
        self.items += 1
        try:
            record = item_record(
                item,
                run=self._epoch,
                request_id=page_of(self._parent.id),
                position=position,
                default_table=self._default_table,
            )
        except ItemError as error:
            self.rejected_items += 1
            self.lose(Reason.ITEM_REJECTED, str(error))
            return
        self._records.append(record)


collecting: ContextVar[Outputs | None] = ContextVar("collecting", default=None)
"""What the running callback yields into; None outside of callbacks."""
