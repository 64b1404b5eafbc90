"""Which failed requests are meant, and how many there are of each cause: read page by page."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from orbweb.cli.watch import meant_run
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.base import DeadLetter
from orbweb.model.reasons import Reason
from orbweb.monitor.causes import Cause, Group, Groups, cause_of


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant: all that fit every part that is given."""

    ids: tuple[str, ...] = ()
    """Beginnings of ids; each must fit at least one."""
    reason: str | None = None
    host: str | None = None
    node: str | None = None
    """Beginning of the name of the node that held it last."""
    group: str | None = None
    """Beginning of the name of a cause."""
    since_ms: int = 0
    until_ms: int = 0
    """0: whenever."""

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in {str(reason) for reason in Reason}:
            raise ConfigError(f"--reason {self.reason} is none; see `orbweb failed list JOB`")
        if not all(self.ids):
            raise ConfigError("an id is empty, which would mean all: --all says so")
        for option in ("host", "node", "group"):
            if getattr(self, option) == "":
                raise ConfigError(f"--{option} is empty: leave it out, or say which")

    @property
    def empty(self) -> bool:
        return self == Filter()

    def fits(self, letter: DeadLetter) -> bool:
        return (
            (not self.ids or letter.id.startswith(self.ids))
            and self.reason in (None, letter.reason)
            and self.host in (None, letter.host)
            and (self.node is None or letter.node.startswith(self.node))
            and letter.at_ms >= self.since_ms
            and (not self.until_ms or letter.at_ms <= self.until_ms)
            and (self.group is None or _cause(letter).id.startswith(self.group))
        )


def chosen(which: Filter, *, everything: bool) -> Filter:
    """The filter of an act; `ConfigError` when it would be everything and nobody said so."""
    if which.empty and not everything:
        raise ConfigError(
            "which ones? Give ids, --reason, --host, --group, --node, --since or --all"
        )
    if not which.empty and everything:
        raise ConfigError("--all and a choice exclude each other")
    return which


@dataclass(slots=True)
class Found:
    """Dead letters of a run that fit a filter: all counted, some kept."""

    info: RunInfo
    letters: list[DeadLetter] = field(default_factory=list)
    """At most as many as were asked for, in no order."""
    reasons: Counter[str] = field(default_factory=Counter)
    groups: Groups = field(default_factory=Groups)
    samples: dict[Cause, DeadLetter] = field(default_factory=dict)
    """Of each group the one that was met first."""
    last_ms: int = 0
    """When the latest of them was given up."""

    @property
    def total(self) -> int:
        return self.reasons.total()

    def group_of(self, letter: DeadLetter) -> Cause:
        return _cause(letter)

    def add(self, letter: DeadLetter, limit: int) -> None:
        self.reasons[letter.reason] += 1
        self.last_ms = max(self.last_ms, letter.at_ms)
        group, is_new = self.groups.add(_cause(letter), letter.at_ms)
        if is_new:
            self.samples[group.cause] = letter
        if not limit or self.reasons[letter.reason] <= limit:
            self.letters.append(letter)


async def find(admin: Admin, job: str, run: str | None, which: Filter, limit: int) -> Found:
    """Count what fits; `letters` has at most `limit` for each reason (0: all)."""
    found = Found(await meant_run(admin, job, run))
    async for letter in fitting(admin, found.info, which):
        found.add(letter, limit)
    return found


async def fitting(admin: Admin, info: RunInfo, which: Filter) -> AsyncIterator[DeadLetter]:
    """The dead letters that fit, in no order; never more than a page of them in memory.

    One that changes meanwhile may come twice, or not at all.
    """
    async for letter in admin.dead_letters(info):
        if which.fits(letter):
            yield letter


async def only(admin: Admin, info: RunInfo, id: str) -> DeadLetter:
    """The one dead letter with this id, or beginning of an id. Raises `ConfigError`."""
    matches = await admin.dead_letters_beginning(info, id, SHOWN_MATCHES + 1)
    if not matches:
        raise ConfigError(f"no failed request of {info.job} has an id that begins with {id}")
    if len(matches) > 1:
        many = f"more than {SHOWN_MATCHES}" if len(matches) > SHOWN_MATCHES else len(matches)
        some = ", ".join(sorted(letter.id for letter in matches[:SHOWN_MATCHES]))
        raise ConfigError(f"{many} failed requests begin with {id}: {some}")
    return matches[0]


SHOWN_MATCHES = 5


def groups_of(found: Found, reason: str | None = None) -> Sequence[Group]:
    """The groups, largest first; of one reason or all."""
    groups = found.groups.largest_first()
    return [group for group in groups if reason in (None, group.cause.reason)]


def _cause(letter: DeadLetter) -> Cause:
    return cause_of(letter.reason, letter.error, letter.host)
