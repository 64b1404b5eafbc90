"""Gathers all that is known of one URL: from the store, and from the crawl log of this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from orbweb.download.robots_entry import EntryKind, RobotsEntry, origin_of
from orbweb.download.robots_rules import Decision, Rules, deciding_rule
from orbweb.engine.job_rules import JobRules
from orbweb.engine.journal import page_id
from orbweb.errors import OrbwebError, RunLost
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.hosttable import HostRow
from orbweb.frontier.jobbook import PAGE, JobBook, Placed
from orbweb.frontier.urls import Place, UrlState, Wanted
from orbweb.model.codec import decode
from orbweb.model.fingerprint import fingerprint, request_id
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.url import canonical_url, host_of
from orbweb.monitor.crawl_line import CrawlLine, LineKind, decode_line
from orbweb.monitor.log_reader import LogReader

STREAM_PAGES = 10
"""Of the lines in the store the latest so many thousand are searched; the rest is on disks."""


SILENT_MS = 15_000
"""What a node said that has been silent for longer is not believed any more."""


@dataclass(frozen=True, slots=True)
class RobotsFacts:
    """What the robots.txt of the site says of the URL, as the nodes have it."""

    allowed: bool
    decision: Decision | None = None
    unreachable: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of a URL in one run of a job."""

    asked: str
    request: Request
    canonical: str
    """Empty for what cannot be a request."""
    id: str
    job: str
    rules: JobRules
    info: RunInfo | None = None
    """The run that was looked at; None without a store, or when the job has none."""
    state: UrlState | None = None
    host: HostRow | None = None
    robots: RobotsFacts | None = None
    """None when the nodes have no robots.txt of that site now, or are told not to obey it."""
    lines: Sequence[CrawlLine] = ()
    """Of the crawl log, in the order of their time."""
    node: dict[str, object] = field(default_factory=dict)
    """What the node that holds it said of itself, and `silent_ms`."""
    without_proxy: Sequence[str] = ()
    """Nodes at work that found no proxy for its host just now; only of one that is pending."""
    parent_url: str = ""
    """Of the page on which it was found, where that is known."""
    near: Sequence[str] = ()
    """Other spellings of the URL that the store knows."""
    log_place: str = ""
    """Where lines were looked for."""

    @property
    def stored(self) -> Request | None:
        """The request as it is stored, pending or dead."""
        state = self.state
        held = state and (state.request or state.dead)
        if not held:
            return None
        with suppress(OrbwebError):
            return decode(held.payload)
        return None

    @property
    def own_lines(self) -> list[CrawlLine]:
        """Lines about the request itself; those of pages that led to it are left out."""
        return [line for line in self.lines if self.id in (line.id, line.page)]

    @property
    def parent_id(self) -> str | None:
        """Id of the request that found it; empty for a seed, None when nobody knows."""
        if self.stored is not None:
            return self.stored.parent_id
        return self.own_lines[0].parent if self.own_lines else None

    @property
    def depth(self) -> int | None:
        """Links from a seed; None when nobody knows."""
        if self.stored is not None:
            return self.stored.depth
        return self.own_lines[0].depth if self.own_lines else None

    @property
    def refusal(self) -> Reason | None:
        """The rule of the job that would keep a link to it out, its depth taken as known."""
        if not self.canonical:
            return self.request.problem or Reason.BAD_URL
        return self.rules.links.refusal(self.request, self.depth or 0)


