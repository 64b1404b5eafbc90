"""The frontier: where requests wait, and who holds them. Values and seams; no I/O."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from orbweb.errors import ConfigError
from orbweb.frontier.seen import SeenConfig

SEED_ID = "@seed"
"""Pseudo-request that stands for the seeding of a run: a run cannot end while it is pending."""

HOLD_ID = "@hold"
"""Pseudo-request of a resident run (`keep_alive`); only an operator removes it."""

TASKS_HOST = "@tasks"
"""The host of what is not fetched: tasks, and the hooks at their end. No politeness applies."""

SLACK_MS = 5
"""How late a request may be sent to a host with a gap, after the time that a claim reserved."""

PRIORITY_LIMIT = 2**19
"""Priorities lie between minus and plus this: priority and order of arrival fit one score."""


class RunState(StrEnum):
    """What a run is: `new` only in the answer of the `open` that made it."""

    NEW = "new"
    RUNNING = "running"
    DONE = "done"


class NewRequest(NamedTuple):
    """A request on its way into the frontier.

    `fingerprint` is a signed 64-bit number, or None when the request is not to be deduplicated.
    `payload` is opaque to the frontier (bytes for a server, any object in memory).
    """

    id: str
    host: str
    priority: int
    fingerprint: int | None
    payload: Any
    sure: bool = False
    """No error of a filter may drop it: it is looked up in an exact set beside the filter."""
    shard: int | None = None
    """The shard of its host when that is not the one that is called: it goes to the outbox there,
    and needs a fingerprint."""


class Held(NamedTuple):
    """The claim of a node on one request: the request's id and the fence token of its lease."""

    id: str
    token: str


class Lease(NamedTuple):
    """The right to work on one request for a time."""

    id: str
    token: str
    host: str
    priority: int
    retries: int
    """Failed attempts that were counted so far (0 on the first)."""
    deliveries: int
    """How often it was handed out without an answer, this time included (1 on the first)."""
    payload: Any
    start_ms: int = 0
    """The host allows the fetch so many milliseconds after the claim was answered."""
    mark: int = 0
    """Names the reserved time of the fetch, for `permit`; 0 when the host has no gap."""

    @property
    def held(self) -> Held:
        return Held(self.id, self.token)


class PermitCode(StrEnum):
    """Answers of `permit`."""

    GRANTED = "granted"
    LATER = "later"
    """Not soon: the request is to be given back, so that its host's turn is waited for there."""
    LOST = "lost"
    """The lease is another's."""


class Permit(NamedTuple):
    """The right to send a request, from `start_ms` after the answer on. See `Lease.mark`."""

    code: PermitCode
    start_ms: int = 0
    mark: int = 0


class Signal(NamedTuple):
    """What a node has met at a host since it reported last."""

    host: str
    good: int = 0
    """Answers that show a healthy host, whatever they say of the page."""
    bad: int = 0
    """Timeouts, broken connections, server errors, and what is `refused`."""
    streak: int = 0
    """Bad ones since the last good one."""
    refused: int = 0
    """Answers that ask for less without saying for how long (429 and 503)."""
    latency_ms: int = 0
    """Sum over the good and the bad ones, from sending to the end of the body."""
    crawl_delay_ms: int = -1
    """What robots.txt asks for; 0 when it asks for nothing, -1 when it was not read."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Answer of `claim`."""

    leases: tuple[Lease, ...]
    state: RunState
    pending: int
    """Requests that are not finished, whoever holds them; pseudo-requests included."""
    wait_ms: int
    """Milliseconds after which it is worth asking again when fewer were handed out than asked for;
    -1 when nothing is in sight.

    Never longer than one step of the run's clocks: they move only when somebody looks.
    """
    stopping: bool = False
    """An operator asked all nodes of this run to stop."""
    at_ms: int = 0
    """The store's wall clock at the claim: what is fetched under it is no older than this."""
    paused: bool = False
    """An operator paused the run: nothing is handed out until it is resumed."""
    away: int = 0
    """Requests in the shard's outbox; `pending` counts them too."""
    idle_tasks: int = 0
    """Tasks that have nothing left in this of several shards, and wait to be looked at."""


class Ack(NamedTuple):
    """A finished request: its reason, how many items it gave, and the requests found on its page.

    With `error` the request is also kept as a dead letter, although its children enter: what was
    found is not lost because the page failed half-way.
    """

    id: str
    token: str
    reason: str
    items: int = 0
    children: Sequence[NewRequest] = ()
    error: str = ""
    skipped: Sequence[tuple[str, int]] = ()
    """Links that were not taken: reason and number of each."""
    emitted: int = 0
    """Steps of `emit` under this lease. If the store has forgotten one, the ack is refused."""
    response: bytes = b""
    """With `error`: what was answered, packed; kept with the dead letter while there is room."""


class Nack(NamedTuple):
    """A request that is given back.

    `counted` False is a clean release (shutdown): neither retry nor delivery is counted.
    `fatal` makes it a dead letter at once. `payload` None keeps the stored one.
    """

    id: str
    token: str
    backoff_ms: int = 0
    counted: bool = True
    fatal: bool = False
    reason: str = ""
    error: str = ""
    payload: Any = None


class NackResult(StrEnum):
    """What became of a request that was given back."""

    LOST = "lost"
    REQUEUED = "requeued"
    DEAD = "dead"


class SeedCode(StrEnum):
    """Answers of `seed_claim` and `seed_push`."""

    OK = "ok"
    DONE = "done"
    """Seeding has ended, nothing to do."""
    BUSY = "busy"
    """Another node is seeding."""
    DUPLICATE = "duplicate"
    """This batch is in already (a repeated call): go on with cursor + 1."""
    GAP = "gap"
    """The store knows fewer batches (it was rolled back): go back to cursor + 1."""
    STALE = "stale"
    """The caller no longer holds the seeding."""


class SeedReply(NamedTuple):
    """Answer of `seed_claim` and `seed_push`; `cursor` is the number of batches that are in."""

    code: SeedCode
    cursor: int = 0
    token: str = ""
    added: int = 0


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What a run needs to know of its settings. The node that opened it last decides."""

    host_concurrency: int = 8
    """Fetches at once on one host, over all nodes; 0 = no limit."""
    host_delay_ms: int = 0
    """Least time between the starts of two fetches of one host, over all nodes and jobs."""
    randomize_delay: bool = False
    """Make each gap longer by up to a half, never shorter."""
    host_backlog_limit: int = 0
    """Hosts with more queued requests are served after all others; 0 = no limit."""
    refused_pause_ms: int = 1000
    """How long a host is left alone that refuses without saying for how long; doubles each time."""
    circuit_threshold: int = 10
    """Bad answers in a row after which a host is left alone; 0 = never."""
    circuit_cooldown_ms: int = 60_000
    """How long at first; doubles each time that the one request of a trial fails too."""
    autothrottle: bool = False
    """Find out for each host how fast it can be fetched without harm."""
    autothrottle_start_ms: int = 1000
    """Gap with which that begins."""
    autothrottle_longest_ms: int = 60_000
    """Gap that it never exceeds."""
    require_approval: bool = False
    """Hosts without an approved rate are fetched with the gap `unapproved_delay_ms`."""
    unapproved_delay_ms: int = 2000
    fetch_timeout_ms: int = 60_000
    """Longest time that a fetch can take: a politeness slot is never kept longer."""
    lease_ms: int = 60_000
    max_retries: int = 3
    max_deliveries: int = 5
    kept_responses: int = 1000
    """Of so many dead letters of each shard the last response is kept."""
    keep_alive: bool = False
    polls: bool = False
    """Tasks come from a source: each node that opens the run has it asked anew."""
    tells_done: bool = False
    """A task that is done is told to the spider."""
    tells_failed: bool = False
    """A task that has failed is told to the spider."""
    dedup_scope: str = "run"
    """`run` or `spider`: which requests count as seen."""
    seen: SeenConfig = field(default_factory=SeenConfig)
    """How they are remembered."""
    finished_ttl_ms: int = 86_400_000
    """A finished run older than this counts as absent."""
    run_ttl_ms: int = 7 * 86_400_000
    """A run with a run id is collected this long after its last sign of life; 0 = never."""


class HostPace(NamedTuple):
    """What live values say of one host alone, in the place of what the runs want of it.

    Times are the server's wall clock in ms; 0 = without end.
    """

    delay_ms: int | None = None
    delay_until_ms: int = 0
    concurrency: int | None = None
    concurrency_until_ms: int = 0

    def stricter(self, other: HostPace) -> HostPace:
        """Of each thing the stricter word of both; of the same the one that holds longer."""

        def endless(until_ms: int) -> float:
            return until_ms or math.inf

        delays = [
            (pace.delay_ms, endless(pace.delay_until_ms), pace.delay_until_ms)
            for pace in (self, other)
            if pace.delay_ms is not None
        ]
        mosts = [
            (-(pace.concurrency or math.inf), endless(until), pace.concurrency, until)
            for pace in (self, other)
            if pace.concurrency is not None
            for until in [pace.concurrency_until_ms]
        ]
        delay_ms, _, delay_until_ms = max(delays, default=(None, 0, 0))
        *_, most, most_until_ms = max(mosts, default=(0, 0, None, 0))
        return HostPace(delay_ms, delay_until_ms, most, most_until_ms)

    def words(self) -> str:
        """As it stands in the store."""
        delay = "-" if self.delay_ms is None else self.delay_ms
        most = "-" if self.concurrency is None else self.concurrency
        return f"{delay} {self.delay_until_ms} {most} {self.concurrency_until_ms}"


SAID_MS = 60_000
"""For so long, by the shard's clock, a node's word on single hosts counts."""

TUNED = (
    *("host_concurrency", "host_delay_ms", "fetch_timeout_ms", "max_retries", "randomize_delay"),
    *("host_backlog_limit", "refused_pause_ms", "circuit_threshold", "circuit_cooldown_ms"),
    *("autothrottle", "autothrottle_start_ms", "autothrottle_longest_ms"),
    *("require_approval", "unapproved_delay_ms"),
)
"""What of a run's configuration may change while nodes work on it."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a run and single hosts are to be fetched by from now on."""

    version: int
    """Of the live values that it comes from: an older one changes nothing."""
    config: RunConfig
    hosts: Mapping[str, HostPace] = field(default_factory=dict)
    """All hosts of which the store's live values say something; a later version replaces them."""
    node: str = ""
    """Who says so. Of what living nodes say of a host, which may differ, the strictest holds."""
    others: Mapping[str, HostPace] = field(default_factory=dict)
    """What other sources of the node say of hosts."""
    repeats: bool = False
    """Only what it says of hosts, which it has said before: nothing else is changed."""