class Inquiry:
    """Looks URLs up in a job. Changes nothing, neither in the store nor on the disk."""

    def __init__(
        self,
        job: str,
        reader: LogReader | None,
        *,
        default_rules: JobRules,
        log_place: str = "",
    ) -> None:
        """`default_rules` hold for a job that has told none."""
        self._job = job
        self._reader = reader
        self._default_rules = default_rules
        self._log_place = log_place

    async def ask(self, admin: Admin, info: RunInfo, url: str) -> Facts:
        """All that is known of a URL in a run. Raises `StoreUnavailable`."""
        book = admin.book(self._job)
        told = await book.rules()
        rules = (JobRules.decode(told) if told else None) or self._default_rules
        request = Request(url)
        canonical, wanted = _identity(request, rules)
        id = wanted.id if wanted else page_id(request)
        state, host, robots = None, None, None
        if wanted is not None:
            with suppress(RunLost):
                state = await _look(admin, info, wanted)
            host = await admin.hosts.look(wanted.host)
            robots = await robots_facts(admin.robots, rules, request.url, canonical)
        lines = await self._lines(book, id)
        repeated = [line.id for line in lines if line.page == id]
        if wanted is not None and state is not None and not state.known and repeated:
            with suppress(RunLost):  # it asked not to be deduplicated, so its id is another
                state = await _look(admin, info, wanted._replace(id=repeated[-1]))
        facts = Facts(
            url, request, canonical, id, self._job, rules, info, state, host, robots, lines,
            log_place=self._log_place,
        )  # fmt: skip
        return await self._completed(admin, book, facts)

    def ask_log(self, url: str) -> Facts:
        """All that the crawl log of this machine knows of a URL, without a store."""
        request, rules = Request(url), self._default_rules
        canonical, wanted = _identity(request, rules)
        id = wanted.id if wanted else page_id(request)
        lines = self._reader.find(id, self._job) if self._reader else []
        facts = Facts(
            url, request, canonical, id, self._job, rules, lines=lines, log_place=self._log_place
        )
        parent = facts.parent_id
        found = self._reader.find(parent, self._job) if self._reader and parent else []
        return replace(facts, parent_url=_url_of(found, parent or ""))

    async def _completed(self, admin: Admin, book: JobBook, facts: Facts) -> Facts:
        """With the page that has the link, the node that holds it, and other spellings."""
        info, state = facts.info, facts.state
        parent, node, near = "", {}, list[str]()
        if facts.parent_id and info is not None:
            parent = await self._parent(admin, info, book, facts)
        if state is not None and state.node and info is not None:
            node = await self._node(admin, info, state.node)
        without_proxy = tuple[str, ...]()
        if state is not None and state.place is not Place.NOWHERE and info is not None:
            without_proxy = await self._without_proxy(admin, info, host_of(facts.request.url))
        if state is not None and not state.known and not facts.lines and info is not None:
            for url in _spellings(facts.request.url):
                canonical, wanted = _identity(Request(url), facts.rules)
                if wanted is None or wanted.id == facts.id or canonical in near:
                    continue
                if (await _look(admin, info, wanted)).known:
                    near.append(canonical)
        return replace(
            facts, parent_url=parent, node=node, near=tuple(near), without_proxy=without_proxy
        )

    async def _parent(self, admin: Admin, info: RunInfo, book: JobBook, facts: Facts) -> str:
        id = facts.parent_id or ""
        if found := _url_of(await self._lines(book, id), id):
            return found
        if facts.request.problem is None:  # a page of another host may lie in another shard
            state = await _look(admin, info, Wanted(id, 0, host_of(facts.request.url)))
            held = state.request or state.dead
            with suppress(OrbwebError):
                return decode(held.payload).url if held else ""
        return ""

    async def _node(self, admin: Admin, info: RunInfo, name: str) -> dict[str, object]:
        for node in await admin.nodes(info):
            if node.node == name:
                return {**node.said, "silent_ms": node.silent_ms}
        return {}

    async def _without_proxy(self, admin: Admin, info: RunInfo, host: str) -> tuple[str, ...]:
        lacking = []
        for node in await admin.nodes(info):
            hosts = node.said.get("no_proxy") if node.silent_ms < SILENT_MS else None
            if isinstance(hosts, list) and host in hosts:
                lacking.append(node.node)
        return tuple(lacking)

    async def _lines(self, book: JobBook, id: str) -> list[CrawlLine]:
        found = set(self._reader.find(id, self._job)) if self._reader else set()
        before = "+"
        for _ in range(STREAM_PAGES):
            page = await book.lines(before)
            found.update(line for line in _decoded(page) if id in line.keys)
            if len(page) < PAGE:
                break
            before = page[-1][0]
        return sorted(found, key=lambda line: line.time)


async def _look(admin: Admin, info: RunInfo, wanted: Wanted) -> UrlState:
    return await admin.urls.look(info.job, info.run, info.epoch, info.status.shards, wanted)


async def robots_facts(
    entries: Callable[[str], Awaitable[bytes | None]], rules: JobRules, asked: str, url: str
) -> RobotsFacts | None:
    """What robots.txt says, as far as it is known; nothing is fetched for that.

    `entries` gives what is kept of an origin. `asked`: the URL as nodes fetch it, which names the
    entry; `url`: its canonical form.
    """
    origin = origin_of(asked)
    if origin is None or not rules.obey_robots:
        return None
    stored = await entries(origin)
    entry = RobotsEntry.decode(stored) if stored is not None else None
    if entry is None:
        return None
    if entry.kind is EntryKind.UNREACHABLE:
        return RobotsFacts(False, unreachable=entry.failure[1])
    if entry.kind is EntryKind.ALLOW:
        return RobotsFacts(True)
    allowed = Rules(entry.body, rules.robots_agent).allow(url)
    return RobotsFacts(allowed, deciding_rule(entry.body, rules.robots_agent, url))


def _identity(request: Request, rules: JobRules) -> tuple[str, Wanted | None]:
    """The canonical URL, and how the store names it; '' and None for what is no URL."""
    if request.problem is not None:
        return "", None
    try:
        canonical = canonical_url(request.url, rules.drop_params)
        number = fingerprint(request, rules.drop_params)
        return canonical, Wanted(request_id(number), number, host_of(request.url))
    except OrbwebError:
        return "", None


def _spellings(url: str) -> Iterator[str]:
    """How else a site's pages link to the same page."""
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    path, question, query = path.partition("?")
    swapped = {"http": "https", "https": "http"}.get(scheme.lower(), scheme)
    bare = place.removeprefix("www.")
    www = bare if bare != place else f"www.{place}"
    turned = path.removesuffix("/") if path.endswith("/") else f"{path}/"
    end = f"{question}{query}"
    yield f"{scheme}://{place}/{turned}{end}"
    yield f"{swapped}://{place}{slash}{path}{end}"
    yield f"{scheme}://{www}{slash}{path}{end}"
    yield f"{swapped}://{www}{slash}{path}{end}"
    if question:
        yield f"{scheme}://{place}{slash}{path}"


def _decoded(page: Sequence[Placed]) -> Iterator[CrawlLine]:
    return (line for line in (decode_line(text) for _, text in page) if line is not None)


def _url_of(lines: Sequence[CrawlLine], id: str) -> str:
    return next((line.url for line in lines if line.id == id and line.kind != LineKind.SKIPPED), "")