def new_epoch() -> str:
    """A name that no incarnation of a run has had."""
    return uuid.uuid4().hex[:12]


def clock_step_ms(config: RunConfig) -> int:
    """How far the run's clock may move at one look: a sixth of a lease, so that an outage, which is
    one look, cannot expire the leases of nodes that only could not reach the server."""
    return max(1, config.lease_ms // 6)


def wrong_shards(made_with: int, wanted: int) -> ConfigError:
    """The error of a node that wants another number of shards than the run has."""
    return ConfigError(
        f"FRONTIER_SHARDS is {wanted}, but this run was made with {made_with}, and the hosts are "
        f"spread over so many: start with FRONTIER_SHARDS={made_with}, or take another RUN_ID, or "
        "forget the run and what its job has seen (orbweb reset JOB --seen)"
    )


@dataclass(frozen=True, slots=True)
class Opened:
    """Answer of `open`: the state in which the run was found, and its counts."""

    state: RunState
    epoch: str
    """Identity of this incarnation of the run."""
    status: Status
    laid: bool = True
    """Every shard has its part of the run."""


@dataclass(frozen=True, slots=True)
class Status:
    """Exact counts of a run at one instant."""

    state: RunState
    pending: int = 0
    queued: int = 0
    leased: int = 0
    delayed: int = 0
    dead: int = 0
    hosts: int = 0
    """Hosts with queued requests."""
    items: int = 0
    retried: int = 0
    reaped: int = 0
    fenced: int = 0
    repaired: int = 0
    seeds: int = 0
    """Seed batches that are in."""
    seeding: bool = False
    """The seed generator has not come to its end."""
    hold: bool = False
    """Resident: does not end by itself."""
    stopping: bool = False
    paused: bool = False
    started_at_ms: int = 0
    finished_at_ms: int = 0
    away: int = 0
    """Requests on their way to another shard."""
    version: int = 0
    """Grows with every request that is queued or sent away, in one shard."""
    shards: int = 1
    """Over how many the run is spread."""
    tasks: int = 0
    """Tasks that have not ended."""
    reasons: dict[str, int] = field(default_factory=dict)
    """How many requests ended or were dropped for each reason; `done` counts the good pages."""

    @property
    def word(self) -> str:
        """What the run does: `running`, `resident`, `paused`, `stopping` or `done`."""
        if self.state is RunState.DONE:
            return "done"
        if self.stopping:
            return "stopping"
        if self.paused:
            return "paused"
        return "resident" if self.hold else "running"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A request that was given up: why, after how many tries, and what it was."""

    id: str
    reason: str
    error: str
    tries: int
    at_ms: int
    """Server's wall clock, milliseconds since 1970."""
    host: str
    priority: int
    payload: Any
    node: str = ""
    """Who held it last."""


class TaskLook(NamedTuple):
    """What one of several shards has of a task."""

    open: bool
    """A request of it is pending here, or on its way from here."""
    moved: str = ""
    """Another word whenever a request of it has entered; empty when none did."""
    fault: str = ""
    """When its first dead letter here was buried (wall ms), and the reason; empty: none."""
    kept: str = ""
    """In shard 0: `living`, `failed` (it has ended), or empty when it is not known."""


class TaskVerdict(StrEnum):
    """What came of looking at a task in all shards."""

    OVER = "over"
    """Nothing is left of it, and this is shard 0, where it ends now."""
    GONE = "gone"
    """It has ended."""
    OPEN = "open"
    """Something is left in another shard, which will have it looked at again."""


class SettledTask(NamedTuple):
    """See `TaskControl.settle_tasks`."""

    task: str
    moved: str
    """As it was seen in this shard."""
    verdict: TaskVerdict
    reason: str = ""
    """Why it failed."""


class Frontier(Protocol):
    """What a working node does in one run.

    Every call is one atomic step (one in each shard, where there are several): a crash before or
    after it leaves a request queued, leased, delayed, done or dead, and never in two of these.
    Every call may be repeated with the same arguments when its answer was lost. All raise
    `StoreUnavailable` when the store does not answer (the call may have happened) and `RunLost`
    when the run is no longer there.
    """

    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        """Hand out up to `want` requests whose hosts are allowed now, under the token `node:seq`.

        `seq` grows by one for each new claim of a node; a repeated `seq` gives again what that
        claim got and is still held under its token. Expired leases return to the queue first. A
        frontier of several shards makes a `seq` for each of them out of this one.
        """

    async def renew(
        self, node: str, lease_ms: int, held: Sequence[Held], beat: bytes = b""
    ) -> tuple[list[Held], bool]:
        """Extend leases that are still held, and note that the node lives.

        Returns the leases that are lost, and whether an operator asked the nodes to stop.
        `beat` is what the node says of itself (shown by `orbweb nodes`); empty keeps the last.
        """

    async def fetched(self, held: Sequence[Held]) -> None:
        """Give the hosts' politeness slots back, as the bodies have arrived; keep the leases."""

    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        """Finish requests that are still held; children enter in the same step.

        False: the lease was lost, nothing of it was done. The step that leaves nothing pending
        marks the run done.
        """

    async def emit(self, id: str, token: str, step: int, children: Sequence[NewRequest]) -> bool:
        """Let children of a very long page enter before its ack, in steps numbered from 1.

        False when the lease was lost, or the store has forgotten an earlier step.
        """

    async def nack(self, nacks: Sequence[Nack]) -> list[NackResult]:
        """Give requests back: delayed by their backoff, or dead when their retries are used up."""

    async def permit(self, id: str, token: str, mark: int, slack_ms: int = SLACK_MS) -> Permit:
        """Ask again for the right to send, right before it, as the reserved time has passed.

        `mark` is that of the lease or of the last permit. A further request under the same lease
        (robots.txt, a redirect) needs a permit of its own, with mark 0. A host with a gap may be
        sent the request up to `slack_ms` late: the next reservation lies so much further away.
        """

    async def report(self, signals: Sequence[Signal]) -> None:
        """Tell what was met at hosts; the fleet slows down, stops or tries again together.

        A repeated call counts twice, so a report whose answer was lost is not sent again; only
        crawl delays may be.
        """

    async def hold_off(self, pauses: Sequence[tuple[str, int]]) -> None:
        """Leave hosts alone for so many milliseconds: no run of the shard fetches from them.

        Up to half of that is added, so that hosts that were blocked together do not return
        together.
        """

    async def visit(self, id: str, token: str, fingerprint: int, host: str = "") -> bool | None:
        """Take the page of `host` to which a redirect leads, so that nobody else fetches it.

        True: it belongs to this request now, or did in an earlier attempt. False: it was taken
        before. None: the lease is lost. When the request dies, the first link to the page that was
        held back enters.
        """

    async def recover(self) -> int:
        """After an outage: repair what a torn write may have left; returns the repairs made.

        Does nothing when the server is the one that was seen last. Never changes a sound state.
        """


class RunControl(Protocol):
    """What makes a run, seeds it and ends it. The other half of a node's frontier."""

    async def open(self, config: RunConfig) -> Opened:
        """Make the run or join it. A new run has its seeding pending, so it cannot end early.

        Raises `ConfigError` when it remembers seen requests in another way than `config.seen`.
        """

    async def seed_claim(self, node: str, seq: int, lease_ms: int) -> SeedReply:
        """Take over the seeding if nobody holds it; its lease is renewed as that of `SEED_ID`."""

    async def seed_push(
        self,
        token: str,
        batch: int,
        final: bool,
        requests: Sequence[NewRequest],
        refused: Sequence[tuple[str, int]] = (),
    ) -> SeedReply:
        """Add batch number `batch` (from 1); `final` ends the seeding in the same step.

        `refused`: reasons, and how many seeds were not taken for each since `start_requests` began.
        Of these totals what exceeds the highest so far is counted, so a seeding that begins anew
        counts nothing twice.
        """

    async def take_tasks(
        self, token: str, batch: int, final: bool, most: int, key: str
    ) -> SeedReply:
        """As `seed_push`, with the first `most` tasks of a list; `added` is how many it had.

        `final` ends the seeding in the same step if the list was empty.
        """

    async def open_tasks(self) -> list[tuple[str, bytes]]:
        """Name and JSON of every task that has not ended, or whose hook was not called yet.

        None is left out that was open before the call and is still open after it.
        """

    async def add(self, requests: Sequence[NewRequest]) -> int:
        """Add requests from outside; returns how many were new. Reopens a finished run."""

    async def stop(self) -> None:
        """Ask every node of the run to stop, and let a resident run end."""

    async def status(self) -> Status:
        """Exact counts at one instant. Changes nothing.

        With one exception: of several shards none knows of the end, so who looks marks it.
        """

    async def settled(self) -> bool:
        """Make the state as durable as the server can, and say whether the run is still done."""


class Tunable(Protocol):
    """A run whose rules may change while nodes work on it."""

    async def tune(self, tuning: Tuning) -> bool:
        """Let other values hold at once: delays, concurrency, circuit, throttle, retries, timeout.

        False when a later version holds already; nothing was done then. May be repeated. Hosts
        that wait are looked at again by the new values; an approved rate holds all the same.
        What a node says of single hosts counts for `SAID_MS`, so it repeats that from time to time.
        """


class ShardControl(Protocol):
    """What one shard of several offers besides: its part of a run, its outbox, and the end.

    Shard 0 holds the run itself: its state, the seeding, the resident run's `HOLD_ID`. A request
    for another shard enters the outbox in the step that found it. Any node takes it from there: it
    delivers, and only then trims; what is delivered twice is a duplicate.
    """

    async def open_part(self, config: RunConfig, whole: Opened) -> None:
        """Make this shard's part of a run that was opened in shard 0, or join it.

        Raises `RunLost` when it was there and is no longer, or a later run has taken its place.
        """

    async def lay(self) -> None:
        """Note, in shard 0, that every shard has its part: one that is missing is lost now."""

    async def outbox(self, limit: int) -> list[NewRequest]:
        """The requests that wait longest for being taken to their shards. Changes nothing."""

    async def deliver(self, requests: Sequence[NewRequest]) -> int:
        """Let requests enter that wait in another shard's outbox; returns how many were new.

        Returns when they cannot be lost any more without the outbox forgetting its trim too.
        """

    async def trim(self, requests: Sequence[NewRequest]) -> None:
        """Drop from the outbox what was delivered."""

    async def close(self, version: int) -> bool:
        """Mark the run done, in shard 0, if this shard is empty and still has that version."""

    async def reopen(self) -> None:
        """Let a finished run run on, in shard 0: another shard has work."""


class TaskControl(Protocol):
    """How a task ends whose requests lie in several shards. Shard 0 holds the task itself."""

    async def idle_tasks(self, limit: int) -> list[str]:
        """Tasks that have nothing left in this shard, those that wait longest. Changes nothing."""

    async def look_at_tasks(self, tasks: Sequence[str]) -> list[TaskLook]:
        """What this shard has of each. Changes nothing."""

    async def settle_tasks(self, settled: Sequence[SettledTask]) -> list[bool]:
        """Say what came of looking at tasks in all shards.

        False: a request of the task has entered this shard since, so nothing was done.
        """
